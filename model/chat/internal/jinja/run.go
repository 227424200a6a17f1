package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// Limits bound one rendering. A zero field means the default.
type Limits struct {
	Steps int // evaluated nodes, items walked, and blocks of 64 bytes looked at: some 5 to 20 million a second; default 5 million
	Bytes int // of all values made, garbage included; default 64 MB
	Depth int // of calls and of nested values; default 200
}

func (l Limits) withDefaults() Limits {
	set := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	set(&l.Steps, 5_000_000)
	set(&l.Bytes, 64<<20)
	set(&l.Depth, 200)
	return l
}

// run is one rendering.
type run struct {
	limits Limits
	steps  int
	bytes  int
	depth  int
	line   int
	scope  *scope
	out    *strings.Builder
}

// scope holds the names of a loop's turn, a macro's call, a with. What is assigned in it is gone behind it.
type scope struct {
	vars   map[string]any
	parent *scope
}

// Render runs the template. Its errors are *RenderError and *RaisedError. Variables come first, then strftimeNow as strftime_now.
func (t *Template) Render(vars *Dict, strftimeNow func(format string) (string, error), limits Limits) (text string, err error) {
	r := &run{limits: limits.withDefaults(), line: 1, out: &strings.Builder{}}
	defer func() {
		if p := recover(); p != nil {
			text, err = "", recovered(p)
		}
	}()
	root := &scope{vars: r.globals(strftimeNow)}
	r.scope = &scope{vars: map[string]any{}, parent: root}
	vars.All(func(k, v any) { r.scope.vars[k.(string)] = v })
	r.exec(t.body)
	return r.out.String(), nil
}

// tick counts work.
func (r *run) tick(n int) {
	if r.steps += n; r.steps > r.limits.Steps {
		r.limit("stopped after %d steps: does it loop without end?", r.limits.Steps)
	}
}

// charge counts memory, before it is allocated.
func (r *run) charge(n int) {
	if n < 0 || n > r.limits.Bytes-r.bytes {
		r.limit("stopped at %d MB of text and values", r.limits.Bytes>>20)
	}
	r.bytes += n
	r.tick(n / 64)
}

// enter and leave count depth: defer r.leave(r.enter()).
func (r *run) enter() int {
	if r.depth++; r.depth > r.limits.Depth {
		r.limit("calls or values are nested more than %d deep", r.limits.Depth)
	}
	return r.depth - 1
}

func (r *run) leave(depth int) { r.depth = depth }

func (r *run) write(s string) {
	r.charge(len(s))
	r.out.WriteString(s)
}

// within runs f in a scope of its own.
func (r *run) within(parent *scope, f func()) {
	outer := r.scope
	r.scope = &scope{map[string]any{}, parent}
	f()
	r.scope = outer
}

// capture returns what f prints.
func (r *run) capture(f func()) string {
	outer := r.out
	r.out = &strings.Builder{}
	f()
	text := r.out.String()
	r.out = outer
	return text
}

// flow is how a body ended.
type flow uint8

const (
	onward flow = iota
	broken
	continued
)

func (r *run) exec(body []stmt) flow {
	for _, s := range body {
		r.tick(1)
		switch s := s.(type) {
		case *textStmt:
			r.write(s.text)
		case *outStmt:
			r.line = s.line
			v := r.eval(s.x)
			r.line = s.line
			r.write(r.str(v))
		case *ifStmt:
			if f := r.execIf(s); f != onward {
				return f
			}
		case *forStmt:
			r.line = s.line
			r.execFor(s, 0)
		case *setStmt:
			v := r.eval(s.x)
			r.line = s.line
			r.assign(s.target, v)
		case *setBlockStmt:
			var text any = r.inner(s.body)
			if s.filters != nil {
				text = r.eval(s.filters(&literal{text}))
			}
			r.line = s.line
			r.assign(s.target, text)
		case *macroStmt:
			r.scope.vars[s.name] = r.macro(s.name, &s.sig)
		case *callStmt:
			r.line = s.line
			f := r.eval(s.call.f)
			a := r.args("", s.call.args)
			a.names, a.named = append(a.names, "caller"), append(a.named, r.macro("caller", &s.sig))
			r.write(r.str(r.invoke(f, a)))
		case *filterStmt:
			r.write(r.str(r.eval(s.wrap(&literal{r.inner(s.body)}))))
		case *withStmt:
			values := r.evalAll(s.values)
			var f flow
			r.within(r.scope, func() {
				for i, t := range s.targets {
					r.line = s.line
					r.assign(t, values[i])
				}
				f = r.exec(s.body)
			})
			if f != onward {
				return f
			}
		case *breakStmt:
			return broken
		case *continueStmt:
			return continued
		}
	}
	return onward
}

// inner captures a body that has a scope of its own.
func (r *run) inner(body []stmt) string {
	return r.capture(func() { r.within(r.scope, func() { r.exec(body) }) })
}

