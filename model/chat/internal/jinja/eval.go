package jinja

import (
	"math"
	"strings"
	"unicode/utf8"
)

func (r *run) eval(e expr) any {
	r.tick(1)
	switch e := e.(type) {
	case *literal:
		return e.value
	case *name:
		return r.lookup(e)
	case *attrExpr:
		x := r.eval(e.x)
		r.line = e.line
		return r.attr(x, e.name)
	case *itemExpr:
		x, key := r.eval(e.x), r.eval(e.key)
		r.line = e.line
		return r.item(x, key)
	case *sliceExpr:
		return r.slice(e)
	case *callExpr:
		return r.call(e)
	case *filterExpr:
		x := r.eval(e.x)
		a := r.args(e.name, e.args)
		r.line = e.line
		return filters[e.name](r, x, a)
	case *testExpr:
		x := r.eval(e.x)
		a := r.args(e.name, e.args)
		r.line = e.line
		return tests[e.name](r, x, a) != e.negate
	case *notExpr:
		return !truth(r.eval(e.x))
	case *logicExpr:
		l := r.eval(e.l)
		if truth(l) == e.and {
			return r.eval(e.r)
		}
		return l
	case *condExpr:
		if truth(r.eval(e.test)) {
			return r.eval(e.then)
		}
		if e.other == nil {
			return &Undefined{"the inline if-expression evaluated to false and no else section was defined."}
		}
		return r.eval(e.other)
	case *compareExpr:
		return r.compare(e)
	case *unaryExpr:
		x := r.eval(e.x)
		r.line = e.line
		return r.unary(e.op, x)
	case *binaryExpr:
		x, y := r.eval(e.l), r.eval(e.r)
		r.line = e.line
		return r.binary(e.op, x, y)
	case *concatExpr:
		parts := make([]string, len(e.parts))
		n := 0
		for i, part := range e.parts {
			v := r.eval(part)
			r.line = e.line
			r.plain(v)
			parts[i] = r.str(v)
			n += len(parts[i])
		}
		r.charge(n)
		return strings.Join(parts, "")
	case *listExpr:
		return &List{r.evalAll(e.items)}
	case *tupleExpr:
		return &Tuple{r.evalAll(e.items)}
	case *dictExpr:
		d := NewDict()
		for i, k := range e.keys {
			key, v := r.eval(k), r.eval(e.values[i])
			r.line = e.line
			r.charge(64)
			d.put(r.hash(key), key, v)
		}
		return d
	}
	panic("unknown expression") // Parse makes only those above
}

func (r *run) evalAll(es []expr) []any {
	r.charge(16 * len(es))
	out := make([]any, len(es))
	for i, e := range es {
		out[i] = r.eval(e)
	}
	return out
}

func (r *run) lookup(n *name) any {
	for s := r.scope; s != nil; s = s.parent {
		if v, ok := s.vars[n.id]; ok {
			return v
		}
	}
	return &Undefined{"'" + n.id + "' is undefined"}
}

// plain refuses the results of safe where Jinja2 would begin to escape the other operand.
func (r *run) plain(vs ...any) {
	for _, v := range vs {
		if _, ok := v.(markup); ok {
			r.fail("the result of the filter safe can only be printed: Jinja2 would escape what it is joined with")
		}
	}
}

func (r *run) compare(e *compareExpr) any {
	l := r.eval(e.x)
	for _, op := range e.ops {
		x := r.eval(op.x)
		r.line = e.line
		if !r.holds(op.op, l, x) {
			return false
		}
		l = x
	}
	return true
}

func (r *run) holds(op string, a, b any) bool {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		return !r.equal(a, b)
	case "in":
		return r.contains(b, a)
	case "notin":
		return !r.contains(b, a)
	}
	r.defined(a)
	r.defined(b)
	c := r.order(a, b, op)
	switch op {
	case "<":
		return c == -1
	case "<=":
		return c == -1 || c == 0
	case ">":
		return c == 1
	}
	return c == 1 || c == 0
}

