package jinja

import "slices"

func (r *run) exec(body []stmt) flow {
	r.deeper()
	f := onward
	for _, s := range body {
		r.tick(1)
		if f = s.exec(r); f != onward {
			break
		}
	}
	r.depth--
	return f
}

// capture returns the output of f.
func (r *run) capture(f func()) str {
	outer := r.out
	r.out = &builder{r: r}
	f()
	text := r.out.str()
	r.out = outer
	return text
}

func (s *textStmt) exec(r *run) flow {
	r.out.raw(s.text)
	return onward
}

func (s *outStmt) exec(r *run) flow {
	r.line = s.line
	v := r.eval(s.x)
	r.line = s.line
	r.out.write(softText(r, v))
	return onward
}

func (s *ifStmt) exec(r *run) flow {
	for i, body := range s.bodies {
		if i == len(s.tests) || truth(r, r.eval(s.tests[i])) {
			return r.exec(body)
		}
	}
	return onward
}

func (s *setStmt) exec(r *run) flow {
	v := r.eval(s.x)
	r.line = s.line
	r.assign(s.target, v)
	return onward
}

func (s *setBlockStmt) exec(r *run) (how flow) {
	var v any
	r.within(s.body.frame, r.scope, func() {
		v = r.capture(func() { how = r.exec(s.body.stmts) })
		if how == onward && s.filters != nil {
			v = s.filters.applyTo(r, v)
		}
	})
	switch r.line = s.line; {
	case how != onward:
	case s.prints:
		printText(r, v)
	default:
		r.assign(s.target, v)
	}
	return how
}

// printText prints v, which must be a string.
func printText(r *run, v any) {
	text, ok := v.(str)
	r.failIf(!ok, "expected str instance, %s found", typeName(v))
	r.out.write(text)
}

func (s *withStmt) exec(r *run) (how flow) {
	values := r.evalAll(s.values)
	r.line = s.line
	r.within(s.body.frame, r.scope, func() {
		for i, t := range s.targets {
			r.assign(t, values[i])
		}
		how = r.exec(s.body.stmts)
	})
	return how
}

func (f flow) exec(*run) flow { return f }

// macro is a macro and the scope that defines it.
type macro struct {
	*macroDef
	home *scope
}

func (s *macroStmt) exec(r *run) flow {
	r.charge(64)
	r.scope.set(s.name.id, &macro{s.def, r.scope})
	return onward
}

func (s *callStmt) exec(r *run) flow {
	r.line = s.line
	f, a := any(&macro{s.body, r.scope}), args{}
	if s.call != nil {
		a = *evalArgs(r, "", &s.call.args)
		r.failIf(findKeyword(r, &a, "caller") >= 0, "the argument caller is given twice")
		a.names, a.named = append(slices.Clip(a.names), lit("caller")), append(a.named, f)
		f = r.eval(s.call.f)
	}
	v := r.invoke(f, &a)
	r.line = s.line
	printText(r, v)
	return onward
}

// call binds arguments by the rules of Jinja2's Macro, which differ from those of a Python call.
func (m *macro) call(r *run, a *args) (text str) {
	r.within(m.body.frame, m.home, func() {
		m.bind(r, a)
		for i, p := range m.params {
			v := r.variable(p.id)
			if _, unset := (*v).(missing); !unset {
				continue
			}
			if j := i - (len(m.params) - len(m.defaults)); j >= 0 {
				r.scope.set(p.id, r.eval(m.defaults[j]))
			} else {
				*v = &Undefined{hint: "parameter '" + p.text + "' was not provided"}
			}
		}
		text = r.capture(func() { r.exec(m.body.stmts) })
	})
	return text
}

