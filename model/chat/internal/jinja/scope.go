package jinja

// scope holds the variables of a template, a turn of a loop, a call of a macro and so on.
type scope struct {
	parent *scope
	vars   []variable
}

type variable struct {
	id    int
	value any
}

// frame is what the parser knows of a scope. In Jinja2 a name that a scope assigns is its variable
// from the beginning, and undefined until then, even if the caller has a variable of that name.
// Names that are read first, or assigned within {% if %}, are not.
type frame struct {
	parent *frame
	seen   map[string]bool // read or assigned
	unset  []*name         // undefined at the beginning
}

// knows reports whether f or a frame around it has a variable of that name.
func (f *frame) knows(text string) bool {
	return f != nil && (f.seen[text] || f.parent.knows(text))
}

// find returns the variable that a name means in s, or nil.
func (s *scope) find(id int) *any {
	for ; s != nil; s = s.parent {
		for i := range s.vars {
			if s.vars[i].id == id {
				return &s.vars[i].value
			}
		}
	}
	return nil
}

// set assigns a variable of s itself.
func (s *scope) set(id int, v any) {
	for i := range s.vars {
		if s.vars[i].id == id {
			s.vars[i].value = v
			return
		}
	}
	s.vars = append(s.vars, variable{id, v})
}

// within runs f in a new scope inside parent.
func (r *run) within(in *frame, parent *scope, f func()) {
	r.charge(128)
	s := &scope{parent, make([]variable, 0, 2+len(in.unset))}
	for _, n := range in.unset {
		s.set(n.id, missing{})
	}
	outer := r.scope
	r.scope = s
	f()
	r.scope = outer
}

func (e *name) eval(r *run) any {
	v := r.scope.find(e.id)
	if v == nil {
		return r.fromCaller(e.text)
	}
	if _, unset := (*v).(missing); unset {
		return lacks(absent{}, lit(e.text))
	}
	return *v
}

// fromCaller is the caller's variable of a name, or a builtin.
func (r *run) fromCaller(text string) any {
	if v, ok := r.vars.Get(text); ok {
		return v
	}
	if f, ok := globals[text]; ok {
		return f
	}
	r.failIf(text == "lipsum" || text == "cycler", "the function %s is not supported", text)
	return lacks(absent{}, lit(text))
}

func (r *run) assign(t target, v any) {
	switch {
	case t.name == nil:
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
		r.failIf(!ok, "cannot assign attribute on non-namespace object")
		r.nameable(t.attr)
		r.charge(entrySize)
		ns.vars.Set(t.attr, v)
	default:
		r.charge(48)
		r.scope.set(t.name.id, v)
	}
}

// nameable fails for the names that transformers keeps out of a namespace.
func (r *run) nameable(attr string) {
	r.failIf(attr != "" && attr[0] == '_', "a namespace attribute cannot begin with an underscore: %q", attr)
}