func (r *run) contains(in, x any) bool {
	switch in := in.(type) {
	case string:
		s, ok := x.(string)
		if !ok {
			r.defined(x)
			r.fail("'in <string>' requires string as left operand, not %s", typeName(x))
		}
		r.tick(len(in) / 64)
		return strings.Contains(in, s)
	case *Dict:
		_, ok := in.index[r.hash(x)]
		return ok
	case *namespace, *loop, *function, nil, bool, int64, float64:
		r.fail("argument of type '%s' is not iterable", typeName(in))
	}
	for _, y := range r.items(in) {
		if r.equal(x, y) {
			return true
		}
	}
	return false
}

func (r *run) unary(op string, x any) any {
	r.defined(x)
	if f, ok := x.(float64); ok {
		if op == "-" {
			return -f
		}
		return f
	}
	i, ok := asInt(x)
	if !ok || i == math.MinInt64 {
		r.fail("bad operand type for unary %s: '%s'", op, typeName(x))
	}
	if op == "-" {
		return -i
	}
	return i
}

func (r *run) binary(op string, a, b any) any {
	r.defined(a)
	if s, ok := a.(string); ok && op == "%" {
		return r.percent(s, b)
	}
	r.defined(b)
	r.plain(a, b)
	if i, ok := asInt(a); ok {
		if j, ok := asInt(b); ok {
			return r.integers(op, i, j)
		}
	}
	if x, ok := asFloat(a); ok {
		if y, ok := asFloat(b); ok {
			return r.floats(op, x, y, a, b)
		}
	}
	switch {
	case op == "+":
		if v, ok := r.concat(a, b); ok {
			return v
		}
	case op == "*":
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
	if s := typeName(a); op == "+" && s == "str" {
		r.fail(`can only concatenate str (not "%s") to str`, typeName(b))
	}
	r.fail("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
	return nil
}

func (r *run) concat(a, b any) (any, bool) {
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			r.charge(len(x) + len(y))
			return x + y, true
		}
	case *List:
		if y, ok := b.(*List); ok {
			return &List{r.join(x.Items, y.Items)}, true
		}
	case *Tuple:
		if y, ok := b.(*Tuple); ok {
			return &Tuple{r.join(x.Items, y.Items)}, true
		}
	}
	return nil, false
}

func (r *run) join(a, b []any) []any {
	r.charge(16 * (len(a) + len(b)))
	return append(append(make([]any, 0, len(a)+len(b)), a...), b...)
}

func (r *run) repeat(v any, n int64) (any, bool) {
	n = max(n, 0)
	times := func(size int) int {
		if size > 0 && n > int64(r.limits.Bytes)/int64(size) {
			r.limit("repeating %d bytes %d times is more than the memory a template may use", size, n)
		}
		r.charge(size * int(n))
		return int(n)
	}
	items := func(in []any) []any {
		count := times(16 * len(in))
		if len(in) == 0 {
			return nil
		}
		out := make([]any, 0, len(in)*count)
		for range count {
			out = append(out, in...)
		}
		return out
	}
	switch v := v.(type) {
	case string:
		if v == "" {
			return "", true
		}
		return strings.Repeat(v, times(len(v))), true
	case *List:
		return &List{items(v.Items)}, true
	case *Tuple:
		return &Tuple{items(v.Items)}, true
	}
	return nil, false
}

// integers works in 64 bits; a result that does not fit is an error, Python would go on.
func (r *run) integers(op string, a, b int64) any {
	overflow := func() { r.fail("%d %s %d does not fit 64 bits", a, op, b) }
	switch op {
	case "+":
		c := a + b
		if (c > a) != (b > 0) && b != 0 {
			overflow()
		}
		return c
	case "-":
		c := a - b
		if (c < a) != (b > 0) && b != 0 {
			overflow()
		}
		return c
	case "*":
		c, ok := mul(a, b)
		if !ok {
			overflow()
		}
		return c
	case "**":
		if b < 0 {
			return r.floats(op, float64(a), float64(b), a, b)
		}
		result, ok := int64(1), true
		for ; b > 0; b-- {
			if result, ok = mul(result, a); !ok {
				overflow()
			}
			if result == 0 || result == 1 || result == -1 && a == -1 {
				if b%2 == 1 || a != -1 {
					return result
				}
				return -result
			}
		}
		return result
	}
	if b == 0 {
		r.fail("division by zero")
	}
	switch op {
	case "/":
		return float64(a) / float64(b)
	case "//":
		if a == math.MinInt64 && b == -1 {
			overflow()
		}
		q := a / b
		if a%b != 0 && (a < 0) != (b < 0) {
			q--
		}
		return q
	}
	m := a % b
	if m != 0 && (m < 0) != (b < 0) {
		m += b
	}
	return m
}

