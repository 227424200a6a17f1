package jinja

import (
	"cmp"
	"math"
	"math/big"
	"slices"
	"strings"
)

// signed returns -x or +x.
func signed(r *run, op string, x any) any {
	if f, ok := x.(float64); ok && op == "neg" {
		return -f
	}
	return binaryOp(r, map[string]string{"neg": "-", "pos": "+"}[op], int64(0), x)
}

func binaryOp(r *run, op string, a, b any) any {
	i, okA := asInt(a)
	j, okB := asInt(b)
	if okA && okB {
		return integerOp(r, op, i, j)
	}
	s, isString := a.(str)
	if isString && op == "%" {
		return percent(r, s, b)
	}
	r.defined(a)
	r.defined(b)
	x, isNumber := asFloat(a)
	if y, ok := asFloat(b); ok && isNumber {
		return floatOp(r, op, x, y, a, b)
	}
	var v any
	switch {
	case op == "+" && typeName(a) == "list" && typeName(b) == "list":
		r.charge(16 * (a.(sequence).length(r) + b.(sequence).length(r)))
		v = newList(r, slices.Concat(itemsOf(r, a), itemsOf(r, b)))
	case op == "+" && typeName(a) == "tuple" && typeName(b) == "tuple":
		r.charge(16 * (a.(sequence).length(r) + b.(sequence).length(r)))
		v = &Tuple{slices.Concat(itemsOf(r, a), itemsOf(r, b))}
	case op == "+" && isString:
		if t, ok := b.(str); ok {
			return addStr(r, s, t)
		}
	case op == "*" && okB:
		v = repeat(r, a, j)
	case op == "*" && okA:
		v = repeat(r, b, i)
	}
	if v == nil {
		r.fail("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	}
	return v
}

// addStr returns x + y. If one operand is a Markup, the other is escaped.
func addStr(r *run, x, y str) str {
	safe := x.safe || y.safe
	if x.safe != y.safe {
		x, y = escapeHTML(r, x), escapeHTML(r, y)
	}
	out := joinStr(r, str{}, x, y)
	out.safe = safe
	return out
}

// repeat returns v * n, or nil if v is not a sequence.
func repeat(r *run, v any, n int64) any {
	n = max(n, 0)
	charge := func(size int) {
		if size > 0 && n > int64(r.maxBytes/size) {
			r.charge(r.maxBytes + 1)
		}
		r.charge(size * int(n))
	}
	items := func(in []any) (out []any) {
		for charge(16 * len(in)); n > 0 && len(in) > 0; n-- {
			r.tick(1)
			out = append(out, in...)
		}
		return out
	}
	switch v := v.(type) {
	case str:
		charge(len(v.s))
		if v.c == nil || v.c == whole {
			return str{strings.Repeat(v.s, int(n)), v.c, v.safe}
		}
		b := &builder{r: r, safe: v.safe}
		for range n {
			r.tick(1)
			b.write(v)
		}
		return b.str()
	case *List:
		return newList(r, items(v.Items))
	case *Tuple:
		return &Tuple{items(v.items)}
	}
	return nil
}

// integerOp is arithmetic in 64 bits. It fails if the result does not fit.
func integerOp(r *run, op string, a, b int64) any {
	if c := a + b; op == "+" && (c > a) == (b > 0) {
		return c
	}
	if c := a - b; op == "-" && (c < a) == (b > 0) {
		return c
	}
	r.failIf(b == 0 && strings.Contains("//%", op), "division by zero")
	x, y, z := big.NewInt(a), big.NewInt(b), new(big.Int)
	switch op {
	case "+", "-":
	case "*":
		if z.Mul(x, y); z.IsInt64() {
			return z.Int64()
		}
	case "**":
		if b < 0 {
			return floatOp(r, op, float64(a), float64(b), a, b)
		}
		if z.Exp(x, y.SetInt64(min(b, 64+b%2)), nil); z.IsInt64() && (b <= 64 || a >= -1 && a <= 1) {
			return z.Int64()
		}
	case "/":
		f, _ := new(big.Rat).SetFrac(x, y).Float64()
		return f
	default:
		m := new(big.Int)
		if z.QuoRem(x, y, m); m.Sign() != 0 && (a < 0) != (b < 0) { // Python rounds down
			z.Sub(z, big.NewInt(1))
			m.Add(m, y)
		}
		if op == "%" {
			return m.Int64()
		}
		return small(z)
	}
	r.fail("%d %s %d does not fit 64 bits, which is not supported", a, op, b)
	return nil
}

func floatOp(r *run, op string, x, y float64, a, b any) any {
	_, bigA := a.(*big.Int)
	_, bigB := b.(*big.Int)
	r.failIf(bigA || bigB, "arithmetic on integers of more than 64 bits is not supported")
	r.failIf(y == 0 && strings.Contains("//%", op), "float division by zero")
	m := math.Mod(x, y)
	switch { // Python's modulus has the sign of y
	case m == 0:
		m = math.Copysign(0, y)
	case (m < 0) != (y < 0):
		m += y
	}
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "/":
		return x / y
	case "%":
		return m
	case "//":
		return math.Round((x - m) / y)
	}
	// math.Pow and Python's pow may differ in the last bit unless every step is exact.
	v, whole := math.Pow(x, y), math.Pow(x, math.Abs(y))
	fraction, _ := math.Frexp(whole)
	exact := y == 0.5 || x == math.Trunc(x) && y == math.Trunc(y) && math.Abs(whole) <= 1<<53 &&
		(y >= 0 || math.Abs(fraction) == 0.5)
	r.failIf(!exact || v-v != 0, "the power %v ** %v is not supported", x, y)
	return v
}

func (e *compareExpr) eval(r *run) any {
	l := r.eval(e.xs[0])
	for i, op := range e.ops {
		x := r.eval(e.xs[i+1])
		r.line = e.line
		if !holds(r, op, l, x) {
			return false
		}
		l = x
	}
	return true
}

// holds returns the result of the comparison op.
func holds(r *run, op string, a, b any) bool {
	switch op {
	case "==":
		return equal(r, a, b)
	case "!=":
		return !equal(r, a, b)
	case "in":
		return contains(r, b, a)
	case "not in":
		return !contains(r, b, a)
	}
	c := compare(r, a, b, op)
	return c == 0 && len(op) == 2 || c == -1 && op[0] == '<' || c == 1 && op[0] == '>'
}

// equal is Python's == operator.
func equal(r *run, a, b any) bool {
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
		return ok && equalItems(r, x.Items, y.Items)
	case *Tuple:
		y, ok := b.(*Tuple)
		return ok && equalItems(r, x.items, y.items)
	case *Dict:
		y, ok := b.(*Dict)
		defer r.leave(r.enter())
		return ok && len(x.entries) == len(y.entries) && !slices.ContainsFunc(x.entries, func(e entry) bool {
			r.tick(len(e.hash) / 64)
			i := y.find(e.hash)
			return i < 0 || !equal(r, e.value, y.entries[i].value)
		})
	case *view:
		r.failIf(typeName(a) == typeName(b) && a != b, "comparing a %s is not supported", typeName(a))
		return a == b
	}
	if c, ok := compareNumbers(r, a, b); ok {
		return c == 0
	}
	_, isString := b.(str)
	return !isString && a == b // functions, macros, namespaces and generators: identity
}

