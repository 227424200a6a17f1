package jinja

import "maps"

// Names are resolved to variables before rendering, by Jinja2's own rules. They are static: a name
// that a frame assigns is that frame's variable everywhere in the frame, and is undefined before
// it is assigned, even if an outer frame or the caller has a variable of that name, unless it is
// read first or assigned within {% if %}.

// frame is what a template, the body of a loop, a macro and so on have of their own: variables.
type frame struct {
	parent *frame
	slots  map[string]int
	loads  []load // by slot
}

// load says what a variable is when its frame is entered.
type load struct {
	kind       loadKind
	name       string
	hops, slot int // of an outer variable
}

type loadKind uint8

const (
	parameter loadKind = iota // whoever enters the frame sets it
	unset
	fromCaller // the caller's variable of that name, or a builtin
	fromOuter
)

// scope is a frame at run time.
type scope struct {
	parent *scope
	slots  []any
}

// find returns the variable that a name means in f, if it means one.
func (f *frame) find(id string) (hops, slot int, ok bool) {
	for ; f != nil; f = f.parent {
		if slot, ok := f.slots[id]; ok {
			return hops, slot, true
		}
		hops++
	}
	return 0, 0, false
}

// symbols are the names of a frame that are known at some place in it. Those of a branch of an
// {% if %} stand on those before it.
type symbols struct {
	frame  *frame
	base   *symbols
	loads  map[string]load
	stores map[string]bool
}

func newSymbols(f *frame, base *symbols) *symbols {
	return &symbols{f, base, map[string]load{}, map[string]bool{}}
}

// frame makes the frame of the names that analyze finds, inside f.
func (f *frame) inner(analyze func(s *symbols)) *frame {
	in := &frame{parent: f, slots: map[string]int{}}
	s := newSymbols(in, nil)
	analyze(s)
	in.loads = make([]load, len(in.slots))
	for id, slot := range in.slots {
		in.loads[slot] = s.loads[id]
	}
	return in
}

func (s *symbols) define(id string, l load) {
	if _, ok := s.frame.slots[id]; !ok {
		s.frame.slots[id] = len(s.frame.slots)
	}
	s.loads[id] = l
}

// knows reports whether the frame has a variable id at this place.
func (s *symbols) knows(id string) bool {
	for ; s != nil; s = s.base {
		if _, ok := s.loads[id]; ok {
			return true
		}
	}
	return false
}

func (s *symbols) stored(id string) bool {
	for ; s != nil; s = s.base {
		if s.stores[id] {
			return true
		}
	}
	return false
}

// outer returns a load of the enclosing frames' variable id, or otherwise.
func (s *symbols) outer(id string, otherwise load) load {
	if hops, slot, ok := s.frame.parent.find(id); ok {
		return load{kind: fromOuter, hops: hops, slot: slot}
	}
	return otherwise
}

func (s *symbols) param(id string) {
	s.stores[id] = true
	s.define(id, load{kind: parameter})
}

func (s *symbols) store(id string) {
	s.stores[id] = true
	if !s.knows(id) {
		s.define(id, s.outer(id, load{kind: unset}))
	}
}

func (s *symbols) read(e expr) {
	if e == nil {
		return
	}
	if n, ok := e.(*name); ok {
		if _, _, outer := s.frame.parent.find(n.id); !outer && !s.knows(n.id) {
			s.define(n.id, load{kind: fromCaller, name: n.id})
		}
		return
	}
	e.walk(s.read)
}

func (s *symbols) readAll(es []expr) { walkAll(s.read, es...) }

func (s *symbols) assign(t target, store func(id string)) {
	switch {
	case t.multi:
		for _, x := range t.tuple {
			s.assign(x, store)
		}
	case t.attr != "":
		s.read(t.name)
	default:
		store(t.name.id)
	}
}

// body collects the names of statements, without those of the frames inside.
func (s *symbols) body(body []stmt) {
	for _, st := range body {
		switch st := st.(type) {
		case *outStmt:
			s.read(st.x)
		case *ifStmt:
			s.branches(st.tests, st.bodies, st.other)
		case *forStmt:
			s.read(st.iter)
		case *setStmt:
			s.read(st.x)
			s.assign(st.target, s.store)
		case *setBlockStmt:
			s.assign(st.target, s.store)
		case *macroStmt:
			s.store(st.name.id)
		case *callStmt:
			s.read(st.call)
		case *filterStmt:
			s.read(st.filters)
		case *withStmt:
			s.readAll(st.values)
		}
	}
}

