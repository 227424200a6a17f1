package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

func (e *literal) eval(*run) any { return e.value }

func (e *callExpr) eval(r *run) any {
	f := r.eval(e.f)
	a := evalArgs(r, "", &e.args)
	r.line = e.line
	return r.invoke(f, a)
}

func (e *filterExpr) eval(r *run) any { return e.apply(r, r.eval(e.x)) }

// apply returns the filter's result for x.
func (e *filterExpr) apply(r *run, x any) any {
	a := evalArgs(r, e.name, &e.args)
	r.line = e.line
	r.failIf(e.f == nil, "unknown filter %q", e.name)
	return e.f(r, x, a)
}

// applyTo applies a chain of filters to the text of a body.
func (e *filterExpr) applyTo(r *run, text any) any {
	if before, ok := e.x.(*filterExpr); ok {
		text = before.applyTo(r, text)
	}
	return e.apply(r, text)
}

func (e *testExpr) eval(r *run) any {
	x := r.eval(e.x)
	a := evalArgs(r, e.name, &e.args)
	r.line = e.line
	r.failIf(e.f == nil, "unknown test %q", e.name)
	return e.f(r, x, a)
}

func (e *opExpr) eval(r *run) any {
	switch e.op {
	case "[]":
		return newList(r, r.evalAll(e.xs))
	case "()":
		return &Tuple{r.evalAll(e.xs)}
	}
	x := r.eval(e.xs[0])
	switch e.op {
	case "not":
		return !truth(r, x)
	case "or", "and":
		if truth(r, x) == (e.op == "and") {
			return r.eval(e.xs[1])
		}
		return x
	case "if":
		if truth(r, x) {
			return r.eval(e.xs[1])
		} else if len(e.xs) > 2 {
			return r.eval(e.xs[2])
		}
		return &Undefined{hint: "the inline if has no else and its condition is false"}
	case "~":
		return concatAll(r, x, e)
	case "neg", "pos":
		r.line = e.line
		return signed(r, e.op, x)
	}
	y := r.eval(e.xs[1])
	if r.line = e.line; e.op == "item" {
		return getItem(r, x, y)
	}
	return binaryOp(r, e.op, x, y)
}

func concatAll(r *run, first any, e *opExpr) str {
	r.charge(48 * len(e.xs))
	parts := make([]str, len(e.xs))
	parts[0] = textOf(r, first)
	for i, part := range e.xs[1:] {
		v := r.eval(part)
		r.line = e.line
		parts[i+1] = textOf(r, v)
	}
	return joinStr(r, str{}, parts...)
}

func (e *dictExpr) eval(r *run) any {
	d := NewDict()
	for i, k := range e.keys {
		key, v := r.eval(k), r.eval(e.values[i])
		r.line = e.line
		setItem(r, d, key, v)
	}
	return d
}

// args are the evaluated arguments of a call.
type args struct {
	of    string // name of the callee, for errors
	pos   []any
	names []str
	named []any
}

func evalArgs(r *run, of string, in *arguments) *args {
	if len(in.pos) == 0 && len(in.names) == 0 && in.star == nil && in.double == nil {
		r.noArgs.of = of
		return &r.noArgs
	}
	a := &args{of, r.evalAll(in.pos), in.names, r.evalAll(in.named)}
	if in.star != nil {
		more := itemsOf(r, r.eval(in.star))
		r.charge(16 * len(more))
		a.pos = append(a.pos, more...)
	}
	if in.double == nil {
		return a
	}
	d, ok := r.eval(in.double).(*Dict)
	r.failIf(!ok, "the argument after ** must be a mapping")
	r.charge(64 * len(d.entries))
	a.names = slices.Clip(a.names)
	for _, e := range d.entries {
		k, ok := e.key.(str)
		r.failIf(!ok || findKeyword(r, a, k.s) >= 0, "a keyword argument is not a string or is given twice")
		a.names, a.named = append(a.names, k), append(a.named, e.value)
	}
	return a
}

// findKeyword returns the index of a keyword, or -1 if it is not given.
func findKeyword(r *run, a *args, name string) int {
	r.tick((len(a.names) + len(name)) / 16)
	return slices.IndexFunc(a.names, func(n str) bool { return n.s == name })
}

// noArgs fails if a has arguments.
func noArgs(r *run, a *args) {
	if len(a.pos) > 0 || len(a.names) > 0 {
		r.fail("%s takes no arguments", a.of)
	}
}

// takeArgs returns the arguments in the order of params, and absent for those not given. It fails
// if one of the first required is missing. Parameters with an empty name are positional only.
func takeArgs(r *run, a *args, required int, params ...string) []any {
	out := make([]any, len(params))
	used := copy(out, a.pos)
	for i := used; i < len(out); i++ {
		out[i] = absent{}
		if j := findKeyword(r, a, params[i]); j >= 0 {
			out[i] = a.named[j]
			used++
		} else if i < required {
			r.fail("%s: missing argument", a.of)
		}
	}
	if used < len(a.pos)+len(a.names) {
		r.fail("%s: too many arguments, or a keyword that is unknown or not supported", a.of)
	}
	return out
}

func given(v any) bool {
	_, not := v.(absent)
	return !not
}

// set reports whether an argument whose default is None has another value.
func set(v any) bool { return v != nil && given(v) }

// maxNumber clamps widths, counts and indices.
const maxNumber = 1 << 30

// integerArg returns an integer argument, or otherwise if it is not given.
func integerArg(r *run, a *args, v any, otherwise int) int {
	if !given(v) {
		return otherwise
	}
	i, ok := asInt(v)
	if !ok {
		r.defined(v)
		r.fail("%s: '%s' object cannot be interpreted as an integer", a.of, typeName(v))
	}
	return int(max(min(i, maxNumber-1), -maxNumber))
}

