package jinja

import "slices"

func (e *literal) eval(*run) any { return e.value }

func (e *name) eval(r *run) any {
	s := r.scope
	for range e.hops {
		s = s.parent
	}
	v := s.slots[e.slot]
	if _, unset := v.(missing); unset {
		return undefinedName(e.id)
	}
	return v
}

func (e *attrExpr) eval(r *run) any {
	x := r.eval(e.x)
	r.line = e.line
	return r.attr(x, e.name)
}

func (e *itemExpr) eval(r *run) any {
	x, key := r.eval(e.x), r.eval(e.key)
	r.line = e.line
	return r.item(x, key)
}

func (e *callExpr) eval(r *run) any {
	f := r.eval(e.f)
	a := r.args("", &e.args)
	r.line = e.line
	return r.invoke(f, a)
}

func (e *filterExpr) eval(r *run) any {
	return e.apply(r, r.eval(e.x))
}

// apply is the filter's result for x.
func (e *filterExpr) apply(r *run, x any) any {
	a := r.args(e.name, &e.args)
	if r.line = e.line; e.f == nil {
		r.noFilter(e.name)
	}
	return e.f(r, x, a)
}

// applyTo is the result of a chain of filters for the text of a body.
func (e *filterExpr) applyTo(r *run, text any) any {
	if before, ok := e.x.(*filterExpr); ok {
		text = before.applyTo(r, text)
	}
	return e.apply(r, text)
}

func (r *run) noFilter(name string) {
	if unsupportedFilters[name] {
		r.fail("the filter %q is not supported", name)
	}
	r.fail("unknown filter %q", name)
}

func (e *testExpr) eval(r *run) any {
	x := r.eval(e.x)
	a := r.args(e.name, &e.args)
	if r.line = e.line; e.f == nil {
		r.fail("unknown test %q", e.name)
	}
	return e.f(r, x, a)
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

func (e *compareExpr) eval(r *run) any {
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

func (e *unaryExpr) eval(r *run) any {
	x := r.eval(e.x)
	r.line = e.line
	return r.unary(e.negative, x)
}

func (e *binaryExpr) eval(r *run) any {
	x, y := r.eval(e.l), r.eval(e.r)
	r.line = e.line
	return r.binary(e.op, x, y)
}

func (e *concatExpr) eval(r *run) any {
	var small [8]str
	parts := small[:0]
	for _, part := range e.parts {
		v := r.eval(part)
		r.line = e.line
		parts = append(parts, r.text(v))
	}
	if len(parts) == 2 {
		return r.concat(parts[0], parts[1])
	}
	return r.join(str{}, parts)
}

func (e *listExpr) eval(r *run) any { return r.list(r.evalAll(e.items)) }

func (e *tupleExpr) eval(r *run) any { return &Tuple{items: r.evalAll(e.items)} }

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

// absent stands for an argument that was not given.
type absent struct{}

func (r *run) args(of string, in *arguments) *args {
	if len(in.pos) == 0 && len(in.names) == 0 && in.star == nil && in.double == nil {
		r.noArgs.of = of
		return &r.noArgs
	}
	a := &args{of, r.evalAll(in.pos), in.names, r.evalAll(in.named)}
	if in.star != nil {
		a.pos = append(a.pos, r.items(r.eval(in.star))...)
		r.charge(16 * len(a.pos))
	}
	if in.double != nil {
		d, ok := r.eval(in.double).(*Dict)
		if !ok {
			r.fail("the argument after ** must be a mapping")
		}
		r.charge(32 * len(d.entries))
		a.names = slices.Clip(a.names)
		for _, e := range d.entries {
			k, ok := e.key.(str)
			if !ok {
				r.fail("keywords must be strings")
			}
			if _, twice := a.find(k.s); twice {
				r.fail("got multiple values for keyword argument %q", k.s)
			}
			a.names, a.named = append(a.names, k), append(a.named, e.value)
		}
	}
	return a
}

func (a *args) find(name string) (int, bool) {
	for i, n := range a.names {
		if n.s == name {
			return i, true
		}
	}
	return 0, false
}

// none fails if there are arguments.
func (r *run) none(a *args) {
	if len(a.pos) > 0 || len(a.names) > 0 {
		r.fail("%s takes no arguments", a.of)
	}
}

// take sorts arguments by parameter. The first required ones must be there.
func (r *run) take(a *args, required int, params ...string) []any {
	if len(a.pos) > len(params) {
		r.fail("%s takes at most %d arguments, %d were given", a.of, len(params), len(a.pos))
	}
	out := make([]any, len(params))
	used := copy(out, a.pos)
	for i := used; i < len(out); i++ {
		out[i] = absent{}
		if j, ok := a.find(params[i]); ok {
			out[i] = a.named[j]
			used++
		}
		if out[i] == any(absent{}) && i < required {
			r.fail("%s misses the argument %q", a.of, params[i])
		}
	}
	if used < len(a.pos)+len(a.names) {
		r.fail("%s got an unexpected or repeated keyword argument", a.of)
	}
	return out
}

// positional is take for functions that Python gives no keywords.
func (r *run) positional(a *args, required, most int) []any {
	if len(a.names) > 0 {
		r.fail("%s takes no keyword arguments", a.of)
	}
	if len(a.pos) < required || len(a.pos) > most {
		r.fail("%s takes from %d to %d arguments, %d were given", a.of, required, most, len(a.pos))
	}
	out := make([]any, most)
	for i := copy(out, a.pos); i < most; i++ {
		out[i] = absent{}
	}
	return out
}

func given(v any) bool {
	_, not := v.(absent)
	return !not
}

// maxNumber bounds widths and counts.
const maxNumber = 1 << 31

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

func (r *run) flag(v any, otherwise bool) bool {
	if !given(v) {
		return otherwise
	}
	return r.truth(v)
}

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
