package jinja

import "slices"

// macro is a macro with the scope in which it was defined.
type macro struct {
	*macroDef
	name string
	home *scope
}

func (r *run) macro(m *macroDef) *macro {
	r.charge(48)
	return &macro{m, m.label, r.scope}
}

func (s *macroStmt) exec(r *run) flow {
	r.scope.slots[s.name.slot] = r.macro(&s.macroDef)
	return onward
}

func (s *callStmt) exec(r *run) flow {
	r.line = s.line
	caller := r.macro(&s.body)
	f := r.eval(s.call.f)
	a := *r.args("", &s.call.args)
	r.line = s.line
	if _, twice := a.find("caller"); twice {
		r.fail("the argument caller is given twice")
	}
	a.names = append(slices.Clip(a.names), lit("caller"))
	a.named = append(a.named, caller)
	v := r.invoke(f, &a)
	r.line = s.line
	r.print(v)
	return onward
}

func (s *generationStmt) exec(r *run) flow {
	defer r.leave(r.enter())
	r.out.write(r.macro(&s.body).call(r, &args{}))
	return onward
}

// call binds arguments as Jinja2's Macro does, which differs from Python's functions.
func (m *macro) call(r *run, a *args) str {
	s := r.enterFrame(m.frame, m.home)
	pos, used := a.pos, make([]bool, len(a.names))
	named := func(name string) (any, bool) {
		i, ok := a.find(name)
		if !ok {
			return nil, false
		}
		used[i] = true
		return a.named[i], true
	}
	for i, p := range m.params {
		if i < len(pos) {
			s.slots[p.slot] = pos[i]
		} else if v, ok := named(p.id); ok {
			s.slots[p.slot] = v
		}
	}
	if m.caller >= 0 {
		v, ok := named("caller")
		if !ok || v == nil {
			v = &Undefined{hint: "No caller defined"}
		}
		s.slots[m.caller] = v
	}
	rest := NewDict()
	for i, n := range a.names {
		switch {
		case used[i]:
		case m.kwargs >= 0:
			r.charge(entrySize)
			rest.put(hashString(n.s), n, a.named[i])
		default:
			r.fail("macro %q takes no keyword argument %q", m.name, n.s)
		}
	}
	if m.kwargs >= 0 {
		s.slots[m.kwargs] = rest
	}
	more := pos[min(len(pos), len(m.params)):]
	if m.varargs >= 0 {
		s.slots[m.varargs] = &Tuple{items: more}
	} else if len(more) > 0 {
		r.fail("macro %q takes not more than %d argument(s)", m.name, len(m.params))
	}
	var text str
	r.within(s, func() {
		for i, p := range m.params {
			if _, unset := s.slots[p.slot].(missing); !unset {
				continue
			}
			if j := i - (len(m.params) - len(m.defaults)); j >= 0 {
				s.slots[p.slot] = r.eval(m.defaults[j])
			} else {
				s.slots[p.slot] = &Undefined{hint: "parameter '" + p.id + "' was not provided"}
			}
		}
		text = r.capture(func() { r.exec(m.body) })
	})
	return text
}

func (m *macro) attr(key string) (any, bool) {
	switch key {
	case "name":
		if m.name == "" {
			return nil, true
		}
		return lit(m.name), true
	case "arguments":
		names := make([]any, len(m.params))
		for i, p := range m.params {
			names[i] = lit(p.id)
		}
		return &Tuple{items: names}, true
	case "catch_kwargs":
		return m.kwargs >= 0, true
	case "catch_varargs":
		return m.varargs >= 0, true
	case "caller":
		return m.takesCaller, true
	case "explicit_caller":
		return m.ownCaller, true
	}
	return nil, false
}