func mul(a, b int64) (int64, bool) {
	if a == 0 || b == 0 {
		return 0, true
	}
	c := a * b
	return c, c/b == a && !(a == -1 && b == math.MinInt64) && !(b == -1 && a == math.MinInt64)
}

func (r *run) floats(op string, x, y float64, a, b any) any {
	if strings.Contains("/ // %", op) && y == 0 {
		r.fail("float division by zero")
	}
	_, aFloat := a.(float64)
	_, bFloat := b.(float64)
	if _, ok := a.(int64); !aFloat && !bFloat && (!ok || op != "**") {
		r.fail("arithmetic on integers beyond 64 bits is not supported")
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
	case "//":
		return math.Floor((x - pymod(x, y)) / y)
	case "%":
		return pymod(x, y)
	}
	if x == 0 && y < 0 {
		r.fail("0.0 cannot be raised to a negative power")
	}
	v := math.Pow(x, y)
	if math.IsNaN(v) && !math.IsNaN(x) && !math.IsNaN(y) || math.IsInf(v, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		r.fail("%s ** %s has no float result", floatRepr(x), floatRepr(y))
	}
	return v
}

func pymod(x, y float64) float64 {
	m := math.Mod(x, y)
	if m == 0 {
		return math.Copysign(0, y)
	}
	if (m < 0) != (y < 0) {
		m += y
	}
	return m
}

func (r *run) missing(x any, key string) any {
	t := typeName(x) + " object"
	if x == nil {
		t = "None"
	}
	return &Undefined{"'" + t + "' has no attribute '" + key + "'"}
}

// attr is x.key: a method of that name first, then an item.
func (r *run) attr(x any, key string) any {
	r.defined(x)
	switch v := x.(type) {
	case *namespace:
		if val, ok := v.vars.Get(key); ok {
			return val
		}
		return r.missing(x, key)
	case *loop:
		if val, ok := v.attr(r, key); ok {
			return val
		}
		return r.missing(x, key)
	case *function:
		if v.macro && key == "name" {
			return v.name
		}
		r.fail("looking into a function is not supported")
	}
	if m, ok := r.method(x, key); ok {
		return m
	}
	if d, ok := x.(*Dict); ok {
		if v, ok := d.Get(key); ok {
			return v
		}
	}
	return r.missing(x, key)
}

// item is x[key]: an item first, then a method of that name.
func (r *run) item(x, key any) any {
	r.defined(x)
	if d, ok := x.(*Dict); ok {
		if _, undefined := key.(*Undefined); undefined {
			return &Undefined{"'dict object' has no such element"}
		}
		switch key.(type) {
		case *List, *Dict:
			return &Undefined{"a dict has no " + typeName(key) + " for a key"}
		}
		if i, ok := d.index[r.hash(key)]; ok {
			return d.values[i]
		}
	}
	if s, ok := key.(string); ok {
		switch x.(type) {
		case *namespace, *loop:
			return r.attr(x, s)
		}
		if m, ok := r.method(x, s); ok {
			return m
		}
		return r.missing(x, s)
	}
	i, ok := asInt(key)
	if ok {
		if v, ok := r.index(x, i); ok {
			return v
		}
	}
	var b strings.Builder
	if _, undefined := key.(*Undefined); undefined {
		return r.missing(x, "Undefined")
	}
	r.repr(&b, key)
	return &Undefined{typeName(x) + " object has no element " + b.String()}
}