// bind sets a macro's parameters. Parameters without an argument are missing.
func (m *macro) bind(r *run, a *args) {
	used := make([]bool, len(a.names))
	set := func(p *name, v any) {
		if i := findKeyword(r, a, p.text); i >= 0 {
			used[i], v = true, a.named[i]
		}
		r.scope.set(p.id, v)
	}
	for i, p := range m.params {
		if i < len(a.pos) {
			r.scope.set(p.id, a.pos[i])
		} else {
			set(p, missing{})
		}
	}
	if m.caller != nil {
		set(m.caller, &Undefined{hint: "No caller defined"})
	}
	rest := NewDict()
	for i, n := range a.names {
		if !used[i] {
			r.failIf(m.kwargs == nil, "macro %q takes no keyword argument %q", m.label, n.s)
			setItem(r, rest, n, a.named[i])
		}
	}
	if m.kwargs != nil {
		r.scope.set(m.kwargs.id, rest)
	}
	more := a.pos[min(len(a.pos), len(m.params)):]
	if m.varargs != nil {
		r.scope.set(m.varargs.id, &Tuple{more})
	} else if len(more) > 0 {
		r.fail("macro %q takes at most %d argument(s)", m.label, len(m.params))
	}
}

// scope holds the variables of a template, a loop iteration, a macro call and so on.
type scope struct {
	parent *scope
	vars   []variable
}

type variable struct {
	id    int
	value any
}

// frame is the parser's record of a scope. In Jinja2, a name that a scope assigns is local to the
// whole scope and undefined until the assignment, even if an outer variable has the same name. A
// name that is read first, or assigned within {% if %}, is not local.
type frame struct {
	parent *frame
	seen   map[string]bool // names that are read or assigned
	unset  []*name         // local names, undefined at entry
}

// knows reports whether f or an enclosing frame has a variable of that name.
func (f *frame) knows(text string) bool {
	return f != nil && (f.seen[text] || f.parent.knows(text))
}

// variable returns the innermost variable with an id, or nil.
func (r *run) variable(id int) *any {
	for s := r.scope; s != nil; s = s.parent {
		r.tick(len(s.vars) / 64)
		for i := range s.vars {
			if s.vars[i].id == id {
				return &s.vars[i].value
			}
		}
	}
	return nil
}

// set assigns a variable in s, not in a parent.
func (s *scope) set(id int, v any) {
	for i := range s.vars {
		if s.vars[i].id == id {
			s.vars[i].value = v
			return
		}
	}
	s.vars = append(s.vars, variable{id, v})
}

// within runs f in a new scope whose parent is parent.
func (r *run) within(in *frame, parent *scope, f func()) {
	r.charge(128 + 24*len(in.unset))
	s := &scope{parent, make([]variable, 0, 2+len(in.unset))}
	for _, n := range in.unset {
		s.vars = append(s.vars, variable{n.id, missing{}})
	}
	outer := r.scope
	r.scope = s
	f()
	r.scope = outer
}

func (e *name) eval(r *run) any {
	v := r.variable(e.id)
	if v == nil {
		return callerVariable(r, e.text)
	}
	if _, unset := (*v).(missing); unset {
		return lacks(absent{}, lit(e.text))
	}
	return *v
}

// callerVariable returns the caller's variable of a name, or else the builtin.
func callerVariable(r *run, text string) any {
	if v, ok := r.vars.Get(text); ok {
		return v
	}
	if f, ok := globals[text]; ok {
		return f
	}
	known := text == "cycler" || text == "joiner" || text == "lipsum"
	r.failIf(known, "the function %s is not supported", text)
	return lacks(absent{}, lit(text))
}

func (r *run) assign(t target, v any) {
	switch {
	case t.name == nil:
		r.defined(v)
		items := itemsOf(r, v)
		n := len(t.tuple)
		r.failIf(len(items) != n, "cannot unpack %d values into %d names", len(items), n)
		for i, x := range t.tuple {
			r.assign(x, items[i])
		}
	case t.attr != "":
		ns, ok := t.name.eval(r).(*namespace)
		r.failIf(!ok, "cannot assign attribute on non-namespace object")
		checkName(r, t.attr)
		r.charge(entrySize)
		ns.vars.Set(t.attr, v)
	default:
		r.charge(48)
		r.tick(len(r.scope.vars) / 64)
		r.scope.set(t.name.id, v)
	}
}

// checkName fails if transformers does not allow attr in a namespace.
func checkName(r *run, attr string) {
	hidden := attr != "" && attr[0] == '_'
	r.failIf(hidden, "a namespace attribute cannot begin with an underscore: %q", attr)
}
