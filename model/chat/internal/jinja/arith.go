package jinja

import (
	"math"
	"math/big"
	"strings"
)

func (e *unaryExpr) eval(r *run) any {
	x := r.eval(e.x)
	r.line = e.line
	if f, ok := x.(float64); ok && e.op == "-" {
		return -f
	}
	return r.binary(e.op, int64(0), x) // 0 - x and 0 + x, which for integers is -x and x
}

func (e *binaryExpr) eval(r *run) any {
	x, y := r.eval(e.l), r.eval(e.r)
	r.line = e.line
	return r.binary(e.op, x, y)
}

func (r *run) binary(op string, a, b any) any {
	i, okA := asInt(a)
	j, okB := asInt(b)
	if okA && okB {
		return r.integers(op, i, j)
	}
	s, isString := a.(str)
	if isString && op == "%" {
		return r.percent(s, b)
	}
	r.defined(a)
	r.defined(b)
	x, isNumber := asFloat(a)
	if y, ok := asFloat(b); ok && isNumber {
		return r.floats(op, x, y, a, b)
	}
	var v any
	switch {
	case op == "+" && typeName(a) == "list" && typeName(b) == "list":
		v = r.list(r.joinItems(r.items(a), r.items(b)))
	case op == "+" && typeName(a) == "tuple" && typeName(b) == "tuple":
		v = &Tuple{r.joinItems(r.items(a), r.items(b))}
	case op == "+" && isString:
		if t, ok := b.(str); ok {
			return r.add(s, t)
		}
	case op == "*" && okB:
		v = r.repeat(a, j)
	case op == "*" && okA:
		v = r.repeat(b, i)
	}
	if v == nil {
		r.fail("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	}
	return v
}

// add is x + y. A Markup escapes the other operand.
func (r *run) add(x, y str) str {
	safe := x.safe || y.safe
	if x.safe != y.safe {
		x, y = r.escape(x), r.escape(y)
	}
	out := r.concat(x, y)
	out.safe = safe
	return out
}

func (r *run) joinItems(a, b []any) []any {
	r.charge(16 * (len(a) + len(b)))
	return append(append(make([]any, 0, len(a)+len(b)), a...), b...)
}

// repeat is v * n, or nil if v is not a sequence.
func (r *run) repeat(v any, n int64) any {
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
		return r.list(items(v.Items))
	case *Tuple:
		return &Tuple{items(v.items)}
	}
	return nil
}

// integers is arithmetic in 64 bits. A result that does not fit is an error; Python would go on.
func (r *run) integers(op string, a, b int64) any {
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
			return r.floats(op, float64(a), float64(b), a, b)
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

func (r *run) floats(op string, x, y float64, a, b any) any {
	_, bigA := a.(*big.Int)
	_, bigB := b.(*big.Int)
	r.failIf(bigA || bigB, "arithmetic on integers of more than 64 bits is not supported")
	r.failIf(y == 0 && strings.Contains("//%", op), "float division by zero")
	m := math.Mod(x, y)
	switch { // the sign of Python's modulus is that of y
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
	v := math.Pow(x, y)
	finite := !math.IsInf(x, 0) && !math.IsInf(y, 0) && x == x && y == y
	r.failIf(finite && v-v != 0, "a power that is infinite or complex is not supported")
	return v
}
