package chat

import (
	"math"
	"math/big"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// operation does what the nodes of an expression were turned into: see compiler.call. It is a function that gonja calls.
func (r *state) operation(va *exec.VarArgs) *exec.Value {
	r.line = va.Args[0].Integer()
	r.tick(1)
	what, of := va.Args[1].String(), va.Args[2].String()
	in := make([]any, len(va.Args)-3)
	for i := range in {
		in[i] = unwrap(va.Args[i+3])
	}
	a := args{of: of, named: map[string]any{}}
	for k, v := range va.KwArgs {
		a.named[k] = unwrap(v)
	}
	switch what {
	case "filter", "test", "call", "method":
		a.pos = in[1:]
	}
	return exec.AsValue(r.apply(what, a, in))
}

func (r *state) apply(what string, a args, in []any) any {
	switch what {
	case "print":
		text := r.str(in[0])
		r.charge(len(text))
		return text
	case "true":
		return truth(in[0])
	case "not":
		return !truth(in[0])
	case "list":
		return list(in)
	case "tuple":
		return tuple(in)
	case "dict":
		d := dict{}
		for i := 0; i < len(in); i += 2 {
			r.hashable(in[i])
			r.tick(len(d) / 8)
			d.put(in[i], in[i+1])
		}
		return d
	case "sign":
		return r.sign(a.of, in[0])
	case "binary":
		r.weigh(in...)
		return r.binary(a.of, in[0], in[1])
	case "attribute":
		return r.attribute(in[0], a.of)
	case "item":
		return r.item(in[0], in[1])
	case "slice":
		return r.slice(in[0], in[1:])
	case "filter":
		return r.filter(a.of, in[0], a)
	case "test":
		return r.test(a.of, in[0], a)
	case "method":
		r.weigh(in[0])
		r.weighArgs(a)
		out := r.method(in[0], a)
		r.weigh(out)
		return out
	}
	r.weighArgs(a)
	out := r.call(in[0], a)
	r.weigh(out)
	return out
}

// filter and test apply one by its name, also for the filters that apply others to each item.
func (r *state) filter(name string, x any, a args) any {
	r.weigh(x)
	r.weighArgs(a)
	out := filters[name](r, x, a)
	r.weigh(out)
	return out
}

func (r *state) test(name string, x any, a args) bool {
	if !typeTests[name] {
		r.weigh(x)
		r.weighArgs(a)
	}
	return tests[name](r, x, a)
}

func (r *state) sign(op string, x any) any {
	if f, ok := x.(float64); ok {
		if op == "-" {
			return -f
		}
		return f
	}
	i, ok := asInt(x)
	if !ok || i == math.MinInt {
		r.defined(x)
		r.fail("bad operand type for unary %s: '%s'", op, typeName(x))
	}
	if op == "-" {
		return -i
	}
	return i
}

func (r *state) binary(op string, a, b any) any {
	switch op {
	case "==", "!=", "<", "<=", ">", ">=":
		return r.holds(op, a, b)
	case "~":
		x, y := r.str(a), r.str(b)
		r.charge(len(x) + len(y))
		return x + y
	}
	r.defined(a)
	r.defined(b)
	if op == "+" {
		switch x := a.(type) {
		case string:
			if y, ok := b.(string); ok {
				r.charge(len(x) + len(y))
				return x + y
			}
		case list:
			if y, ok := b.(list); ok {
				r.charge(16 * (len(x) + len(y)))
				return slices.Concat(x, y)
			}
		case tuple:
			if y, ok := b.(tuple); ok {
				r.charge(16 * (len(x) + len(y)))
				return slices.Concat(x, y)
			}
		}
	}
	if op == "*" {
		if v, ok := r.repeat(a, b); ok {
			return v
		}
		if v, ok := r.repeat(b, a); ok {
			return v
		}
	}
	if _, ok := a.(string); ok && op == "%" {
		r.fail("formatting with %% is not supported: join with ~")
	}
	return r.arithmetic(op, a, b)
}

// repeat is 'ab' * 3 and [0] * 3.
func (r *state) repeat(x, times any) (any, bool) {
	n, ok := asInt(times)
	if !ok {
		return nil, false
	}
	n = max(0, n)
	switch v := x.(type) {
	case string:
		r.product(len(v), n)
		return strings.Repeat(v, n), true
	case list:
		r.product(16*len(v), n)
		return slices.Repeat(v, n), true
	case tuple:
		r.product(16*len(v), n)
		return slices.Repeat(v, n), true
	}
	return nil, false
}

func (r *state) product(size, n int) {
	if size > 0 && n > maxBytes/size {
		r.charge(maxBytes + 1)
	}
	r.charge(size * n)
}

func (r *state) arithmetic(op string, a, b any) any {
	x, okA := asInt(a)
	y, okB := asInt(b)
	if okA && okB && op != "/" && (op != "**" || y >= 0) {
		return r.integers(op, x, y)
	}
	f, okA := asFloat(a)
	g, okB := asFloat(b)
	_, bigA := a.(*big.Int)
	_, bigB := b.(*big.Int)
	if !okA || !okB || bigA || bigB {
		r.fail("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	}
	if g == 0 && (op == "/" || op == "//" || op == "%") || op == "**" && f == 0 && g < 0 {
		r.fail("division by zero")
	}
	switch op {
	case "+":
		return f + g
	case "-":
		return f - g
	case "*":
		return f * g
	case "/":
		return f / g
	case "//":
		return math.Floor(f / g)
	case "%":
		m := math.Mod(f, g)
		if m != 0 && (m < 0) != (g < 0) {
			m += g
		}
		return m
	}
	p := math.Pow(f, g)
	if math.IsNaN(p) || math.IsInf(p, 0) {
		r.fail("the power is too large, or not a real number")
	}
	return p
}

func (r *state) integers(op string, x, y int) any {
	big1, big2 := big.NewInt(int64(x)), big.NewInt(int64(y))
	out := big.NewInt(int64(0))
	switch op {
	case "+":
		out.Add(big1, big2)
	case "-":
		out.Sub(big1, big2)
	case "*":
		out.Mul(big1, big2)
	case "**":
		if y > 64 && x != 0 && x != 1 && x != -1 {
			r.fail("the number does not fit 64 bits")
		}
		out.Exp(big1, big.NewInt(int64(min(y, 64+y%2))), nil)
	default:
		if y == 0 {
			r.fail("integer division or modulo by zero")
		}
		q, m := big.NewInt(int64(0)), big.NewInt(int64(0))
		q.DivMod(big1, big2, m) // Euclidean: the rest is not negative
		if m.Sign() != 0 && y < 0 {
			m.Add(m, big2)
			q.Sub(q, big.NewInt(int64(1)))
		}
		out = q
		if op == "%" {
			out = m
		}
	}
	if !out.IsInt64() {
		r.fail("the number does not fit 64 bits")
	}
	return int(out.Int64())
}

// attribute is x.name: an attribute of Python's object comes before a key of that name.
func (r *state) attribute(x any, name string) any {
	switch v := x.(type) {
	case nil:
		r.fail("a value is undefined: it has no attribute %q", name)
	case dict:
		if dictMethods[name] != nil || pythonHas(v, name) {
			r.fail("the method %q of a dict, uncalled, is not supported: for a key of that name write ['%s']", name, name)
		}
		r.weigh(v)
		value, _ := v.get(name)
		return value
	case *namespace:
		value, _ := v.values.get(name)
		return value
	case *loop:
		if name == "cycle" || name == "changed" {
			r.fail("loop.%s, uncalled, is not supported", name)
		}
		return v.attribute(name)
	case none, bool, int, *big.Int, float64, string, list, tuple:
		if methods[name] || pythonHas(x, name) {
			r.fail("the method %q, uncalled, is not supported", name)
		}
	default:
		r.fail("attributes of a %s are not supported", typeName(x))
	}
	return nil
}

// pythonHas says that a value has in Python a method that there is not here.
func pythonHas(x any, name string) bool {
	names := ""
	switch x.(type) {
	case dict:
		names = " clear fromkeys pop popitem setdefault update "
	case list:
		names = " append clear extend insert pop remove reverse sort "
	case string:
		names = " casefold center encode expandtabs format format_map isalnum isascii isdecimal isidentifier islower isnumeric isprintable " +
			"istitle isupper ljust maketrans rindex rjust rpartition swapcase translate zfill "
	}
	return strings.Contains(names, " "+name+" ")
}

// item is x[key].
func (r *state) item(x, key any) any {
	switch v := x.(type) {
	case nil:
		r.fail("a value is undefined: it has no items")
	case dict:
		r.hashable(key)
		r.weigh(v)
		value, found := v.get(key)
		if s, ok := key.(string); ok && !found && dictMethods[s] != nil {
			r.fail("the method %q, uncalled, is not supported", s)
		}
		return value
	case *namespace, *loop:
		if s, ok := key.(string); ok {
			return r.attribute(x, s)
		}
	case string:
		i, ok := asInt(key)
		if !ok {
			break
		}
		r.weigh(v)
		n := utf8.RuneCountInString(v)
		if i < 0 {
			i += n
		}
		if i < 0 || i >= n {
			return nil
		}
		for _, c := range v {
			if i == 0 {
				return string(c)
			}
			i--
		}
	case list:
		return at(v, key)
	case tuple:
		return at(v, key)
	case view:
		r.fail("a view or range has no index: make it a list")
	}
	return nil
}

func at(items []any, key any) any {
	i, ok := asInt(key)
	if i < 0 {
		i += len(items)
	}
	if !ok || i < 0 || i >= len(items) {
		return nil
	}
	return items[i]
}

// slice is x[start:stop:step].
func (r *state) slice(x any, bounds []any) any {
	var items []any
	switch v := x.(type) {
	case string, list, tuple:
		items = r.items(v)
	default:
		r.defined(x)
		r.fail("'%s' object cannot be sliced", typeName(x))
	}
	step, n := r.bound(bounds[2], 1), len(items)
	if step == 0 {
		r.fail("slice step cannot be zero")
	}
	low, high := 0, n
	start, stop := 0, n
	if step < 0 {
		low, high = -1, n-1
		start, stop = n-1, -1
	}
	place := func(v any, missing int) int {
		if v == (none{}) {
			return missing
		}
		i := r.bound(v, 0)
		if i < 0 {
			i += n
		}
		return min(max(i, low), high)
	}
	start, stop = place(bounds[0], start), place(bounds[1], stop)
	out := []any{}
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		out = append(out, items[i])
		if step > n || -step > n {
			break // the next would be outside, or overflow
		}
	}
	r.charge(16 * len(out))
	switch x.(type) {
	case string:
		var b strings.Builder
		for _, c := range out {
			b.WriteString(c.(string))
		}
		return b.String()
	case tuple:
		return tuple(out)
	}
	return list(out)
}

func (r *state) bound(v any, missing int) int {
	if v == (none{}) {
		return missing
	}
	i, ok := asInt(v)
	if !ok {
		r.fail("slice indices must be integers or None")
	}
	return i
}

// call is f(...): one of our functions, or a macro, which is gonja's.
func (r *state) call(f any, a args) any {
	switch f := f.(type) {
	case *function:
		return f.call(r, a)
	case exec.Macro:
		defer r.leave(r.enter())
		line := r.line
		defer func() { r.line = line }()
		va := exec.NewVarArgs()
		for _, x := range a.pos {
			va.Args = append(va.Args, exec.AsValue(x))
		}
		for k, x := range a.named {
			va.KwArgs[k] = exec.AsValue(x)
		}
		return unwrap(f(va))
	}
	r.defined(f)
	r.fail("'%s' object is not callable", typeName(f))
	return nil
}
