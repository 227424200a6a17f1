package jinja

import (
	"math/big"
	"strings"
	"unicode"
)

// tests are the names behind "is". Filled once by init, since is filter and is test refer to the tables, and only read after.
var tests map[string]func(r *run, x any, a args) bool

func init() {
	tests = map[string]func(r *run, x any, a args) bool{
		"defined":   plainTest(func(x any) bool { _, undefined := x.(*Undefined); return !undefined }),
		"undefined": plainTest(func(x any) bool { _, undefined := x.(*Undefined); return undefined }),
		"none":      plainTest(func(x any) bool { return x == nil }),
		"boolean":   plainTest(func(x any) bool { _, ok := x.(bool); return ok }),
		"true":      plainTest(func(x any) bool { return x == true }),
		"false":     plainTest(func(x any) bool { return x == false }),
		"integer":   plainTest(isInteger),
		"float":     plainTest(func(x any) bool { _, ok := x.(float64); return ok }),
		"number":    plainTest(func(x any) bool { _, ok := asFloat(x); return ok }),
		"string":    plainTest(isString),
		"mapping":   plainTest(func(x any) bool { _, ok := x.(*Dict); return ok }),
		"iterable":  plainTest(isIterable),
		"sequence":  plainTest(isSequence),
		"callable":  plainTest(isCallable),
		"escaped":   plainTest(func(x any) bool { _, ok := x.(markup); return ok }),
		"odd":       parity(1),
		"even":      parity(0),
		"lower":     isCase("islower"),
		"upper":     isCase("isupper"),
		"divisibleby": func(r *run, x any, a args) bool {
			n := r.take(a, 1, "num")[0]
			return r.equal(r.binary("%", x, n), int64(0))
		},
		"sameas": func(r *run, x any, a args) bool { return same(x, r.take(a, 1, "other")[0]) },
		"in":     func(r *run, x any, a args) bool { return r.contains(r.take(a, 1, "seq")[0], x) },
		"filter": func(r *run, x any, a args) bool { _, ok := filters[r.text(a, x, "")]; return ok },
		"test":   func(r *run, x any, a args) bool { _, ok := tests[r.text(a, x, "")]; return ok },
	}
	for op, names := range map[string]string{
		"==": "== eq equalto", "!=": "!= ne", "<": "< lt lessthan", "<=": "<= le", ">": "> gt greaterthan", ">=": ">= ge",
	} {
		for _, n := range strings.Fields(names) {
			tests[n] = func(r *run, x any, a args) bool { return r.holds(op, x, r.take(a, 1, "other")[0]) }
		}
	}
}

func plainTest(f func(any) bool) func(r *run, x any, a args) bool {
	return func(r *run, x any, a args) bool {
		r.take(a, 0)
		return f(x)
	}
}

// isInteger leaves out bool, as Jinja2 does here.
func isInteger(x any) bool {
	switch x.(type) {
	case int64, *big.Int:
		return true
	}
	return false
}

func isString(x any) bool {
	switch x.(type) {
	case string, markup:
		return true
	}
	return false
}

func isIterable(x any) bool {
	switch x.(type) {
	case string, markup, *List, *Tuple, *Dict, *view, *generator, *rangeOf, *Undefined, *loop:
		return true
	}
	return false
}

// isSequence is true for what has a length and can be asked for an item: a dict too.
func isSequence(x any) bool {
	switch x.(type) {
	case string, markup, *List, *Tuple, *Dict, *rangeOf, *Undefined:
		return true
	}
	return false
}

func isCallable(x any) bool {
	switch x.(type) {
	case *function, *loop, *Undefined:
		return true
	}
	return false
}

func parity(want int64) func(r *run, x any, a args) bool {
	return func(r *run, x any, a args) bool {
		r.take(a, 0)
		return r.equal(r.binary("%", x, int64(2)), want)
	}
}

func isCase(method string) func(r *run, x any, a args) bool {
	return func(r *run, x any, a args) bool { return stringMethods[method](r, r.soft(x), a).(bool) }
}

// same is Python's is, as far as it does not depend on how Python stores small values.
func same(a, b any) bool {
	if typeName(a) != typeName(b) {
		return false
	}
	switch a := a.(type) {
	case *Undefined:
		return false
	case *big.Int:
		return a.Cmp(b.(*big.Int)) == 0
	}
	return a == b
}

// isLowerCase and isUpperCase: some letter has case, and none has the other.
func isLowerCase(s string) bool { return hasCase(s, unicode.IsLower, unicode.IsUpper) }

func isUpperCase(s string) bool { return hasCase(s, unicode.IsUpper, unicode.IsLower) }

func hasCase(s string, want, not func(rune) bool) bool {
	found := false
	for _, c := range s {
		if not(c) || unicode.IsTitle(c) {
			return false
		}
		found = found || want(c)
	}
	return found
}