func (r *run) execIf(s *ifStmt) flow {
	for i, test := range s.tests {
		if truth(r.eval(test)) {
			return r.exec(s.bodies[i])
		}
	}
	return r.exec(s.other)
}

func (r *run) assign(t target, v any) {
	switch {
	case t.tuple != nil:
		items := r.items(v)
		if len(items) != len(t.tuple) {
			r.fail("%d values cannot be assigned to %d names", len(items), len(t.tuple))
		}
		for i, x := range t.tuple {
			r.assign(x, items[i])
		}
	case t.attr != "":
		ns, ok := r.lookup(&name{t.line, t.id}).(*namespace)
		if !ok {
			r.fail("cannot assign attribute on non-namespace object %q", t.id)
		}
		r.charge(32)
		ns.vars.Set(t.attr, v)
	default:
		r.charge(32)
		r.scope.vars[t.id] = v
	}
}

// args are the evaluated arguments of a call.
type args struct {
	of    string // what is called, for errors
	pos   []any
	names []string
	named []any
}

func (r *run) args(of string, in arguments) args {
	return args{of, r.evalAll(in.pos), slices.Clip(in.names), r.evalAll(in.named)}
}

// absent stands for an argument that was not given.
type absent struct{}

// take sorts arguments by parameter; the first required ones must be there.
func (r *run) take(a args, required int, params ...string) []any {
	if len(a.pos) > len(params) {
		r.fail("%s takes at most %d arguments, %d are given", a.of, len(params), len(a.pos))
	}
	out := make([]any, len(params))
	for i := range out {
		out[i] = absent{}
	}
	copy(out, a.pos)
	for i, n := range a.names {
		j := slices.Index(params, n)
		if j < 0 {
			r.fail("%s has no argument %q", a.of, n)
		}
		if out[j] != (absent{}) {
			r.fail("%s got two values for the argument %q", a.of, n)
		}
		out[j] = a.named[i]
	}
	for i := range required {
		if out[i] == (absent{}) {
			r.fail("%s needs the argument %q", a.of, params[i])
		}
	}
	return out
}

// integer, text and flag read one taken argument, with the value for an absent one.
func (r *run) integer(a args, v any, missing int) int {
	if v == (absent{}) {
		return missing
	}
	i, ok := asInt(v)
	if !ok || int64(int32(i)) != i {
		r.defined(v)
		r.fail("%s needs an integer of 32 bits, not %s", a.of, typeName(v))
	}
	return int(i)
}

func (r *run) text(a args, v any, missing string) string {
	if v == (absent{}) {
		return missing
	}
	s, ok := v.(string)
	if !ok {
		r.defined(v)
		r.fail("%s needs a string, not %s", a.of, typeName(v))
	}
	return s
}

func flag(v any, missing bool) bool {
	if v == (absent{}) {
		return missing
	}
	return truth(v)
}

// macro is a function over the names of the scope in which it is defined.
func (r *run) macro(name string, sig *signature) *function {
	home := r.scope
	return &function{name: name, macro: true, call: func(r *run, a args) any {
		params := map[string]any{}
		extra := NewDict()
		for i, n := range a.names {
			switch {
			case slices.Contains(sig.params, n):
				params[n] = a.named[i]
			case n == "caller" && sig.usesCaller:
				params[n] = a.named[i]
			case sig.usesKwargs:
				extra.Set(n, a.named[i])
			default:
				r.fail("macro %q takes no argument %q", name, n)
			}
		}
		for i, n := range sig.params {
			if i >= len(a.pos) {
				break
			}
			if _, twice := params[n]; twice {
				r.fail("macro %q got two values for the argument %q", name, n)
			}
			params[n] = a.pos[i]
		}
		rest := a.pos[min(len(a.pos), len(sig.params)):]
		if len(rest) > 0 && !sig.usesVarargs {
			r.fail("macro %q takes not more than %d argument(s)", name, len(sig.params))
		}
		return r.capture(func() {
			r.within(home, func() {
				for i, n := range sig.params {
					v, given := params[n]
					switch j := i - (len(sig.params) - len(sig.defaults)); {
					case given:
						r.scope.vars[n] = v
					case j >= 0:
						r.scope.vars[n] = r.eval(sig.defaults[j])
					default:
						r.scope.vars[n] = &Undefined{fmt.Sprintf("parameter '%s' was not provided", n)}
					}
				}
				if sig.usesCaller {
					if _, ok := params["caller"]; !ok {
						params["caller"] = &Undefined{"No caller defined"}
					}
					r.scope.vars["caller"] = params["caller"]
				}
				if sig.usesVarargs {
					r.scope.vars["varargs"] = &Tuple{rest}
				}
				if sig.usesKwargs {
					r.scope.vars["kwargs"] = extra
				}
				r.exec(sig.body)
			})
		})
	}}
}
