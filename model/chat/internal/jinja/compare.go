package jinja

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"
)

func (e *compareExpr) eval(r *run) any {
	l := r.eval(e.xs[0])
	for i, op := range e.ops {
		x := r.eval(e.xs[i+1])
		r.line = e.line
		if !r.holds(op, l, x) {
			return false
		}
		l = x
	}
	return true
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
	return c == 0 && len(op) == 2 || c == -1 && op[0] == '<' || c == 1 && op[0] == '>'
}

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
		defer r.leave(r.enter())
		return ok && len(x.entries) == len(y.entries) && !slices.ContainsFunc(x.entries, func(e entry) bool {
			i := y.find(e.hash)
			return i < 0 || !r.equal(e.value, y.entries[i].value)
		})
	case *view:
		r.failIf(typeName(a) == typeName(b) && a != b, "comparing a %s is not supported", typeName(a))
		return a == b
	}
	if c, ok := r.compareNumbers(a, b); ok {
		return c == 0
	}
	_, isString := b.(str)
	return !isString && a == b // functions, macros, namespaces, generators: the same one
}

func (r *run) equalItems(a, b []any) bool {
	defer r.leave(r.enter())
	return slices.EqualFunc(a, b, r.equal)
}

// unordered is the result of a comparison with a NaN.
const unordered = 2

// compareNumbers returns -1, 0, 1 or unordered. ok is false unless both are numbers.
func (r *run) compareNumbers(a, b any) (c int, ok bool) {
	x, okA := asFloat(a)
	y, okB := asFloat(b)
	switch {
	case !okA || !okB:
		return 0, false
	case math.IsNaN(x) || math.IsNaN(y):
		return unordered, true
	case x != y || math.Abs(x) < 1<<53 || math.IsInf(x, 0):
		return cmp.Compare(x, y), true
	}
	i, _ := new(big.Int).SetString(r.hash(a)[len(other):], 10) // they are whole, and so are their hashes
	j, _ := new(big.Int).SetString(r.hash(b)[len(other):], 10)
	return i.Cmp(j), true
}

// order is Python's ordering: -1, 0, 1 or unordered. op is the operator of the error message.
func (r *run) order(a, b any, op string) int {
	r.tick(1)
	if c, ok := r.compareNumbers(a, b); ok {
		return c
	}
	s, okA := a.(str)
	t, okB := b.(str)
	if okA && okB {
		r.tick(min(len(s.s), len(t.s)) / 64)
		return strings.Compare(s.s, t.s) // UTF-8 sorts as its code points do
	}
	if typ := typeName(a); typ == typeName(b) && (typ == "list" || typ == "tuple") {
		return r.orderItems(r.items(a), r.items(b), op)
	}
	r.defined(a)
	r.defined(b)
	r.fail("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	return 0
}

func (r *run) orderItems(a, b []any, op string) int {
	defer r.leave(r.enter())
	return slices.CompareFunc(a, b, func(x, y any) int {
		if r.equal(x, y) {
			return 0
		}
		return r.order(x, y, op)
	})
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
		return in.find(r.hash(x)) >= 0
	}
	for y := range r.walk(in) {
		if r.equal(x, y) {
			return true
		}
	}
	return false
}

// indexOf is strings.Index. It counts what it has passed, so that a walk over all places where sub
// is costs as much as one look at all of s.
func (r *run) indexOf(s, sub string) int {
	i := strings.Index(s, sub)
	if i < 0 {
		r.tick(len(s) / 64)
	} else {
		r.tick(i / 64)
	}
	return i
}
