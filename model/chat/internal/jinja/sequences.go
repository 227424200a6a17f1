package jinja

import (
	"slices"
	"sort"
	"strconv"
	"strings"
)

// iterator is what Python's generator functions return.
func iterator(next func() (any, bool)) *generator { return &generator{"generator", next} }

func batch(r *run, x any, a *args) any {
	v := r.take(a, 1, "linecount", "fill_with")
	n := r.integer(a, v[0], 0)
	if n < 1 {
		r.fail("batch needs a positive count")
	}
	next := r.iterate(x)
	return iterator(func() (any, bool) {
		var row []any
		for len(row) < n {
			item, ok := next()
			if !ok {
				break
			}
			r.charge(32)
			row = append(row, item)
		}
		if len(row) == 0 {
			return nil, false
		}
		for given(v[1]) && v[1] != nil && len(row) < n {
			r.charge(32)
			row = append(row, v[1])
		}
		return r.list(row), true
	})
}

func slice(r *run, x any, a *args) any {
	v := r.take(a, 1, "slices", "fill_with")
	n, items := r.integer(a, v[0], 0), r.items(x)
	if n < 1 {
		r.fail("slice needs a positive count")
	}
	i, from := 0, 0
	return iterator(func() (any, bool) {
		if i == n {
			return nil, false
		}
		size, extra := len(items)/n, len(items)%n
		row := items[from : from+size : from+size]
		if i < extra {
			row = items[from : from+size+1 : from+size+1]
		} else if given(v[1]) && v[1] != nil {
			r.charge(16 * (size + 1))
			row = append(row, v[1])
		}
		from += size
		if i < extra {
			from++
		}
		i++
		return r.list(row), true
	})
}

// folded is a sort key: text without case unless asked.
func (r *run) folded(v any, caseSensitive bool) any {
	if s, ok := v.(str); ok && !caseSensitive {
		return r.lower(s)
	}
	return v
}

// sorted orders items by their keys, equal ones as they came.
func (r *run) sorted(items, keys []any, reverse bool) []any {
	r.charge(40 * len(items))
	at := make([]int, len(items))
	for i := range at {
		at[i] = i
	}
	sort.SliceStable(at, func(i, j int) bool {
		if reverse {
			i, j = j, i
		}
		return r.order(keys[at[i]], keys[at[j]], "<") == -1
	})
	out := make([]any, len(items))
	for i, j := range at {
		out[i] = items[j]
	}
	return out
}

func dictsort(r *run, x any, a *args) any {
	v := r.take(a, 0, "case_sensitive", "by", "reverse")
	d, ok := x.(*Dict)
	if !ok {
		r.defined(x)
		r.fail("dictsort needs a dict, not %s", typeName(x))
	}
	by := r.string(a, v[1], "key").s
	if by != "key" && by != "value" {
		r.fail(`you can only sort by either "key" or "value"`)
	}
	r.charge(120 * len(d.entries))
	var keys []any
	for _, e := range d.entries {
		k := e.key
		if by == "value" {
			k = e.value
		}
		keys = append(keys, r.folded(k, r.flag(v[0], false)))
	}
	return r.list(r.sorted(d.pairs(), keys, r.flag(v[2], false)))
}

func first(r *run, x any, a *args) any {
	r.none(a)
	if s, ok := x.(str); ok && s.s != "" {
		v, _ := r.index(s, 0)
		return v
	}
	if item, ok := r.iterate(x)(); ok {
		return item
	}
	return &Undefined{hint: "No first item, sequence was empty."}
}

func last(r *run, x any, a *args) any {
	r.none(a)
	if g, ok := x.(*generator); ok {
		r.fail("'%s' object is not reversible", g.kind)
	}
	if s, ok := x.(str); ok && s.s != "" {
		v, _ := r.index(s, -1)
		return v
	}
	if items := r.items(x); len(items) > 0 {
		return items[len(items)-1]
	}
	return &Undefined{hint: "No last item, sequence was empty."}
}

// groupby returns pairs of a key, named grouper, and the list of its items.
func groupby(r *run, x any, a *args) any {
	v := r.take(a, 1, "attribute", "default", "case_sensitive")
	get, keep := r.getter(v[0], v[1]), r.flag(v[2], false)
	items := r.items(x)
	keys := r.each(items, func(x any) any { return r.folded(get(x), keep) })
	items = r.sorted(items, keys, false)
	var out, group []any
	var key any
	add := func() {
		if group != nil {
			r.charge(120)
			out = append(out, &Tuple{[]any{get(group[0]), r.list(group)}, []string{"grouper", "list"}})
		}
	}
	for _, item := range items {
		if k := r.folded(get(item), keep); group == nil || !r.equal(k, key) {
			add()
			key, group = k, nil
		}
		r.charge(32)
		group = append(group, item)
	}
	add()
	return r.list(out)
}

