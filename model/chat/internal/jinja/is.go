package jinja

import (
	"math/big"
	"unicode"
)

type test = func(r *run, x any, a *args) bool

// tests are the names after "is". It is filled once by init, because some refer to it.
var tests map[string]test

func init() {
	tests = map[string]test{
		"defined":   plain(func(_ *run, x any) bool { return !isUndefined(x) }),
		"undefined": plain(func(_ *run, x any) bool { return isUndefined(x) }),
		"none":      plain(func(_ *run, x any) bool { return x == nil }),
		"boolean":   plain(func(_ *run, x any) bool { return typeName(x) == "bool" }),
		"true":      plain(func(_ *run, x any) bool { b, ok := x.(bool); return ok && b }),
		"false":     plain(func(_ *run, x any) bool { b, ok := x.(bool); return ok && !b }),
		"integer":   plain(func(_ *run, x any) bool { return typeName(x) == "int" }),
		"float":     plain(func(_ *run, x any) bool { return typeName(x) == "float" }),
		"number":    plain(func(_ *run, x any) bool { _, ok := asFloat(x); return ok }),
		"string":    plain(func(_ *run, x any) bool { _, ok := x.(str); return ok }),
		"escaped":   plain(func(_ *run, x any) bool { return typeName(x) == "Markup" }),
		"mapping":   plain(func(_ *run, x any) bool { _, ok := x.(*Dict); return ok }),
		"iterable":  plain(isIterable),
		"sequence":  plain(isSequence),
		"callable":  plain(isCallable),
		"odd":       plain(func(r *run, x any) bool { return r.divides(x, int64(2), 1) }),
		"even":      plain(func(r *run, x any) bool { return r.divides(x, int64(2), 0) }),
		"lower":     plain(func(r *run, x any) bool { return r.hasCase(r.text(x), unicode.IsLower, unicode.IsUpper) }),
		"upper":     plain(func(r *run, x any) bool { return r.hasCase(r.text(x), unicode.IsUpper, unicode.IsLower) }),
		"filter":    plain(func(r *run, x any) bool { return isFilter(r.string(&args{of: "filter"}, x, "").s) }),
		"test":      plain(func(r *run, x any) bool { return tests[r.string(&args{of: "test"}, x, "").s] != nil }),
		"in":        func(r *run, x any, a *args) bool { return r.contains(r.take(a, 1, "seq")[0], x) },
		"divisibleby": func(r *run, x any, a *args) bool {
			return r.divides(x, r.take(a, 1, "num")[0], 0)
		},
		"sameas": func(r *run, x any, a *args) bool { return r.same(x, r.take(a, 1, "other")[0]) },
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

// divides reports whether x % n is rest.
func (r *run) divides(x, n any, rest int64) bool { return r.equal(r.binary("%", x, n), rest) }

func isIterable(_ *run, x any) bool {
	_, ok := x.(*generator)
	_, isSequence := x.(sequence)
	return ok || isSequence
}

// isSequence is true for what has a length and can be asked for an item: a dict too.
func isSequence(_ *run, x any) bool {
	_, isLoop := x.(*loop)
	v, isView := x.(*view)
	_, ok := x.(sequence)
	return ok && !isLoop && (!isView || v.typ == "range")
}

func isCallable(_ *run, x any) bool {
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
	switch a.(type) {
	case str, float64, int64, *big.Int, *Undefined:
		r.fail("sameas for a %s is not supported", typeName(a))
	}
	return a == b
}
