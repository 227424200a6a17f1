package jinja

import "math/big"

type test = func(r *run, x any, a *args) bool

// tests are the names after "is". It is filled once by init, because some refer to it.
var tests map[string]test

func init() {
	tests = map[string]test{
		"defined":   plain(func(_ *run, x any) bool { return !isUndefined(x) }),
		"undefined": plain(func(_ *run, x any) bool { return isUndefined(x) }),
		"none":      plain(func(_ *run, x any) bool { return x == nil }),
		"boolean":   plain(func(_ *run, x any) bool { _, ok := x.(bool); return ok }),
		"true":      plain(func(_ *run, x any) bool { b, ok := x.(bool); return ok && b }),
		"false":     plain(func(_ *run, x any) bool { b, ok := x.(bool); return ok && !b }),
		"integer":   plain(func(_ *run, x any) bool { return isInteger(x) }),
		"float":     plain(func(_ *run, x any) bool { _, ok := x.(float64); return ok }),
		"number":    plain(func(_ *run, x any) bool { _, ok := asFloat(x); return ok }),
		"string":    plain(func(_ *run, x any) bool { _, ok := x.(str); return ok }),
		"mapping":   plain(func(_ *run, x any) bool { _, ok := x.(*Dict); return ok }),
		"iterable":  plain(func(_ *run, x any) bool { return isIterable(x) }),
		"sequence":  plain(func(_ *run, x any) bool { return isSequence(x) }),
		"callable":  plain(func(_ *run, x any) bool { return isCallable(x) }),
		"escaped":   plain(func(_ *run, x any) bool { s, ok := x.(str); return ok && s.safe }),
		"odd":       plain(func(r *run, x any) bool { return r.equal(r.remainder(x, 2), int64(1)) }),
		"even":      plain(func(r *run, x any) bool { return r.equal(r.remainder(x, 2), int64(0)) }),
		"lower":     plain(func(r *run, x any) bool { return r.hasCase(r.text(x).s, isLower, isUpper) }),
		"upper":     plain(func(r *run, x any) bool { return r.hasCase(r.text(x).s, isUpper, isLower) }),
		"divisibleby": func(r *run, x any, a *args) bool {
			return r.equal(r.remainder(x, r.take(a, 1, "num")[0]), int64(0))
		},
		"sameas": func(r *run, x any, a *args) bool { return r.same(x, r.take(a, 1, "other")[0]) },
		"in":     func(r *run, x any, a *args) bool { return r.contains(r.take(a, 1, "seq")[0], x) },
		"filter": plain(func(r *run, x any) bool {
			name := r.string(&args{of: "filter"}, x, "").s
			return filters[name] != nil || unsupportedFilters[name]
		}),
		"test": plain(func(r *run, x any) bool {
			return tests[r.string(&args{of: "test"}, x, "").s] != nil
		}),
	}
	for op, names := range map[string][]string{
		"==": {"==", "eq", "equalto"}, "!=": {"!=", "ne"}, "<": {"<", "lt", "lessthan"},
		"<=": {"<=", "le"}, ">": {">", "gt", "greaterthan"}, ">=": {">=", "ge"},
	} {
		for _, n := range names {
			tests[n] = func(r *run, x any, a *args) bool {
				return r.holds(op, x, r.positional(a, 1, 1)[0])
			}
		}
	}
}

func plain(f func(r *run, x any) bool) test {
	return func(r *run, x any, a *args) bool {
		r.none(a)
		return f(r, x)
	}
}

func (r *run) remainder(x, n any) any {
	if i, ok := n.(int); ok {
		n = int64(i)
	}
	return r.binary("%", x, n)
}

// isInteger leaves out bool, as Jinja2 does here.
func isInteger(x any) bool {
	switch x.(type) {
	case int64, *big.Int:
		return true
	}
	return false
}

func isIterable(x any) bool {
	switch x.(type) {
	case str, *List, *Tuple, *Dict, *view, *generator, *rangeOf, *Undefined, *loop:
		return true
	}
	return false
}

// isSequence is true for what has a length and can be asked for an item: a dict too.
func isSequence(x any) bool {
	switch x.(type) {
	case str, *List, *Tuple, *Dict, *rangeOf, *Undefined:
		return true
	}
	return false
}

func isCallable(x any) bool {
	switch x.(type) {
	case *function, *macro, *loop, *Undefined:
		return true
	}
	return false
}

// same is Python's is, where it does not depend on how Python stores values.
func (r *run) same(a, b any) bool {
	if typeName(a) != typeName(b) {
		return false
	}
	switch x := a.(type) {
	case str, float64, *big.Int, *Undefined:
		r.fail("sameas for a %s is not supported", typeName(a))
	case int64:
		if y := b.(int64); x == y && (x < -5 || x > 256) {
			r.fail("sameas for an int is not supported")
		}
	}
	return a == b
}