// index is the i-th item of a sequence, from the end when negative.
func (r *run) index(x any, i int64) (any, bool) {
	switch v := x.(type) {
	case string:
		r.tick(len(v) / 64)
		n := runeCount(v)
		if i < 0 {
			i += int64(n)
		}
		if i < 0 || i >= int64(n) {
			return nil, false
		}
		return runeSlice(v, int(i), int(i)+1), true
	case *rangeOf:
		if i < 0 {
			i += v.len()
		}
		if i < 0 || i >= v.len() {
			return nil, false
		}
		return v.start + i*v.step, true
	}
	var items []any
	switch v := x.(type) {
	case *List:
		items = v.Items
	case *Tuple:
		items = v.Items
	}
	if i < 0 {
		i += int64(len(items))
	}
	if i < 0 || i >= int64(len(items)) {
		return nil, false
	}
	return items[i], true
}

func (r *run) slice(e *sliceExpr) any {
	x := r.eval(e.x)
	bound := func(b expr) (int, bool) {
		if b == nil {
			return 0, false
		}
		v := r.eval(b)
		if v == nil {
			return 0, false
		}
		i, ok := asInt(v)
		if !ok {
			r.line = e.line
			r.defined(v)
			r.fail("slice indices must be integers or None, not %s", typeName(v))
		}
		return int(max(min(i, 1<<40), -(1 << 40))), true
	}
	from, hasFrom := bound(e.from)
	to, hasTo := bound(e.to)
	step, hasStep := bound(e.step)
	r.line = e.line
	r.defined(x)
	n, ok := length(x)
	if _, isDict := x.(*Dict); !ok || isDict {
		return &Undefined{"a " + typeName(x) + " cannot be sliced"}
	}
	if !hasStep {
		step = 1
	}
	if step == 0 {
		r.fail("slice step cannot be zero")
	}
	// As in Python: bounds are clipped to what a walk with this step can reach.
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	clip := func(i int, given bool, missing int) int {
		if !given {
			return missing
		}
		if i < 0 {
			i += n
		}
		return max(low, min(i, high))
	}
	first, last := low, high
	if step < 0 {
		first, last = high, low
	}
	from, to = clip(from, hasFrom, first), clip(to, hasTo, last)
	var at []int
	if s, ok := x.(string); ok && step == 1 {
		if from >= to {
			return ""
		}
		r.charge(len(s) / 8)
		return runeSlice(s, from, to)
	}
	r.charge(24 * max(0, (to-from)/step+1))
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		at = append(at, i)
	}
	return r.pick(x, at)
}

func (r *run) pick(x any, at []int) any {
	if s, ok := x.(string); ok {
		r.charge(4 * len(s))
		runes := []rune(s)
		var b strings.Builder
		for _, i := range at {
			b.WriteRune(runes[i])
		}
		return b.String()
	}
	items := r.items(x)
	out := make([]any, len(at))
	for i, j := range at {
		out[i] = items[j]
	}
	if _, ok := x.(*Tuple); ok {
		return &Tuple{out}
	}
	return &List{out}
}

func runeCount(s string) int { return utf8.RuneCountInString(s) }

// runeSlice is the characters from up to to, both within the string.
func runeSlice(s string, from, to int) string {
	start, end, n := len(s), len(s), 0
	for i := range s {
		if n == from {
			start = i
		}
		if n == to {
			end = i
			break
		}
		n++
	}
	return s[start:end]
}

func (r *run) call(e *callExpr) any {
	f := r.eval(e.f)
	a := r.args("", e.args)
	r.line = e.line
	return r.invoke(f, a)
}

func (r *run) invoke(f any, a args) any {
	r.defined(f)
	fn, ok := f.(*function)
	if l, isLoop := f.(*loop); isLoop {
		fn, ok = l.recurse(r), true
	}
	if !ok {
		r.fail("'%s' object is not callable", typeName(f))
	}
	a.of = fn.name
	defer r.leave(r.enter())
	return fn.call(r, a)
}
