package jinja

// loop is the name loop inside {% for %}. The condition of a loop is asked when the next item is needed, not before: the body may have
// changed a namespace since.
type loop struct {
	stmt    *forStmt
	home    *scope
	items   []any // still to come, before the condition
	depth   int
	index   int // from 0
	prev    any
	item    any
	ahead   []any // items that passed the condition already
	changed []any
}

func (r *run) execFor(s *forStmt, depth int) {
	r.runLoop(s, r.scope, r.eval(s.iter), depth)
}

func (r *run) runLoop(s *forStmt, home *scope, over any, depth int) {
	l := &loop{stmt: s, home: home, depth: depth, items: r.items(over), index: -1}
	l.prev = &Undefined{"there is no previous item"}
	whole := false // Jinja2 runs the else part unless some turn reached the end of the body, break and continue or not
	for {
		r.tick(1)
		item, ok := l.next(r)
		if !ok {
			break
		}
		if l.index++; l.index > 0 {
			l.prev = l.item
		}
		l.item = item
		var f flow
		r.within(home, func() {
			r.line = s.line
			r.assign(s.target, item)
			r.scope.vars["loop"] = l
			f = r.exec(s.body)
		})
		if f == broken {
			break
		}
		whole = whole || f == onward
	}
	if !whole {
		r.within(home, func() { r.exec(s.other) })
	}
}

// next takes the next item.
func (l *loop) next(r *run) (any, bool) {
	if len(l.ahead) == 0 && !l.look(r) {
		return nil, false
	}
	item := l.ahead[0]
	l.ahead = l.ahead[1:]
	return item, true
}

// look moves one more item that passes the condition into ahead.
func (l *loop) look(r *run) bool {
	for len(l.items) > 0 {
		item := l.items[0]
		l.items = l.items[1:]
		if l.stmt.cond != nil {
			pass := false
			r.within(l.home, func() {
				r.assign(l.stmt.target, item)
				pass = truth(r.eval(l.stmt.cond))
			})
			if !pass {
				continue
			}
		}
		l.ahead = append(l.ahead, item)
		return true
	}
	return false
}

func (l *loop) length(r *run) int {
	for l.look(r) {
		r.tick(1)
	}
	return l.index + 1 + len(l.ahead)
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
		return len(l.ahead) == 0 && !l.look(r), true
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
		return l.prev, true
	case "nextitem":
		if len(l.ahead) > 0 || l.look(r) {
			return l.ahead[0], true
		}
		return &Undefined{"there is no next item"}, true
	case "cycle":
		return &function{name: "loop.cycle", call: func(r *run, a args) any {
			if len(a.pos) == 0 {
				r.fail("no items for cycling given")
			}
			return a.pos[l.index%len(a.pos)]
		}}, true
	case "changed":
		return &function{name: "loop.changed", call: func(r *run, a args) any {
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
func (l *loop) recurse(r *run) *function {
	if !l.stmt.recursive {
		r.fail("the loop is not recursive: write {%% for ... recursive %%}")
	}
	return &function{name: "loop", call: func(r *run, a args) any {
		over := r.take(a, 1, "iterable")[0]
		return r.capture(func() { r.runLoop(l.stmt, l.home, over, l.depth+1) })
	}}
}
