package jinja

// loop is the variable loop inside {% for %}.
type loop struct {
	stmt    *forStmt
	home    *scope
	over    any // nil if it has no length or a condition chooses from it
	next    func() (any, bool)
	depth   int
	index   int // from 0
	prev    any
	item    any
	ahead   []any // items that have been taken from next already
	changed []any
	count   int // -1 until it is known
}

func (s *forStmt) exec(r *run) flow {
	over := r.eval(s.iter)
	r.line = s.line
	return r.loop(s, r.scope, over, 0)
}

func (r *run) loop(s *forStmt, home *scope, over any, depth int) flow {
	l := &loop{stmt: s, home: home, depth: depth, index: -1, count: -1}
	l.next = r.iterate(over)
	if s.cond != nil {
		l.next = r.chosen(s, home, l.next)
	} else {
		l.over = over
	}
	finished := false // some turn reached the end of the body
	for {
		r.tick(1)
		item, ok := l.take()
		if !ok {
			break
		}
		l.index++
		l.prev, l.item = l.item, item
		r.line = s.line
		how := onward
		r.within(r.enterFrame(s.bodyFrame, home), func() {
			r.assign(s.target, item)
			r.scope.slots[loopSlot] = l
			how = r.exec(s.body)
		})
		if how == broken {
			break
		}
		finished = finished || how == onward
	}
	if finished || len(s.other) == 0 {
		return onward
	}
	how := onward
	r.within(r.enterFrame(s.elses, home), func() { how = r.exec(s.other) })
	return how
}

// loopSlot is where a loop's frame keeps the variable loop.
const loopSlot = 0

// chosen filters items by the condition of a loop.
func (r *run) chosen(s *forStmt, home *scope, next func() (any, bool)) func() (any, bool) {
	var inner *scope
	return func() (any, bool) {
		if inner == nil {
			inner = r.enterFrame(s.condFrame, home)
		}
		for {
			r.tick(1)
			item, ok := next()
			if !ok {
				return nil, false
			}
			pass := false
			r.within(inner, func() {
				r.assign(s.condTarget, item)
				pass = r.truth(r.eval(s.cond))
			})
			if pass {
				return item, true
			}
		}
	}
}

func (l *loop) take() (any, bool) {
	if len(l.ahead) > 0 {
		item := l.ahead[0]
		l.ahead = l.ahead[1:]
		return item, true
	}
	return l.next()
}

// peek returns the item after this one.
func (l *loop) peek() (any, bool) {
	if len(l.ahead) == 0 {
		item, ok := l.next()
		if !ok {
			return nil, false
		}
		l.ahead = append(l.ahead, item)
	}
	return l.ahead[0], true
}

func (l *loop) length(r *run) int {
	if l.count >= 0 {
		return l.count
	}
	n, ok := 0, false
	if l.over != nil {
		n, ok = r.length(l.over)
	}
	if !ok {
		for item, more := l.next(); more; item, more = l.next() {
			r.charge(32)
			l.ahead = append(l.ahead, item)
		}
		n = l.index + 1 + len(l.ahead)
	}
	l.count = n
	return n
}

func (l *loop) attr(r *run, key string) (any, bool) {
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
		if item, more := l.peek(); more {
			return item, true
		}
		return &Undefined{hint: "there is no next item"}, true
	case "cycle":
		return &function{name: "loop.cycle", call: func(r *run, a *args) any {
			if len(a.pos) == 0 {
				r.fail("no items for cycling given")
			}
			return a.pos[l.index%len(a.pos)]
		}}, true
	case "changed":
		return &function{name: "loop.changed", call: func(r *run, a *args) any {
			if l.changed != nil && r.equalItems(l.changed, a.pos) {
				return false
			}
			l.changed = append([]any{}, a.pos...)
			return true
		}}, true
	}
	return nil, false
}

// recurse is loop(items) in a recursive loop: the body again, over other items.
func (l *loop) recurse(r *run, a *args) any {
	if !l.stmt.recursive {
		r.fail("the loop is not recursive: write {%% for ... recursive %%}")
	}
	over := r.take(a, 1, "iterable")[0]
	outer := r.scope
	text := r.capture(func() { r.loop(l.stmt, l.home, over, l.depth+1) })
	r.scope = outer
	return text
}
