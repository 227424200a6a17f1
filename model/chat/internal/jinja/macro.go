package jinja

import "slices"

// macro is a macro with the scope in which it was defined.
type macro struct {
	*macroDef
	home *scope
}

func (r *run) macro(m *macroDef) *macro {
	r.charge(24)
	return &macro{m, r.scope}
}

func (s *macroStmt) exec(r *run) flow {
	r.scope.set(s.name.id, r.macro(s.def))
	return onward
}

func (s *callStmt) exec(r *run) flow {
	r.line = s.line
	f := r.eval(s.call.f)
	a := *r.args("", &s.call.args)
	r.line = s.line
	r.failIf(a.find("caller") >= 0, "the argument caller is given twice")
	a.names = append(slices.Clip(a.names), lit("caller"))
	a.named = append(a.named, r.macro(s.body))
	v := r.invoke(f, &a)
	r.line = s.line
	r.print(v)
	return onward
}

func (s *generationStmt) exec(r *run) flow {
	r.out.write(r.invoke(r.macro(s.body), &args{}).(str))
	return onward
}

// call binds arguments as Jinja2's Macro does, which differs from Python's functions.
func (m *macro) call(r *run, a *args) (text str) {
	r.within(m.body.frame, m.home, func() {
		m.bind(r, a)
		for i, p := range m.params {
			v := r.scope.find(p.id)
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

// bind sets the parameters of a macro. Those without an argument are missing.
func (m *macro) bind(r *run, a *args) {
	used := make([]bool, len(a.names))
	set := func(p *name, v any) {
		if i := a.find(p.text); i >= 0 {
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
			r.set(rest, n, a.named[i])
		}
	}
	if m.kwargs != nil {
		r.scope.set(m.kwargs.id, rest)
	}
	more := a.pos[min(len(a.pos), len(m.params)):]
	if m.varargs != nil {
		r.scope.set(m.varargs.id, &Tuple{more})
	} else if len(more) > 0 {
		r.fail("macro %q takes not more than %d argument(s)", m.label, len(m.params))
	}
}
