package chat

import (
	"math/big"
	"strings"
	"time"
	"unicode"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// context holds the variables of one rendering and the functions that a template can call.
func (r *state) context(vars dict) *exec.Context {
	names := map[string]any{
		operationName:     r.operation,
		stateName:         r,
		"raise_exception": &function{raise},
		"strftime_now":    &function{strftimeNow},
		"namespace":       &function{func(r *state, a args) any { return &namespace{r.newDict(a)} }},
		"dict":            &function{func(r *state, a args) any { return r.newDict(a) }},
		"range":           &function{newRange},
	}
	for _, p := range vars {
		names[p.key.(string)] = p.value // a JSON object has no other keys
	}
	return exec.NewContext(names)
}

func raise(r *state, a args) any {
	panic(&TemplateError{r.line, r.str(r.take(a, 1, "message")[0])})
}

func strftimeNow(r *state, a args) any {
	format := r.text(a, r.take(a, 1, "format")[0], "")
	if r.date != "" {
		return r.date
	}
	now := r.now
	if now == nil {
		now = time.Now
	}
	r.charge(16 * len(format)) // %c makes 24 characters of two
	s, err := strftime(now(), format)
	if err != nil {
		r.fail("strftime_now: %v", err)
	}
	return s
}

func newRange(r *state, a args) any {
	v := r.take(a, 1, "start", "stop", "step")
	start, stop := 0, r.integer(a, v[0], 0)
	if v[1] != (absent{}) {
		start, stop = stop, r.integer(a, v[1], 0)
	}
	step := r.integer(a, v[2], 1)
	if step == 0 {
		r.fail("range() arg 3 must not be zero")
	}
	out := view{}
	next, end, by := big.NewInt(int64(start)), big.NewInt(int64(stop)), big.NewInt(int64(step))
	for next.Cmp(end) == -by.Sign() {
		if len(out) == maxRange {
			r.limit("range too big: the sandbox blocks ranges larger than %d", maxRange)
		}
		out = append(out, int(next.Int64()))
		next.Add(next, by)
	}
	r.charge(24 * len(out))
	return out
}

// newDict builds from a mapping or pairs, and names.
func (r *state) newDict(a args) dict {
	if len(a.pos) > 1 {
		r.fail("%s takes at most one argument without a name", a.of)
	}
	d := dict{}
	for _, from := range a.pos {
		if m, ok := from.(dict); ok {
			from = list(r.pairs(m))
		}
		for _, p := range r.items(from) {
			kv := r.items(p)
			if len(kv) != 2 {
				r.fail("%s needs pairs of a key and a value", a.of)
			}
			r.hashable(kv[0])
			r.tick(len(d) / 8)
			d.put(kv[0], kv[1])
		}
	}
	for n, v := range a.named { // more than one only for a namespace, whose order does not show
		d.put(n, v)
	}
	return d
}

// tests are the names behind "is". Filled once by init, since select and its like refer to them, and only read after.
var tests map[string]func(r *state, x any, a args) bool

func init() {
	tests = map[string]func(r *state, x any, a args) bool{
		"defined":   plainTest(func(x any) bool { return x != nil }),
		"undefined": plainTest(func(x any) bool { return x == nil }),
		"none":      plainTest(func(x any) bool { return x == any(none{}) }),
		"boolean":   plainTest(func(x any) bool { _, ok := x.(bool); return ok }),
		"true":      plainTest(func(x any) bool { b, ok := x.(bool); return ok && b }),
		"false":     plainTest(func(x any) bool { b, ok := x.(bool); return ok && !b }),
		"integer":   plainTest(isInteger),
		"float":     plainTest(func(x any) bool { _, ok := x.(float64); return ok }),
		"number":    plainTest(func(x any) bool { _, ok := asFloat(x); return ok || isInteger(x) }),
		"string":    plainTest(func(x any) bool { _, ok := x.(string); return ok }),
		"mapping":   plainTest(func(x any) bool { _, ok := x.(dict); return ok }),
		"iterable":  plainTest(isIterable),
		"sequence":  plainTest(isSequence),
		"callable":  plainTest(isCallable),
		"odd":       parity(1),
		"even":      parity(0),
		"lower":     hasCase(unicode.IsLower, unicode.IsUpper),
		"upper":     hasCase(unicode.IsUpper, unicode.IsLower),
		"divisibleby": func(r *state, x any, a args) bool {
			return r.equal(r.binary("%", x, r.take(a, 1, "num")[0]), 0)
		},
		"in": func(r *state, x any, a args) bool { return r.contains(r.take(a, 1, "seq")[0], x) },
	}
	for op, names := range map[string]string{
		"==": "== eq equalto", "!=": "!= ne", "<": "< lt lessthan", "<=": "<= le", ">": "> gt greaterthan", ">=": ">= ge",
	} {
		for _, n := range strings.Fields(names) {
			tests[n] = func(r *state, x any, a args) bool { return r.holds(op, x, r.take(a, 1, "other")[0]) }
		}
	}
}

// typeTests look at the type of a value only, and take no longer for a large one.
var typeTests = map[string]bool{"defined": true, "undefined": true, "none": true, "boolean": true, "true": true, "false": true, "integer": true,
	"float": true, "number": true, "string": true, "mapping": true, "callable": true}

func plainTest(f func(any) bool) func(r *state, x any, a args) bool {
	return func(r *state, x any, a args) bool {
		r.take(a, 0)
		return f(x)
	}
}

// isInteger leaves out bool, as Jinja2 does here.
func isInteger(x any) bool {
	switch x.(type) {
	case int, *big.Int:
		return true
	}
	return false
}

func isIterable(x any) bool {
	switch x.(type) {
	case *generator, *loop:
		return true
	}
	_, ok := length(x)
	return ok
}

// isSequence is true for what has a length and can be asked for an item: a dict too.
func isSequence(x any) bool {
	_, isView := x.(view)
	_, ok := length(x)
	return ok && !isView
}

func isCallable(x any) bool {
	switch x.(type) {
	case nil, *function, *loop, exec.Macro:
		return true
	}
	return false
}

func parity(want int) func(r *state, x any, a args) bool {
	return func(r *state, x any, a args) bool {
		r.take(a, 0)
		return r.equal(r.binary("%", x, 2), want)
	}
}

// hasCase: some letter has the one case, and none has the other.
func hasCase(want, not func(rune) bool) func(r *state, x any, a args) bool {
	return func(r *state, x any, a args) bool {
		r.take(a, 0)
		found := false
		for _, c := range r.str(x) {
			if not(c) || unicode.IsTitle(c) {
				return false
			}
			found = found || want(c)
		}
		return found
	}
}
