package chat

// methods are the names that can be called behind a point; the others make Parse fail.
var methods = methodNames()

func methodNames() map[string]bool {
	names := map[string]bool{"cycle": true, "changed": true}
	for n := range stringMethods {
		names[n] = true
	}
	for n := range dictMethods {
		names[n] = true
	}
	for n := range listMethods {
		names[n] = true
	}
	return names
}

// method is x.name(...).
func (r *state) method(x any, a args) any {
	switch v := x.(type) {
	case nil:
		r.fail("a value is undefined: it has no method %q", a.of)
	case string:
		if f, ok := stringMethods[a.of]; ok {
			return f(r, v, a)
		}
	case dict:
		if f, ok := dictMethods[a.of]; ok {
			return f(r, v, a)
		}
	case list:
		if f, ok := listMethods[a.of]; ok {
			return f(r, v, a)
		}
	case tuple:
		if f, ok := listMethods[a.of]; ok && a.of != "copy" {
			return f(r, list(v), a)
		}
	case *loop:
		switch a.of {
		case "cycle":
			if len(a.pos) == 0 {
				r.fail("loop.cycle needs values")
			}
			return a.pos[v.index%len(a.pos)]
		case "changed":
			same := v.changed != nil && r.equalItems(v.changed, a.pos)
			v.changed = a.pos
			return !same
		}
	}
	r.fail("'%s' object has no method %q that is supported", typeName(x), a.of)
	return nil
}

var dictMethods = map[string]func(r *state, d dict, a args) any{
	"items": func(r *state, d dict, a args) any {
		r.take(a, 0)
		return view(r.pairs(d))
	},
	"keys": func(r *state, d dict, a args) any {
		r.take(a, 0)
		return view(r.items(d))
	},
	"values": func(r *state, d dict, a args) any {
		r.take(a, 0)
		r.charge(16 * len(d))
		out := make(view, len(d))
		for i, p := range d {
			out[i] = p.value
		}
		return out
	},
	"get": func(r *state, d dict, a args) any {
		v := r.take(a, 1, "key", "default")
		r.hashable(v[0])
		if found, ok := d.get(v[0]); ok {
			return found
		}
		if v[1] == (absent{}) {
			return none{}
		}
		return v[1]
	},
	"copy": func(r *state, d dict, a args) any { // nothing can change it: it is its own copy
		r.take(a, 0)
		return d
	},
}

var listMethods = map[string]func(r *state, items list, a args) any{
	"index": func(r *state, items list, a args) any {
		x := r.take(a, 1, "value")[0]
		for i, y := range items {
			if r.equal(x, y) {
				return i
			}
		}
		r.fail("the value is not in the list")
		return nil
	},
	"count": func(r *state, items list, a args) any {
		x, n := r.take(a, 1, "value")[0], 0
		for _, y := range items {
			if r.equal(x, y) {
				n++
			}
		}
		return n
	},
	"copy": func(r *state, items list, a args) any {
		r.take(a, 0)
		return items
	},
}
