package jinja

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

// enterFrame makes the scope of a frame inside parent.
func (r *run) enterFrame(f *frame, parent *scope) *scope {
	r.charge(40 + 16*len(f.loads))
	s := &scope{parent, make([]any, len(f.loads))}
	for i := range f.loads {
		switch l := &f.loads[i]; l.kind {
		case fromOuter:
			from := parent
			for range l.hops {
				from = from.parent
			}
			s.slots[i] = from.slots[l.slot]
		case fromCaller:
			s.slots[i] = r.fromCaller(l.name)
		default:
			s.slots[i] = missing{}
		}
	}
	return s
}

func (r *run) fromCaller(id string) any {
	if v, ok := r.vars.Get(id); ok {
		return v
	}
	if f, ok := globals[id]; ok {
		return f
	}
	if id == "lipsum" {
		r.fail("the function lipsum is not supported")
	}
	return missing{}
}

func (s *textStmt) exec(r *run) flow {
	r.out.raw(s.text.s)
	return onward
}

func (s *outStmt) exec(r *run) flow {
	r.line = s.line
	v := r.eval(s.x)
	r.line = s.line
	switch v := v.(type) {
	case str:
		r.out.write(v)
	default:
		r.out.write(r.text(v))
	}
	return onward
}

func (s *ifStmt) exec(r *run) flow {
	for i, test := range s.tests {
		if r.truth(r.eval(test)) {
			return r.exec(s.bodies[i])
		}
	}
	return r.exec(s.other)
}

func (s *setStmt) exec(r *run) flow {
	v := r.eval(s.x)
	r.line = s.line
	r.assign(s.target, v)
	return onward
}

// inner captures what a body prints in a frame of its own.
func (r *run) inner(f *frame, body []stmt, then func(text str)) flow {
	var how flow
	r.within(r.enterFrame(f, r.scope), func() {
		text := r.capture(func() { how = r.exec(body) })
		if how == onward {
			then(text)
		}
	})
	return how
}

func (s *setBlockStmt) exec(r *run) flow {
	var v any
	how := r.inner(s.frame, s.body, func(text str) {
		if v = text; s.filters != nil {
			v = s.filters.applyTo(r, v)
		}
	})
	if how == onward {
		r.line = s.line
		r.assign(s.target, v)
	}
	return how
}

func (s *filterStmt) exec(r *run) flow {
	return r.inner(s.frame, s.body, func(text str) {
		v := s.filters.applyTo(r, text)
		r.line = s.line
		r.print(v)
	})
}

// print prints what must be a string already.
func (r *run) print(v any) {
	text, ok := v.(str)
	if !ok {
		r.fail("expected str instance, %s found", typeName(v))
	}
	r.out.write(text)
}

func (s *withStmt) exec(r *run) flow {
	inner := r.enterFrame(s.frame, r.scope)
	for i, t := range s.targets {
		v := r.eval(s.values[i])
		r.line = s.line
		r.within(inner, func() { r.assign(t, v) })
	}
	var f flow
	r.within(inner, func() { f = r.exec(s.body) })
	return f
}

func (breakStmt) exec(*run) flow { return broken }

func (continueStmt) exec(*run) flow { return continued }

func (r *run) assign(t target, v any) {
	switch {
	case t.multi:
		r.defined(v)
		items := r.items(v)
		if len(items) != len(t.tuple) {
			r.fail("cannot unpack %d values into %d names", len(items), len(t.tuple))
		}
		for i, x := range t.tuple {
			r.assign(x, items[i])
		}
	case t.attr != "":
		ns, ok := t.name.eval(r).(*namespace)
		if !ok {
			r.fail("cannot assign attribute on non-namespace object")
		}
		r.nameable(t.attr)
		r.charge(entrySize)
		ns.vars.Set(t.attr, v)
	default:
		r.scope.slots[t.name.slot] = v
	}
}

// nameable fails for the names that transformers keeps out of a namespace.
func (r *run) nameable(attr string) {
	if attr != "" && attr[0] == '_' {
		r.fail("a namespace cannot have an attribute that begins with an underscore: %q", attr)
	}
}