func (s *symbols) branches(tests []expr, bodies [][]stmt, other []stmt) {
	s.read(tests[0])
	then, elif, els := newSymbols(s.frame, s), newSymbols(s.frame, s), newSymbols(s.frame, s)
	then.body(bodies[0])
	for i := 1; i < len(tests); i++ {
		elif.branches(tests[i:i+1], bodies[i:i+1], nil)
	}
	els.body(other)
	stores := map[string]bool{}
	for _, branch := range []*symbols{then, elif, els} {
		for id := range branch.stores {
			if !s.stored(id) {
				stores[id] = true
			}
		}
	}
	for _, branch := range []*symbols{then, elif, els} {
		maps.Copy(s.loads, branch.loads)
		maps.Copy(s.stores, branch.stores)
	}
	for id := range stores {
		s.define(id, s.outer(id, load{kind: fromCaller, name: id}))
	}
}

// resolve binds the names of a template and checks its filters and tests.
func resolve(body []stmt) *frame {
	f := (*frame)(nil).inner(func(s *symbols) { s.body(body) })
	f.bindBody(body, false)
	return f
}

// bindBody binds the names of statements. In a soft place, an {% if %}, a filter or test that does
// not exist is an error only when it is reached.
func (f *frame) bindBody(body []stmt, soft bool) {
	for _, st := range body {
		switch st := st.(type) {
		case *outStmt:
			f.bind(st.x, soft)
		case *ifStmt:
			f.bindAll(st.tests, true)
			for _, b := range st.bodies {
				f.bindBody(b, true)
			}
			f.bindBody(st.other, true)
		case *forStmt:
			f.bindFor(st, soft)
		case *setStmt:
			f.bind(st.x, soft)
			f.bindTarget(st.target)
		case *setBlockStmt:
			st.frame = f.inner(func(s *symbols) { s.body(st.body) })
			st.frame.bindBody(st.body, false)
			if st.filters != nil {
				st.frame.bind(st.filters, false)
			}
			f.bindTarget(st.target)
		case *macroStmt:
			f.bindMacro(&st.macroDef, st.name.line)
			f.bind(st.name, false)
		case *callStmt:
			f.bindMacro(&st.body, st.line)
			f.bind(st.call, soft)
		case *generationStmt:
			f.bindMacro(&st.body, st.line)
		case *filterStmt:
			st.frame = f.inner(func(s *symbols) {
				s.body(st.body)
				s.read(st.filters)
			})
			st.frame.bindBody(st.body, false)
			st.frame.bind(st.filters, false)
		case *withStmt:
			f.bindAll(st.values, soft)
			st.frame = f.inner(func(s *symbols) {
				for _, t := range st.targets {
					s.assign(t, s.param)
				}
				s.body(st.body)
			})
			for _, t := range st.targets {
				st.frame.bindTarget(t)
			}
			st.frame.bindBody(st.body, false)
		}
	}
}

func (f *frame) bindFor(st *forStmt, soft bool) {
	f.bind(st.iter, soft)
	st.bodyFrame = f.inner(func(s *symbols) {
		s.param("loop")
		s.assign(st.target, s.param)
		s.body(st.body)
	})
	if st.cond != nil {
		st.condTarget = st.target.clone()
		st.condFrame = f.inner(func(s *symbols) {
			s.assign(st.target, s.param)
			s.read(st.cond)
		})
		st.condFrame.bindTarget(st.condTarget)
		st.condFrame.bind(st.cond, false)
	}
	st.elses = f.inner(func(s *symbols) { s.body(st.other) })
	st.bodyFrame.bindTarget(st.target)
	st.bodyFrame.bindBody(st.body, false)
	st.elses.bindBody(st.other, false)
}

func (t target) clone() target {
	if t.name != nil {
		n := *t.name
		t.name = &n
	}
	out := make([]target, len(t.tuple))
	for i, x := range t.tuple {
		out[i] = x.clone()
	}
	t.tuple = out
	return t
}

func (f *frame) bindTarget(t target) {
	if t.name != nil {
		f.bind(t.name, false)
	}
	for _, x := range t.tuple {
		f.bindTarget(x)
	}
}

