package jinja

// maxRange is the sandbox's bound on range, as in Jinja2.
const maxRange = 100_000

// globals are the functions that a template can call.
func (r *run) globals(strftimeNow func(string) (string, error)) map[string]any {
	g := map[string]any{}
	add := func(name string, f func(r *run, a args) any) { g[name] = &function{name: name, call: f} }
	add("raise_exception", func(r *run, a args) any {
		panic(failure{&RaisedError{r.line, r.str(r.take(a, 1, "message")[0])}})
	})
	add("strftime_now", func(r *run, a args) any {
		s, err := strftimeNow(r.text(a, r.take(a, 1, "format")[0], ""))
		if err != nil {
			r.fail("strftime_now: %v", err)
		}
		r.charge(len(s))
		return s
	})
	add("namespace", func(r *run, a args) any { return &namespace{r.dict(a)} })
	add("dict", func(r *run, a args) any { return r.dict(a) })
	add("range", func(r *run, a args) any {
		v := r.take(a, 1, "start", "stop", "step")
		rg := &rangeOf{0, int64(r.integer(a, v[0], 0)), 1}
		if v[1] != (absent{}) {
			rg.start, rg.stop = rg.stop, int64(r.integer(a, v[1], 0))
		}
		rg.step = int64(r.integer(a, v[2], 1))
		if rg.step == 0 {
			r.fail("range() arg 3 must not be zero")
		}
		if rg.len() > maxRange {
			r.limit("range too big: the sandbox blocks ranges larger than %d", maxRange)
		}
		return rg
	})
	add("joiner", func(r *run, a args) any {
		sep, used := r.text(a, r.take(a, 0, "sep")[0], ", "), false
		return &function{name: "joiner", call: func(*run, args) any {
			if !used {
				used = true
				return ""
			}
			return sep
		}}
	})
	add("cycler", func(r *run, a args) any {
		if len(a.pos) == 0 {
			r.fail("cycler needs at least one item")
		}
		return newCycler(a.pos)
	})
	return g
}

// dict builds from a mapping or pairs, and names.
func (r *run) dict(a args) *Dict {
	d := NewDict()
	if len(a.pos) > 1 {
		r.fail("%s takes at most one argument without a name", a.of)
	}
	for _, from := range a.pos {
		switch from := from.(type) {
		case *Dict:
			r.charge(64 * from.Len())
			from.All(func(k, v any) { d.put(r.hash(k), k, v) })
		default:
			for _, pair := range r.items(from) {
				kv := r.items(pair)
				if len(kv) != 2 {
					r.fail("%s needs pairs of a key and a value", a.of)
				}
				d.put(r.hash(kv[0]), kv[0], kv[1])
			}
		}
	}
	for i, n := range a.names {
		d.Set(n, a.named[i])
	}
	return d
}

// newCycler is an object with next(), reset() and current.
func newCycler(items []any) *namespace {
	at := 0
	c := &namespace{NewDict()}
	c.vars.Set("current", items[0])
	move := func(to int) { at = to % len(items); c.vars.Set("current", items[at]) }
	c.vars.Set("next", &function{name: "cycler.next", call: func(*run, args) any {
		v := items[at]
		move(at + 1)
		return v
	}})
	c.vars.Set("reset", &function{name: "cycler.reset", call: func(*run, args) any { move(0); return nil }})
	return c
}