func itemsFilter(r *run, x any, a *args) any {
	r.none(a)
	next := func() (any, bool) { return nil, false }
	switch d := x.(type) {
	case *Undefined:
	case *Dict:
		next = r.iterate(r.view(d, "dict_items"))
	default:
		// The generator of Jinja2 fails when it is walked.
		next = func() (any, bool) {
			r.fail("Can only get item pairs from a mapping.")
			return nil, false
		}
	}
	return iterator(next)
}

// view is what a dict's items, keys and values return.
func (r *run) view(d *Dict, kind string) *view {
	switch kind {
	case "dict_items":
		r.charge(120 * len(d.entries))
		return &view{kind, d.pairs()}
	case "dict_keys":
		r.charge(16 * len(d.entries))
		return &view{kind, d.keys()}
	}
	r.charge(16 * len(d.entries))
	return &view{kind, d.values()}
}

func joinFilter(r *run, x any, a *args) any {
	v := r.take(a, 0, "d", "attribute")
	sep := str{}
	if given(v[0]) {
		sep = r.text(v[0])
	}
	get := func(x any) any { return x }
	if given(v[1]) && v[1] != nil {
		get = r.getter(v[1], nil)
	}
	var parts []str
	next := r.iterate(x)
	for item, ok := next(); ok; item, ok = next() {
		r.charge(48)
		parts = append(parts, r.text(get(item)))
	}
	return r.join(sep, parts)
}

func listFilter(r *run, x any, a *args) any {
	r.none(a)
	items := r.items(x)
	r.charge(16 * len(items))
	return r.list(slices.Clone(items))
}

func (r *run) each(items []any, f func(any) any) []any {
	r.charge(16 * len(items))
	out := make([]any, len(items))
	for i, x := range items {
		r.tick(1)
		out[i] = f(x)
	}
	return out
}

// getter follows an attribute: "a.b.0", or an index. What is missing becomes otherwise, if given.
func (r *run) getter(attribute, otherwise any) func(any) any {
	var path []any
	switch at := attribute.(type) {
	case str:
		for _, part := range r.split(at, lit("."), -1, false) {
			if i, err := strconv.ParseInt(part.s, 10, 64); err == nil && isDigit(part.s[0]) {
				path = append(path, i)
			} else {
				path = append(path, part)
			}
		}
	default:
		path = []any{at}
	}
	return func(x any) any {
		for _, key := range path {
			x = r.item(x, key)
			if isUndefined(x) && given(otherwise) && otherwise != nil {
				x = otherwise
			}
		}
		return x
	}
}

// lazily makes an iterator that begins its work when it is walked, as Python's generators do.
func lazily(begin func() func() (any, bool)) *generator {
	var next func() (any, bool)
	return iterator(func() (any, bool) {
		if next == nil {
			next = begin()
		}
		return next()
	})
}

func nothing() (any, bool) { return nil, false }

// mapFilter is map(attribute="a") and map("filter", arguments of the filter).
func mapFilter(r *run, x any, a *args) any {
	own := *a
	return lazily(func() func() (any, bool) {
		if !r.truth(x) {
			return nothing
		}
		f := r.mapped(&own)
		next := r.iterate(x)
		return func() (any, bool) {
			item, ok := next()
			if !ok {
				return nil, false
			}
			return f(item), true
		}
	})
}

func (r *run) mapped(a *args) func(any) any {
	if len(a.pos) == 0 {
		v := r.take(a, 1, "attribute", "default")
		return r.getter(v[0], v[1])
	}
	name := r.string(a, a.pos[0], "").s
	f := filters[name]
	if f == nil {
		r.noFilter(name)
	}
	inner := &args{name, a.pos[1:], a.names, a.named}
	return func(x any) any { return f(r, x, inner) }
}

// choose is select and reject and, by an attribute, selectattr and rejectattr. Without a test the
// value itself decides.
func choose(keep, byAttribute bool) filter {
	return func(r *run, x any, a *args) any {
		own := *a
		return lazily(func() func() (any, bool) {
			if !r.truth(x) {
				return nothing
			}
			pass := r.condition(&own, byAttribute)
			next := r.iterate(x)
			return func() (any, bool) {
				for {
					r.tick(1)
					item, ok := next()
					if !ok || pass(item) == keep {
						return item, ok
					}
				}
			}
		})
	}
}