// stringArg returns a string argument, or otherwise if it is not given.
func stringArg(r *run, a *args, v any, otherwise string) str {
	if !given(v) {
		return lit(otherwise)
	}
	s, ok := v.(str)
	if !ok {
		r.defined(v)
		r.fail("%s: expected a string, not %s", a.of, typeName(v))
	}
	return s
}

func flagArg(r *run, v any) bool { return given(v) && truth(r, v) }

func (r *run) invoke(f any, a *args) any {
	defer r.leave(r.enter())
	switch f := f.(type) {
	case *function:
		a.of = f.name
		return f.call(r, a)
	case *macro:
		return f.call(r, a)
	case *loop:
		return f.recurse(r, a)
	}
	r.defined(f)
	r.fail("'%s' object is not callable", typeName(f))
	return nil
}

func (e *attrExpr) eval(r *run) any {
	x := r.eval(e.x)
	r.line = e.line
	if v, ok := getAttr(r, x, e.name.s); ok {
		return v
	}
	if d, ok := x.(*Dict); ok {
		if v, ok := d.Get(e.name.s); ok {
			if strings.HasPrefix(e.name.s, "__") {
				r.fail("reading %s as an attribute is not supported: write ['%[1]s']", e.name.s)
			}
			return v
		}
	}
	return lacks(x, e.name)
}

// getAttr is Python's getattr, restricted to what the sandbox allows.
func getAttr(r *run, x any, key string) (any, bool) {
	r.tick(len(key) / 64)
	switch v := x.(type) {
	case *Undefined:
		r.defined(v)
	case *namespace:
		return v.vars.Get(key)
	case *loop:
		return v.attr(r, key)
	case *macro:
		if key == "name" && v.label != "" {
			return lit(v.label), true
		}
	}
	return getMethod(r, x, key)
}

// getItem returns x[key], or the attribute of that name if x has no such item.
func getItem(r *run, x, key any) any {
	r.defined(x)
	if d, ok := x.(*Dict); ok {
		if h, ok := tryHash(r, key); ok {
			if i := d.find(h); i >= 0 {
				return d.entries[i].value
			}
		}
	} else if i, ok := asInt(key); ok {
		if v, ok := getIndex(r, x, i); ok {
			return v
		}
	}
	if name, ok := key.(str); ok {
		if v, ok := getAttr(r, x, name.s); ok {
			return v
		}
	}
	return lacks(x, key)
}

// getIndex returns item i of a sequence. A negative i counts from the end.
func getIndex(r *run, x any, i int64) (any, bool) {
	if s, ok := x.(str); ok {
		from := runeOffset(r, s.s, int(max(min(i, maxNumber), -maxNumber)))
		if from == len(s.s) || i < 0 && from == 0 && int64(runeCount(r, s.s)) < -i {
			return nil, false
		}
		_, width := utf8.DecodeRuneInString(s.s[from:])
		return s.cut(from, from+width), true
	}
	if typ := typeName(x); typ != "list" && typ != "tuple" && typ != "range" {
		return nil, false
	}
	items := itemsOf(r, x)
	if i < 0 {
		i += int64(len(items))
	}
	if i < 0 || i >= int64(len(items)) {
		return nil, false
	}
	return items[i], true
}

func (e *sliceExpr) eval(r *run) any {
	x := r.eval(e.x)
	bound := func(b expr, otherwise int) int {
		var v any
		if b != nil {
			v = r.eval(b)
		}
		if r.line = e.line; v == nil {
			return otherwise
		}
		return integerArg(r, &args{of: "slice"}, v, 0)
	}
	from, to, step := bound(e.from, absentBound), bound(e.to, absentBound), bound(e.step, 1)
	r.failIf(step == 0, "slice step cannot be zero")
	switch v := x.(type) {
	case str:
		if step == 1 {
			return substring(r, v, from, to)
		}
		b := &builder{r: r, safe: v.safe}
		for _, c := range pickItems(r, itemsOf(r, v), from, to, step) {
			b.write(c.(str))
		}
		return b.str()
	case *List:
		return newList(r, pickItems(r, v.Items, from, to, step))
	case *Tuple:
		return &Tuple{pickItems(r, v.items, from, to, step)}
	}
	r.defined(x)
	r.fail("slicing a %s is invalid or not supported", typeName(x))
	return nil
}

// absentBound is the value of an omitted slice bound.
const absentBound = -maxNumber - 1

// substring returns the characters [from, to) of s. Negative bounds count from the end.
func substring(r *run, s str, from, to int) str {
	start, end := 0, len(s.s)
	if from != absentBound {
		start = runeOffset(r, s.s, from)
	}
	if to != absentBound {
		end = runeOffset(r, s.s, to)
	}
	return s.cut(start, max(start, end))
}

// pickItems returns the items of a slice. As in Python, bounds are clipped to the range of the
// step.
func pickItems(r *run, items []any, from, to, step int) []any {
	n := len(items)
	low, high := 0, n
	first, last := low, high
	if step < 0 {
		low, high = -1, n-1
		first, last = high, low
	}
	clip := func(i, otherwise int) int {
		switch {
		case i == absentBound:
			return otherwise
		case i < 0:
			i += n
		}
		return max(low, min(i, high))
	}
	from, to = clip(from, first), clip(to, last)
	if step == 1 {
		return items[from:max(from, to):max(from, to)]
	}
	out := make([]any, 0, max(0, (to-from)/step+1))
	r.charge(16 * cap(out))
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		r.tick(1)
		out = append(out, items[i])
	}
	return out
}
