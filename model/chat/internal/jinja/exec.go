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

// capture returns what f prints.
func (r *run) capture(f func()) str {
	outer := r.out
	r.out = &builder{r: r}
	f()
	text := r.out.str()
	r.out = outer
	return text
}

// captured runs a block that prints into a text. If it runs to its end, then gets the text while
// the block's scope still holds.
func (r *run) captured(b block, then func(text str)) (how flow) {
	r.within(b.frame, r.scope, func() {
		text := r.capture(func() { how = r.exec(b.stmts) })
		if how == onward {
			then(text)
		}
	})
	return how
}

func (s *textStmt) exec(r *run) flow {
	r.out.raw(s.text)
	return onward
}

func (s *outStmt) exec(r *run) flow {
	r.line = s.line
	v := r.eval(s.x)
	r.line = s.line
	r.out.write(r.soft(v))
	return onward
}

func (s *ifStmt) exec(r *run) flow {
	for i, body := range s.bodies {
		if i == len(s.tests) || r.truth(r.eval(s.tests[i])) {
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

func (s *setBlockStmt) exec(r *run) flow {
	var v any
	how := r.captured(s.body, func(text str) {
		if v = text; s.filters != nil {
			v = s.filters.applyTo(r, v)
		}
	})
	if r.line = s.line; how == onward {
		r.assign(s.target, v)
	}
	return how
}

func (s *filterStmt) exec(r *run) flow {
	return r.captured(s.body, func(text str) {
		v := s.filters.applyTo(r, text)
		r.line = s.line
		r.print(v)
	})
}

// print prints what must be a string already.
func (r *run) print(v any) {
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