func (r *run) condition(a *args, byAttribute bool) func(any) bool {
	of := func(x any) any { return x }
	rest := a.pos
	if byAttribute {
		if len(rest) == 0 {
			r.fail("%s: missing parameter for attribute name", a.of)
		}
		of, rest = r.getter(rest[0], nil), rest[1:]
	}
	if len(rest) == 0 {
		return func(x any) bool { return r.truth(of(x)) }
	}
	name := r.string(a, rest[0], "").s
	f := tests[name]
	if f == nil {
		r.fail("unknown test %q", name)
	}
	inner := &args{name, rest[1:], a.names, a.named}
	return func(x any) bool { return f(r, of(x), inner) }
}

func extreme(sign int) filter {
	return func(r *run, x any, a *args) any {
		v := r.take(a, 0, "case_sensitive", "attribute")
		get := func(x any) any { return x }
		if given(v[1]) && v[1] != nil {
			get = r.getter(v[1], nil)
		}
		var best, bestKey any
		next := r.iterate(x)
		item, ok := next()
		if !ok {
			return &Undefined{hint: "No aggregated item, sequence was empty."}
		}
		for best, bestKey = item, r.folded(get(item), r.flag(v[0], false)); ; {
			if item, ok = next(); !ok {
				return best
			}
			key := r.folded(get(item), r.flag(v[0], false))
			if r.order(key, bestKey, "<") == sign {
				best, bestKey = item, key
			}
		}
	}
}

func reverse(r *run, x any, a *args) any {
	r.none(a)
	switch v := x.(type) {
	case str:
		return r.reversed(v)
	case *generator:
		items := r.items(v)
		slices.Reverse(items)
		return r.list(items)
	}
	items := r.items(x)
	return &generator{typeName(x) + "_reverseiterator", func() (any, bool) {
		if len(items) == 0 {
			return nil, false
		}
		r.tick(1)
		last := items[len(items)-1]
		items = items[:len(items)-1]
		return last, true
	}}
}

func (r *run) reversed(s str) str {
	items := r.items(s)
	parts := make([]str, len(items))
	for i, c := range items {
		parts[len(items)-1-i] = c.(str)
	}
	out := r.join(str{}, parts)
	out.safe = s.safe
	return out
}

func sortFilter(r *run, x any, a *args) any {
	v := r.take(a, 0, "reverse", "case_sensitive", "attribute")
	items := r.items(x)
	get := []func(any) any{func(x any) any { return x }}
	if given(v[2]) && v[2] != nil {
		get = nil
		attributes := []any{v[2]}
		if s, ok := v[2].(str); ok {
			attributes = nil
			for _, part := range strings.Split(s.s, ",") {
				attributes = append(attributes, lit(part))
			}
		}
		for _, at := range attributes {
			get = append(get, r.getter(at, nil))
		}
	}
	// Jinja2 compares lists of keys, so equal keys that have no order are no error.
	keys := r.each(items, func(x any) any {
		r.charge(40 + 16*len(get))
		key := make([]any, len(get))
		for i, f := range get {
			key[i] = r.folded(f(x), r.flag(v[1], false))
		}
		return &List{key}
	})
	return r.list(r.sorted(items, keys, r.flag(v[0], false)))
}

func sum(r *run, x any, a *args) any {
	v := r.take(a, 0, "attribute", "start")
	get := func(x any) any { return x }
	if given(v[0]) && v[0] != nil {
		get = r.getter(v[0], nil)
	}
	total := v[1]
	if !given(total) {
		total = int64(0)
	}
	if _, ok := total.(str); ok {
		r.fail("sum() can't sum strings [use ''.join(seq) instead]")
	}
	next := r.iterate(x)
	for item, ok := next(); ok; item, ok = next() {
		r.tick(1)
		total = r.binary("+", total, get(item))
	}
	return total
}

func unique(r *run, x any, a *args) any {
	v := r.take(a, 0, "case_sensitive", "attribute")
	get := func(x any) any { return x }
	if given(v[1]) && v[1] != nil {
		get = r.getter(v[1], nil)
	}
	return lazily(func() func() (any, bool) {
		seen := map[string]bool{}
		next := r.iterate(x)
		return func() (any, bool) {
			for {
				item, ok := next()
				if !ok {
					return nil, false
				}
				h := r.hash(r.folded(get(item), r.flag(v[0], false)))
				if !seen[h] {
					r.charge(len(h) + 48)
					seen[h] = true
					return item, true
				}
			}
		}
	})
}