func (f *frame) bindMacro(m *macroDef, line int) {
	mentions := m.mentions()
	m.takesCaller = mentions.read&mentionCaller != 0
	has := map[string]bool{}
	for i, p := range m.params {
		has[p.id] = true
		if p.id == "caller" && m.takesCaller && i < len(m.params)-len(m.defaults) {
			failParse(line, "the parameter caller needs a default")
		}
	}
	m.ownCaller = has["caller"]
	special := func(s *symbols, id string, bit uint8) {
		if mentions.read&bit != 0 && !has[id] {
			s.param(id)
		}
	}
	m.frame = f.inner(func(s *symbols) {
		for _, p := range m.params {
			s.param(p.id)
		}
		s.readAll(m.defaults)
		s.body(m.body)
		special(s, "caller", mentionCaller)
		special(s, "kwargs", mentionKwargs)
		special(s, "varargs", mentionVarargs)
	})
	slot := func(id string, bit uint8) int {
		if mentions.read&bit != 0 && !has[id] {
			return m.frame.slots[id]
		}
		return -1
	}
	m.caller, m.kwargs = slot("caller", mentionCaller), slot("kwargs", mentionKwargs)
	m.varargs = slot("varargs", mentionVarargs)
	for _, p := range m.params {
		m.frame.bind(p, false)
	}
	m.frame.bindAll(m.defaults, false)
	m.frame.bindBody(m.body, false)
}

func (f *frame) bindAll(es []expr, soft bool) {
	for _, e := range es {
		f.bind(e, soft)
	}
}

func (f *frame) bind(e expr, soft bool) {
	switch e := e.(type) {
	case *name:
		ok := false
		if e.hops, e.slot, ok = f.find(e.id); !ok {
			failParse(e.line, "the variable %q is not known here", e.id)
		}
		return
	case *filterExpr:
		if e.f = filters[e.name]; e.f == nil && !soft && !unsupportedFilters[e.name] {
			failParse(e.line, "unknown filter %q", e.name)
		}
	case *testExpr:
		if e.f = tests[e.name]; e.f == nil && !soft {
			failParse(e.line, "unknown test %q", e.name)
		}
	case *condExpr:
		soft = true
	}
	e.walk(func(part expr) { f.bind(part, soft) })
}

// mentions are the special names that a macro's body reads and stores. It takes what it reads
// before it is stored.
type mentions struct{ read, stored uint8 }

const (
	mentionCaller uint8 = 1 << iota
	mentionKwargs
	mentionVarargs
)

var mentionBits = map[string]uint8{
	"caller": mentionCaller, "kwargs": mentionKwargs, "varargs": mentionVarargs,
}

func (m *macroDef) mentions() mentions {
	if m.mentioned == nil {
		m.mentioned = &mentions{}
		m.mentioned.body(m.body)
	}
	return *m.mentioned
}

func (m *mentions) expr(e expr) {
	if n, ok := e.(*name); ok {
		m.read |= mentionBits[n.id] &^ m.stored
		return
	}
	e.walk(m.expr)
}

func (m *mentions) target(t target) {
	if t.name != nil && t.attr == "" {
		m.stored |= mentionBits[t.name.id]
	}
	for _, x := range t.tuple {
		m.target(x)
	}
}

func (m *mentions) macro(d *macroDef) {
	for _, p := range d.params {
		m.stored |= mentionBits[p.id]
	}
	walkAll(m.expr, d.defaults...)
	inner := d.mentions()
	m.read |= inner.read &^ m.stored
	m.stored |= inner.stored
}

func (m *mentions) body(body []stmt) {
	for _, st := range body {
		switch st := st.(type) {
		case *outStmt:
			m.expr(st.x)
		case *ifStmt:
			for i, test := range st.tests {
				m.expr(test)
				m.body(st.bodies[i])
			}
			m.body(st.other)
		case *forStmt:
			m.target(st.target)
			m.expr(st.iter)
			m.body(st.body)
			m.body(st.other)
			walkAll(m.expr, st.cond)
		case *setStmt:
			m.target(st.target)
			m.expr(st.x)
		case *setBlockStmt:
			m.target(st.target)
			if st.filters != nil {
				m.expr(st.filters)
			}
			m.body(st.body)
		case *macroStmt:
			m.macro(&st.macroDef)
		case *callStmt:
			m.expr(st.call)
			m.macro(&st.body)
		case *generationStmt:
			m.macro(&st.body)
		case *filterStmt:
			m.body(st.body)
			m.expr(st.filters)
		case *withStmt:
			for _, t := range st.targets {
				m.target(t)
			}
			walkAll(m.expr, st.values...)
			m.body(st.body)
		}
	}
}
