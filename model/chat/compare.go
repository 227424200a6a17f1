package chat

import (
	"cmp"
	"strings"
)

// equal is Python's ==, which never fails.
func (r *state) equal(a, b any) bool {
	r.tick(1)
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		if ok && len(x) == len(y) {
			r.tick(len(x) / 64)
		}
		return ok && x == y
	case list:
		y, ok := b.(list)
		return ok && r.equalItems(x, y)
	case tuple:
		y, ok := b.(tuple)
		return ok && r.equalItems(x, y)
	case dict:
		y, ok := b.(dict)
		if !ok || len(x) != len(y) {
			return false
		}
		defer r.leave(r.enter())
		for _, p := range x {
			r.tick(len(y) / 8)
			v, found := y.get(p.key)
			if !found || !r.equal(p.value, v) {
				return false
			}
		}
		return true
	case view:
		r.fail("a view or range cannot be compared: make it a list")
	}
	if c, ok := compareNumbers(a, b); ok {
		return c == 0
	}
	switch b.(type) {
	case list, tuple, dict, view:
		return false
	}
	return a == b // None, undefined, functions, namespaces, generators: the same one
}

func (r *state) equalItems(a, b []any) bool {
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

// compareNumbers gives -1, 0, 1, or 2 where a NaN is in it; ok is false when one of the two is no number.
func compareNumbers(a, b any) (c int, ok bool) {
	_, aFloat := a.(float64)
	_, bFloat := b.(float64)
	if !aFloat && !bFloat {
		x, okA := asBig(a)
		y, okB := asBig(b)
		if !okA || !okB {
			return 0, false
		}
		return x.Cmp(y), true
	}
	x, okA := asFloat(a)
	y, okB := asFloat(b)
	switch {
	case !okA || !okB:
		return 0, false
	case x < y:
		return -1, true
	case x > y:
		return 1, true
	case x == y:
		return 0, true
	}
	return 2, true
}

// order is Python's ordering; op names the operator in the error for values that have none between them. A NaN gives 2.
func (r *state) order(a, b any, op string) int {
	r.tick(1)
	if c, ok := compareNumbers(a, b); ok {
		return c
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			r.tick(min(len(x), len(y)) / 64)
			return strings.Compare(x, y) // UTF-8 sorts as its code points do
		}
	case list:
		if y, ok := b.(list); ok {
			return r.orderItems(x, y, op)
		}
	case tuple:
		if y, ok := b.(tuple); ok {
			return r.orderItems(x, y, op)
		}
	}
	r.defined(a)
	r.defined(b)
	r.fail("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	return 0
}

func (r *state) orderItems(a, b []any, op string) int {
	defer r.leave(r.enter())
	for i := range min(len(a), len(b)) {
		if !r.equal(a[i], b[i]) {
			return r.order(a[i], b[i], op)
		}
	}
	return cmp.Compare(len(a), len(b))
}

// holds says whether a comparison is true.
func (r *state) holds(op string, a, b any) bool {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		return !r.equal(a, b)
	}
	c := r.order(a, b, op)
	if c == 2 {
		return false // a NaN
	}
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// contains is Python's in.
func (r *state) contains(in, x any) bool {
	switch in := in.(type) {
	case string:
		s, ok := x.(string)
		if !ok {
			r.defined(x)
			r.fail("'in <string>' requires string as left operand, not %s", typeName(x))
		}
		return strings.Contains(in, s)
	case dict:
		r.hashable(x)
		_, found := in.get(x)
		return found
	}
	for _, y := range r.items(in) {
		if r.equal(x, y) {
			return true
		}
	}
	return false
}

func (r *state) hashable(x any) {
	switch x.(type) {
	case list, dict, view:
		r.fail("unhashable type: '%s'", typeName(x))
	case tuple:
		r.fail("a tuple as a key is not supported")
	}
}
