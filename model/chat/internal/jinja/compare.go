package jinja

import (
	"math/big"
	"strings"
)

// equal is Python's ==.
func (r *run) equal(a, b any) bool {
	r.tick(1)
	switch x := a.(type) {
	case nil:
		return b == nil
	case str:
		y, ok := b.(str)
		if ok && len(x.s) == len(y.s) {
			r.tick(len(x.s) / 64)
		}
		return ok && x.s == y.s
	case *Undefined:
		return isUndefined(b)
	case *List:
		y, ok := b.(*List)
		return ok && r.equalItems(x.Items, y.Items)
	case *Tuple:
		y, ok := b.(*Tuple)
		return ok && r.equalItems(x.items, y.items)
	case *Dict:
		y, ok := b.(*Dict)
		return ok && r.equalDicts(x, y)
	case *view:
		y, ok := b.(*view)
		if !ok || x.kind == "dict_values" || y.kind == "dict_values" {
			return a == b
		}
		return len(x.items) == len(y.items) && r.containsAll(y, x.items)
	case *rangeOf:
		y, ok := b.(*rangeOf)
		n := x.len()
		return ok && n == y.len() && (n == 0 || x.start == y.start && (n == 1 || x.step == y.step))
	}
	if c, ok := compareNumbers(a, b); ok {
		return c == 0
	}
	if _, ok := b.(str); ok {
		return false
	}
	return a == b // functions, macros, namespaces, generators: the same one
}

func (r *run) containsAll(in *view, items []any) bool {
	for _, x := range items {
		if !r.contains(in, x) {
			return false
		}
	}
	return true
}

func (r *run) equalDicts(x, y *Dict) bool {
	if len(x.entries) != len(y.entries) {
		return false
	}
	defer r.leave(r.enter())
	for _, e := range x.entries {
		i := y.find(e.hash)
		if i < 0 || !r.equal(e.value, y.entries[i].value) {
			return false
		}
	}
	return true
}

func (r *run) equalItems(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	defer r.leave(r.enter())
	for i := range a {
		if !r.equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// unordered is the result of a comparison with a NaN.
const unordered = 2

// compareNumbers returns -1, 0, 1 or unordered. ok is false unless both are numbers.
func compareNumbers(a, b any) (c int, ok bool) {
	if i, ok := a.(int64); ok {
		if j, ok := b.(int64); ok {
			switch {
			case i < j:
				return -1, true
			case i > j:
				return 1, true
			}
			return 0, true
		}
	}
	x, okA := asBig(a)
	y, okB := asBig(b)
	f, isFloatA := a.(float64)
	g, isFloatB := b.(float64)
	switch {
	case okA && okB:
		return x.Cmp(y), true
	case okA && isFloatB:
		return compareFloat(x, g), true
	case isFloatA && okB:
		c := compareFloat(y, f)
		if c != unordered {
			c = -c
		}
		return c, true
	case !isFloatA || !isFloatB:
		return 0, false
	case f < g:
		return -1, true
	case f > g:
		return 1, true
	case f == g:
		return 0, true
	}
	return unordered, true
}

// compareFloat compares exactly, as Python does.
func compareFloat(x *big.Int, f float64) int {
	if f != f {
		return unordered
	}
	return new(big.Float).SetInt(x).Cmp(big.NewFloat(f))
}

// order is Python's ordering: -1, 0, 1 or unordered. op is the operator of the error message.
func (r *run) order(a, b any, op string) int {
	r.tick(1)
	if c, ok := compareNumbers(a, b); ok {
		return c
	}
	switch x := a.(type) {
	case str:
		if y, ok := b.(str); ok {
			r.tick(min(len(x.s), len(y.s)) / 64)
			return strings.Compare(x.s, y.s) // UTF-8 sorts as its code points do
		}
	case *List:
		if y, ok := b.(*List); ok {
			return r.orderItems(x.Items, y.Items, op)
		}
	case *Tuple:
		if y, ok := b.(*Tuple); ok {
			return r.orderItems(x.items, y.items, op)
		}
	}
	r.defined(a)
	r.defined(b)
	r.fail("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	return 0
}

func (r *run) orderItems(a, b []any, op string) int {
	defer r.leave(r.enter())
	for i := range min(len(a), len(b)) {
		if !r.equal(a[i], b[i]) {
			return r.order(a[i], b[i], op)
		}
	}
	switch {
	case len(a) < len(b):
		return -1
	case len(a) > len(b):
		return 1
	}
	return 0
}

// holds is a comparison by op.
func (r *run) holds(op string, a, b any) bool {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		return !r.equal(a, b)
	case "in":
		return r.contains(b, a)
	case "not in":
		return !r.contains(b, a)
	}
	c := r.order(a, b, op)
	switch op {
	case "<":
		return c == -1
	case "<=":
		return c == -1 || c == 0
	case ">":
		return c == 1
	}
	return c == 1 || c == 0
}

func (r *run) contains(in, x any) bool {
	switch in := in.(type) {
	case str:
		s, ok := x.(str)
		if !ok {
			r.fail("'in <string>' requires string as left operand, not %s", typeName(x))
		}
		return r.indexOf(in.s, s.s) >= 0
	case *Dict:
		_, ok := r.lookup(in, x)
		return ok
	case *rangeOf:
		if i, ok := asInt(x); ok {
			at := i - in.start
			return at%in.step == 0 && at/in.step >= 0 && at/in.step < in.len()
		}
	case nil, bool, int64, float64, *big.Int, *namespace, *function, *macro, *object:
		r.fail("argument of type '%s' is not iterable", typeName(in))
	}
	next := r.iterate(in)
	for y, ok := next(); ok; y, ok = next() {
		if r.equal(x, y) {
			return true
		}
	}
	return false
}

// indexOf is strings.Index, with its work counted.
func (r *run) indexOf(s, sub string) int {
	r.tick(len(s) / 64)
	return strings.Index(s, sub)
}