func equalItems(r *run, a, b []any) bool {
	defer r.leave(r.enter())
	return slices.EqualFunc(a, b, func(x, y any) bool { return equal(r, x, y) })
}

// compareNumbers returns -1, 0, 1, or 2 if a or b is NaN. ok is false unless both are numbers.
func compareNumbers(r *run, a, b any) (c int, ok bool) {
	x, okA := asFloat(a)
	y, okB := asFloat(b)
	switch {
	case !okA || !okB:
		return 0, false
	case math.IsNaN(x) || math.IsNaN(y):
		return 2, true
	case x != y || math.Abs(x) < 1<<53 || math.IsInf(x, 0):
		return cmp.Compare(x, y), true
	}
	i, _ := new(big.Int).SetString(keyHash(r, a)[len(other):], 10) // a and b are integers: so are their hashes
	j, _ := new(big.Int).SetString(keyHash(r, b)[len(other):], 10)
	return i.Cmp(j), true
}

// compare compares a and b: it returns -1, 0, 1, or 2 for NaN. op is the operator for the error.
func compare(r *run, a, b any, op string) int {
	r.tick(1)
	if c, ok := compareNumbers(r, a, b); ok {
		return c
	}
	s, okA := a.(str)
	t, okB := b.(str)
	if okA && okB {
		r.tick(min(len(s.s), len(t.s)) / 64)
		return strings.Compare(s.s, t.s) // the order of UTF-8 is that of its code points
	}
	if typ := typeName(a); typ == typeName(b) && (typ == "list" || typ == "tuple") {
		return compareItems(r, itemsOf(r, a), itemsOf(r, b), op)
	}
	r.defined(a)
	r.defined(b)
	r.fail("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	return 0
}

func compareItems(r *run, a, b []any, op string) int {
	defer r.leave(r.enter())
	return slices.CompareFunc(a, b, func(x, y any) int {
		if equal(r, x, y) {
			return 0
		}
		return compare(r, x, y, op)
	})
}

func contains(r *run, in, x any) bool {
	switch in := in.(type) {
	case str:
		s, ok := x.(str)
		if !ok {
			r.fail("'in <string>' requires string as left operand, not %s", typeName(x))
		}
		return indexOf(r, in.s, s.s) >= 0
	case *Dict:
		return in.find(keyHash(r, x)) >= 0
	}
	for y := range walk(r, in) {
		if equal(r, x, y) {
			return true
		}
	}
	return false
}

// indexOf is strings.Index. It counts only the bytes up to the match, so that finding all matches
// costs as much as one scan of s.
func indexOf(r *run, s, sub string) int {
	i := strings.Index(s, sub)
	if i < 0 {
		r.tick(len(s) / 64)
	} else {
		r.tick((i + len(sub)) / 64)
	}
	return i
}
