package jinja

import "slices"

func (e *literal) eval(*run) any { return e.value }

func (e *callExpr) eval(r *run) any {
	f := r.eval(e.f)
	a := r.args("", &e.args)
	r.line = e.line
	return r.invoke(f, a)
}

func (e *filterExpr) eval(r *run) any { return e.apply(r, r.eval(e.x)) }

// apply is the filter's result for x.
func (e *filterExpr) apply(r *run, x any) any {
	a := r.args(e.name, &e.args)
	r.line = e.line
	return r.filter(e.name, e.f)(r, x, a)
}

// applyTo is the result of a chain of filters for the text of a body.
func (e *filterExpr) applyTo(r *run, text any) any {
	if before, ok := e.x.(*filterExpr); ok {
		text = before.applyTo(r, text)
	}
	return e.apply(r, text)
}

// filter fails if there is no filter of that name.
func (r *run) filter(name string, f filter) filter {
	if f == nil {
		r.fail("the filter %q does not exist or is not supported", name)
	}
	return f
}

// test fails if there is no test of that name.
func (r *run) test(name string, f test) test {
	if f == nil {
		r.fail("the test %q does not exist", name)
	}
	return f
}

func (e *testExpr) eval(r *run) any {
	x := r.eval(e.x)
	a := r.args(e.name, &e.args)
	r.line = e.line
	return r.test(e.name, e.f)(r, x, a)
}

func (e *notExpr) eval(r *run) any { return !r.truth(r.eval(e.x)) }

func (e *logicExpr) eval(r *run) any {
	l := r.eval(e.l)
	if r.truth(l) == e.and {
		return r.eval(e.r)
	}
	return l
}

func (e *condExpr) eval(r *run) any {
	switch {
	case r.truth(r.eval(e.test)):
		return r.eval(e.then)
	case e.other == nil:
		return &Undefined{hint: "the inline if has no else and its condition is false"}
	}
	return r.eval(e.other)
}

func (e *concatExpr) eval(r *run) any {
	parts := make([]str, len(e.parts))
	for i, part := range e.parts {
		v := r.eval(part)
		r.line = e.line
		parts[i] = r.text(v)
	}
	return r.join(str{}, parts...)
}

func (e *listExpr) eval(r *run) any  { return r.list(r.evalAll(e.items)) }
func (e *tupleExpr) eval(r *run) any { return &Tuple{r.evalAll(e.items)} }

func (e *dictExpr) eval(r *run) any {
	d := NewDict()
	for i, k := range e.keys {
		key, v := r.eval(k), r.eval(e.values[i])
		r.line = e.line
		r.set(d, key, v)
	}
	return d
}

// args are the evaluated arguments of a call.
type args struct {
	of    string // what is called, for errors
	pos   []any
	names []str
	named []any
}

func (r *run) args(of string, in *arguments) *args {
	if len(in.pos) == 0 && len(in.names) == 0 && in.star == nil && in.double == nil {
		r.noArgs.of = of
		return &r.noArgs
	}
	a := &args{of, r.evalAll(in.pos), in.names, r.evalAll(in.named)}
	if in.star != nil {
		more := r.items(r.eval(in.star))
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
		r.failIf(!ok || a.find(k.s) >= 0, "a keyword is not a string or is given twice")
		a.names, a.named = append(a.names, k), append(a.named, e.value)
	}
	return a
}

func (a *args) find(name string) int {
	return slices.IndexFunc(a.names, func(n str) bool { return n.s == name })
}

// none fails if there are arguments.
func (r *run) none(a *args) {
	if len(a.pos) > 0 || len(a.names) > 0 {
		r.fail("%s takes no arguments", a.of)
	}
}

// take sorts arguments by parameter. The first required ones must be there.
func (r *run) take(a *args, required int, params ...string) []any {
	out := make([]any, len(params))
	used := copy(out, a.pos)
	for i := used; i < len(out); i++ {
		out[i] = absent{}
		if j := a.find(params[i]); j >= 0 {
			out[i] = a.named[j]
			used++
		} else if i < required {
			r.fail("%s misses the argument %q", a.of, params[i])
		}
	}
	if used < len(a.pos)+len(a.names) {
		r.fail("%s got too many arguments, or one that it does not know", a.of)
	}
	return out
}

// positional is take for functions that Python gives no keywords.
func (r *run) positional(a *args, required, most int) []any {
	if n := len(a.pos); len(a.names) > 0 || n < required || n > most {
		r.fail("%s takes from %d to %d arguments; keywords or more are not supported", a.of, required, most)
	}
	out := slices.Repeat([]any{absent{}}, most)
	copy(out, a.pos)
	return out
}

func given(v any) bool {
	_, not := v.(absent)
	return !not
}

// set reports whether an argument whose default is None was given another value.
func set(v any) bool { return v != nil && given(v) }

// maxNumber bounds widths and counts.
const maxNumber = 1 << 30

// integer reads an argument that is an integer.
func (r *run) integer(a *args, v any, otherwise int) int {
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

// string reads an argument that is a string.
func (r *run) string(a *args, v any, otherwise string) str {
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

func (r *run) flag(v any) bool { return given(v) && r.truth(v) }

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
