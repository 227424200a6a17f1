package jinja

// loop is the variable loop inside {% for %}.
type loop struct {
	stmt       *forStmt
	home       *scope
	next       func() (any, bool)
	depth      int
	index      int // from 0
	prev, item any
	ahead      []any // items already read from next
	count      int   // of items; -1 if not known yet
}

func (s *forStmt) exec(r *run) flow {
	over := r.eval(s.iter)
	r.line = s.line
	return runLoop(r, s, r.scope, over, 0)
}

func runLoop(r *run, s *forStmt, home *scope, over any, depth int) (how flow) {
	l := &loop{stmt: s, home: home, next: iterate(r, over), depth: depth, index: -1, count: -1}
	if q, ok := over.(sequence); s.cond != nil {
		l.next = chosen(r, s, home, l.next)
	} else if ok {
		l.count = q.length(r)
	}
	finished := false // an iteration reached the end of the body
	for how != broken {
		r.tick(1)
		item, ok := l.peek()
		if !ok {
			break
		}
		l.ahead = l.ahead[1:]
		l.index++
		l.prev, l.item = l.item, item
		r.line = s.line
		r.within(s.body.frame, home, func() {
			r.assign(s.target, item)
			r.scope.set(s.loop, l)
			how = r.exec(s.body.stmts)
		})
		finished = finished || how == onward
	}
	how = onward
	if !finished && s.other.frame != nil {
		r.within(s.other.frame, home, func() { how = r.exec(s.other.stmts) })
	}
	return how
}

// chosen returns the items for which the condition of a loop is true.
func chosen(r *run, s *forStmt, home *scope, next func() (any, bool)) func() (any, bool) {
	return func() (any, bool) {
		for {
			item, ok := next()
			if !ok {
				return nil, false
			}
			r.within(s.condFrame, home, func() {
				r.assign(s.target, item)
				ok = truth(r, r.eval(s.cond))
			})
			if ok {
				return item, true
			}
		}
	}
}

// peek returns the next item without consuming it.
func (l *loop) peek() (any, bool) {
	if len(l.ahead) == 0 {
		item, ok := l.next()
		if !ok {
			return nil, false
		}
		l.ahead = []any{item}
	}
	return l.ahead[0], true
}

func (l *loop) length(r *run) int {
	if l.count < 0 {
		for item, more := l.next(); more; item, more = l.next() {
			r.charge(32)
			l.ahead = append(l.ahead, item)
		}
		l.count = l.index + 1 + len(l.ahead)
	}
	return l.count
}

func (l *loop) attr(r *run, key string) (v any, ok bool) {
	rebuilt := l.stmt.cond != nil && l.stmt.target.name == nil // Jinja2 turns these items into tuples
	r.failIf(key == "changed" || rebuilt && (key == "previtem" || key == "nextitem"),
		"loop.%s is not supported in this loop", key)
	switch key {
	case "index":
		return int64(l.index + 1), true
	case "index0":
		return int64(l.index), true
	case "first":
		return l.index == 0, true
	case "last":
		_, more := l.peek()
		return !more, true
	case "length":
		return int64(l.length(r)), true
	case "revindex":
		return int64(l.length(r) - l.index), true
	case "revindex0":
		return int64(l.length(r) - l.index - 1), true
	case "depth":
		return int64(l.depth + 1), true
	case "depth0":
		return int64(l.depth), true
	case "previtem":
		if l.index == 0 {
			return &Undefined{hint: "there is no previous item"}, true
		}
		return l.prev, true
	case "nextitem":
		if v, ok = l.peek(); !ok {
			v = &Undefined{hint: "there is no next item"}
		}
		return v, true
	case "cycle":
		return &function{"loop.cycle", func(r *run, a *args) any {
			r.failIf(len(a.pos) == 0, "no items for cycling given")
			return a.pos[l.index%len(a.pos)]
		}}, true
	}
	return nil, false
}

// recurse is loop(items): it runs the body of a recursive loop over other items.
func (l *loop) recurse(r *run, a *args) any {
	r.failIf(!l.stmt.recursive, "the loop is not recursive: write {%% for ... recursive %%}")
	over := takeArgs(r, a, 1, "iterable")[0]
	return r.capture(func() { runLoop(r, l.stmt, l.home, over, l.depth+1) })
}
