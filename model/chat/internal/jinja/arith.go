package jinja

import (
	"math"
	"math/big"
	"strings"
)

func (r *run) unary(negative bool, x any) any {
	r.defined(x)
	switch v := x.(type) {
	case float64:
		if negative {
			return -v
		}
		return v
	case *big.Int:
		if negative {
			return small(new(big.Int).Neg(v))
		}
		return v
	}
	i, ok := asInt(x)
	switch {
	case !ok:
		r.fail("bad operand type for unary %s: '%s'", sign(negative), typeName(x))
	case negative && i == math.MinInt64:
		return new(big.Int).Neg(big.NewInt(i))
	case negative:
		return -i
	}
	return i
}

func sign(negative bool) string {
	if negative {
		return "-"
	}
	return "+"
}

func (r *run) binary(op string, a, b any) any {
	if i, ok := a.(int64); ok { // the usual cases
		if j, ok := b.(int64); ok {
			return r.integers(op, i, j)
		}
	}
	s, isString := a.(str)
	if isString && op == "%" {
		return r.percent(s, b)
	}
	if t, ok := b.(str); ok && isString && op == "+" {
		return r.add(s, t)
	}
	r.defined(a)
	r.defined(b)
	if i, ok := asInt(a); ok {
		if j, ok := asInt(b); ok {
			return r.integers(op, i, j)
		}
	}
	if x, ok := asBig(a); ok {
		if y, ok := asBig(b); ok {
			return r.bigs(op, x, y)
		}
	}
	if x, ok := asFloat(a); ok {
		if y, ok := asFloat(b); ok {
			if _, isFloat := a.(float64); math.IsInf(x, 0) && !isFloat {
				r.fail("int too large to convert to float")
			}
			if _, isFloat := b.(float64); math.IsInf(y, 0) && !isFloat {
				r.fail("int too large to convert to float")
			}
			return r.floats(op, x, y)
		}
	}
	switch op {
	case "+":
		switch x := a.(type) {
		case *List:
			if y, ok := b.(*List); ok {
				return r.list(r.joinItems(x.Items, y.Items))
			}
		case *Tuple:
			if y, ok := b.(*Tuple); ok {
				return &Tuple{items: r.joinItems(x.items, y.items)}
			}
		case str:
			r.fail(`can only concatenate str (not "%s") to str`, typeName(b))
		}
	case "*":
		if n, ok := asInt(b); ok {
			if v, ok := r.repeat(a, n); ok {
				return v
			}
		}
		if n, ok := asInt(a); ok {
			if v, ok := r.repeat(b, n); ok {
				return v
			}
		}
	}
	r.fail("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	return nil
}

// add is x + y. A Markup escapes the other operand.
func (r *run) add(x, y str) str {
	if x.safe == y.safe {
		out := r.concat(x, y)
		out.safe = x.safe
		return out
	}
	out := r.concat(r.escape(x), r.escape(y))
	out.safe = true
	return out
}

func (r *run) joinItems(a, b []any) []any {
	r.charge(16 * (len(a) + len(b)))
	return append(append(make([]any, 0, len(a)+len(b)), a...), b...)
}

// repeat is v * n.
func (r *run) repeat(v any, n int64) (any, bool) {
	n = max(n, 0)
	check := func(size int) {
		if size > 0 && n > int64(r.maxBytes)/int64(size) {
			r.limit("the template makes more than %d MiB of text and values", r.maxBytes>>20)
		}
		r.charge(size * int(n))
	}
	items := func(in []any) []any {
		if check(16 * len(in)); len(in) == 0 {
			return nil
		}
		out := make([]any, 0, len(in)*int(n))
		for range n {
			r.tick(len(in) / 64)
			out = append(out, in...)
		}
		return out
	}
	switch v := v.(type) {
	case str:
		check(len(v.s))
		if v.s == "" || n == 0 {
			return str{safe: v.safe}, true
		}
		if v.c == nil || v.c == whole {
			return str{strings.Repeat(v.s, int(n)), v.c, v.safe}, true
		}
		b := &builder{r: r}
		b.grow(len(v.s) * int(n))
		for range n {
			r.tick(1)
			b.write(v)
		}
		out := b.str()
		out.safe = v.safe
		return out, true
	case *List:
		return r.list(items(v.Items)), true
	case *Tuple:
		return &Tuple{items: items(v.items)}, true
	}
	return nil, false
}

func (r *run) integers(op string, a, b int64) any {
	switch op {
	case "+":
		if c := a + b; (c > a) == (b > 0) {
			return c
		}
	case "-":
		if c := a - b; (c < a) == (b > 0) {
			return c
		}
	case "*":
		if a == 0 || b == 0 {
			return int64(0)
		}
		if c := a * b; c/b == a && !(a == -1 && b == math.MinInt64) && !(b == -1 && a == math.MinInt64) {
			return c
		}
	case "/":
		const exact = 1 << 53
		if b != 0 && max(a, -a, b, -b) < exact && min(a, b) > -exact {
			return float64(a) / float64(b)
		}
	case "%", "//":
		if b != 0 && b != -1 {
			q, m := a/b, a%b
			if m != 0 && (m < 0) != (b < 0) {
				q, m = q-1, m+b
			}
			if op == "%" {
				return m
			}
			return q
		}
	}
	return r.bigs(op, big.NewInt(a), big.NewInt(b))
}

// maxBits bounds the integers that are computed with.
const maxBits = 1 << 16

// bigs is arithmetic on integers of any size.
func (r *run) bigs(op string, a, b *big.Int) any {
	r.tick(a.BitLen() * b.BitLen() >> 16)
	if a.BitLen()+b.BitLen() > maxBits {
		r.limit("integers of more than %d bits", maxBits)
	}
	r.charge((a.BitLen() + b.BitLen()) / 8)
	out := new(big.Int)
	switch op {
	case "+":
		return small(out.Add(a, b))
	case "-":
		return small(out.Sub(a, b))
	case "*":
		return small(out.Mul(a, b))
	case "**":
		if b.Sign() < 0 {
			x, _ := asFloat(small(a))
			y, _ := asFloat(small(b))
			return r.floats(op, x, y)
		}
		if a.BitLen() > 1 && (!b.IsInt64() || b.Int64() > int64(maxBits/a.BitLen())) {
			r.limit("integers of more than %d bits", maxBits)
		}
		if a.BitLen() <= 1 && b.BitLen() > 1 { // 0, 1 or -1: the power's parity decides
			b = big.NewInt(2 + int64(b.Bit(0)))
		}
		return small(out.Exp(a, b, nil))
	}
	if b.Sign() == 0 {
		r.fail("division by zero")
	}
	if op == "/" {
		f, _ := new(big.Rat).SetFrac(a, b).Float64()
		if math.IsInf(f, 0) {
			r.fail("integer division result too large for a float")
		}
		return f
	}
	m := new(big.Int)
	out.QuoRem(a, b, m)
	if m.Sign() != 0 && (m.Sign() < 0) != (b.Sign() < 0) {
		out.Sub(out, big.NewInt(1))
		m.Add(m, b)
	}
	if op == "%" {
		return small(m)
	}
	return small(out)
}

func (r *run) floats(op string, x, y float64) any {
	if (op == "/" || op == "//" || op == "%") && y == 0 {
		r.fail("float division by zero")
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
		return pyMod(x, y)
	case "//":
		return math.Round((x - pyMod(x, y)) / y)
	}
	if x == 0 && y < 0 {
		r.fail("0.0 cannot be raised to a negative power")
	}
	v := math.Pow(x, y)
	if math.IsNaN(v) && !math.IsNaN(x) && !math.IsNaN(y) ||
		math.IsInf(v, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		r.fail("%s ** %s is too large, or complex, which is not supported", floatRepr(x), floatRepr(y))
	}
	return v
}

func pyMod(x, y float64) float64 {
	m := math.Mod(x, y)
	if m == 0 {
		return math.Copysign(0, y)
	}
	if (m < 0) != (y < 0) {
		m += y
	}
	return m
}
