package jinja

// maxRange is the sandbox's limit on range.
const maxRange = 100_000

// globals are the functions that a template can call.
var globals = map[string]*function{}

func init() {
	for name, f := range map[string]func(r *run, a *args) any{
		"raise_exception": raiseException, "strftime_now": strftimeNow, "namespace": newNamespace,
		"dict": newDict, "range": newRange, "joiner": newJoiner, "cycler": newCycler,
	} {
		globals[name] = &function{name, f}
	}
}

func raiseException(r *run, a *args) any {
	message := r.take(a, 1, "message")[0]
	panic(failure{&RaisedError{r.line, r.text(message).s}})
}

func strftimeNow(r *run, a *args) any {
	format := r.string(a, r.take(a, 1, "format")[0], "")
	s, err := r.env.Strftime(format.s)
	if err != nil {
		r.fail("strftime_now: %v", err)
	}
	r.charge(len(s))
	if format.c != nil {
		return str{s: s, c: whole}
	}
	return lit(s)
}

func newNamespace(r *run, a *args) any {
	d := NewDict()
	r.fill(d, a)
	for _, e := range d.entries {
		if k, ok := e.key.(str); ok {
			r.nameable(k.s)
		}
	}
	return &namespace{d}
}

func newDict(r *run, a *args) any {
	d := NewDict()
	r.fill(d, a)
	return d
}

// fill sets what Python's dict takes: a mapping or pairs, then keywords.
func (r *run) fill(d *Dict, a *args) {
	if len(a.pos) > 1 {
		r.fail("%s takes at most one argument without a name", a.of)
	}
	for _, from := range a.pos {
		r.defined(from)
		if from, ok := from.(*Dict); ok {
			r.charge(entrySize * len(from.entries))
			d.Merge(from)
			continue
		}
		for _, pair := range r.items(from) {
			kv := r.items(pair)
			if len(kv) != 2 {
				r.fail("%s needs pairs of a key and a value", a.of)
			}
			r.set(d, kv[0], kv[1])
		}
	}
	for i, n := range a.names {
		r.charge(entrySize)
		d.put(hashString(n.s), n, a.named[i])
	}
}

func newRange(r *run, a *args) any {
	v := r.positional(a, 1, 3)
	for _, bound := range v {
		if i, _ := asInt(bound); i < -maxNumber || i >= maxNumber {
			r.fail("range: %d is not supported", i)
		}
	}
	rg := &rangeOf{0, int64(r.integer(a, v[0], 0)), 1}
	if given(v[1]) {
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
}

func newJoiner(r *run, a *args) any {
	v, used := r.take(a, 0, "sep")[0], false
	if !given(v) {
		v = lit(", ")
	}
	return &function{"joiner", func(r *run, a *args) any {
		if r.none(a); !used {
			used = true
			return str{}
		}
		return v
	}}
}

func newCycler(r *run, a *args) any {
	if len(a.pos) == 0 {
		r.fail("at least one item has to be provided")
	}
	at, items := 0, a.pos
	next := &function{"cycler.next", func(*run, *args) any {
		v := items[at]
		at = (at + 1) % len(items)
		return v
	}}
	reset := &function{"cycler.reset", func(*run, *args) any { at = 0; return nil }}
	return &object{"Cycler", func(name string) (any, bool) {
		switch name {
		case "next":
			return next, true
		case "reset":
			return reset, true
		case "current":
			return items[at], true
		}
		return nil, false
	}}
}
