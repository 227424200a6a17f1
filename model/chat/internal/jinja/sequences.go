package jinja

import (
	"slices"
	"sort"
	"strconv"
	"strings"
)

// folded returns the sort key of v: lower case text unless caseSensitive is set.
func folded(r *run, v any, caseSensitive bool) any {
	if s, ok := v.(str); ok && !caseSensitive {
		return lower(r, s)
	}
	return v
}

// sortItems returns items in the order of their keys. The sort is stable.
func sortItems(r *run, items, keys []any, reverse bool) *List {
	r.charge(40 * len(items))
	at := make([]int, len(items))
	for i := range at {
		at[i] = i
	}
	sort.SliceStable(at, func(i, j int) bool {
		if reverse {
			i, j = j, i
		}
		return compare(r, keys[at[i]], keys[at[j]], "<") == -1
	})
	out := make([]any, len(items))
	for i, j := range at {
		out[i] = items[j]
	}
	return newList(r, out)
}

func dictsort(r *run, x any, a *args) any {
	v := takeArgs(r, a, 0, "case_sensitive", "by", "reverse")
	d, ok := x.(*Dict)
	if !ok {
		r.defined(x)
		r.fail("dictsort needs a dict, not %s", typeName(x))
	}
	by := "dict_" + stringArg(r, a, v[1], "key").s + "s"
	r.failIf(by != "dict_keys" && by != "dict_values", `you can only sort by either "key" or "value"`)
	keys := mapItems(r, newView(r, d, by).items, func(k any) any { return folded(r, k, flagArg(r, v[0])) })
	return sortItems(r, newView(r, d, "dict_items").items, keys, flagArg(r, v[2]))
}

func first(r *run, x any, a *args) any {
	noArgs(r, a)
	if item, ok := iterate(r, x)(); ok {
		return item
	}
	return &Undefined{hint: "No first item, sequence was empty."}
}

func last(r *run, x any, a *args) any {
	noArgs(r, a)
	_, isGenerator := x.(*generator)
	r.failIf(isGenerator, "'generator' object is not reversible")
	if items := itemsOf(r, x); len(items) > 0 {
		return items[len(items)-1]
	}
	return &Undefined{hint: "No last item, sequence was empty."}
}

func joinFilter(r *run, x any, a *args) any {
	v := takeArgs(r, a, 0, "d", "attribute")
	sep := str{}
	if given(v[0]) {
		sep = textOf(r, v[0])
	}
	get := getter(r, v[1], nil)
	var parts []str
	for item := range walk(r, x) {
		r.charge(48)
		parts = append(parts, textOf(r, get(item)))
	}
	return joinStr(r, sep, parts...)
}

func listFilter(r *run, x any, a *args) any {
	noArgs(r, a)
	return newList(r, itemsOf(r, x))
}

func mapItems(r *run, items []any, f func(any) any) []any {
	r.charge(16 * len(items))
	out := make([]any, len(items))
	for i, x := range items {
		r.tick(1)
		out[i] = f(x)
	}
	return out
}

// getter returns a function that gets an attribute, such as "a.b.0", or an index of a value. If it
// is missing and otherwise is set, the result is otherwise. A nil attribute is the value itself.
func getter(r *run, attribute, otherwise any) func(any) any {
	if !set(attribute) {
		return func(x any) any { return x }
	}
	path := []any{attribute}
	if at, ok := attribute.(str); ok {
		r.failIf(len(at.s) > 1000, "an attribute of more than 1000 bytes is not supported")
		path = nil
		r.charge(128 * (strings.Count(at.s, ".") + 1))
		for _, part := range strings.Split(at.s, ".") {
			if i, err := strconv.ParseUint(part, 10, 32); err == nil {
				path = append(path, int64(i))
			} else {
				path = append(path, lit(part))
			}
		}
	}
	return func(x any) any {
		for _, key := range path {
			r.tick(1)
			if x = getItem(r, x, key); isUndefined(x) && set(otherwise) {
				x = otherwise
			}
		}
		return x
	}
}

// lazily returns a generator that calls work on its first use, like Python's. It is empty if x is
// false.
func lazily(r *run, x any, work func(items []any) []any) *generator {
	var next func() (any, bool)
	return &generator{func() (any, bool) {
		if next == nil {
			var items []any
			if truth(r, x) {
				items = work(itemsOf(r, x))
			}
			next = iterate(r, &List{items})
		}
		return next()
	}}
}

func itemsFilter(r *run, x any, a *args) any {
	noArgs(r, a)
	d, ok := x.(*Dict)
	if isUndefined(x) {
		d, ok = NewDict(), true
	}
	return lazily(r, &List{[]any{x}}, func([]any) []any {
		r.failIf(!ok, "Can only get item pairs from a mapping.")
		return newView(r, d, "dict_items").items
	})
}

// mapFilter is map(attribute="a") and map("filter", arguments...).
func mapFilter(r *run, x any, a *args) any {
	own := *a
	return lazily(r, x, func(items []any) []any { return mapItems(r, items, mapped(r, &own)) })
}

func mapped(r *run, a *args) func(any) any {
	if len(a.pos) == 0 {
		v := takeArgs(r, a, 1, "attribute", "default")
		return getter(r, v[0], v[1])
	}
	name := stringArg(r, a, a.pos[0], "").s
	f, inner := filters[name], &args{name, a.pos[1:], a.names, a.named}
	r.failIf(f == nil, "unknown filter %q", name)
	return func(x any) any { return f(r, x, inner) }
}

// choose is select or reject, and if byAttribute is set, selectattr or rejectattr. Without a test
// it uses the truth value.
func choose(keep, byAttribute bool) filter {
	return func(r *run, x any, a *args) any {
		own := *a
		return lazily(r, x, func(items []any) []any {
			pass := condition(r, &own, byAttribute)
			r.charge(16 * len(items))
			return slices.DeleteFunc(slices.Clone(items), func(item any) bool {
				r.tick(1)
				return pass(item) != keep
			})
		})
	}
}

func condition(r *run, a *args, byAttribute bool) func(any) bool {
	get, rest := getter(r, nil, nil), a.pos
	if byAttribute {
		r.failIf(len(rest) == 0, "%s: missing parameter for attribute name", a.of)
		get, rest = getter(r, rest[0], nil), rest[1:]
	}
	if len(rest) == 0 {
		return func(x any) bool { return truth(r, get(x)) }
	}
	name := stringArg(r, a, rest[0], "").s
	f, inner := tests[name], &args{name, rest[1:], a.names, a.named}
	r.failIf(f == nil, "unknown test %q", name)
	return func(x any) bool { return f(r, get(x), inner) }
}

func extreme(sign int) filter {
	return func(r *run, x any, a *args) any {
		v := takeArgs(r, a, 0, "case_sensitive", "attribute")
		get := getter(r, v[1], nil)
		var best, bestKey any = &Undefined{hint: "No aggregated item, sequence was empty."}, nil
		for i, item := range itemsOf(r, x) {
			key := folded(r, get(item), flagArg(r, v[0]))
			if i == 0 || compare(r, key, bestKey, "<") == sign {
				best, bestKey = item, key
			}
		}
		return best
	}
}

func reverse(r *run, x any, a *args) any {
	noArgs(r, a)
	items := slices.Clone(itemsOf(r, x))
	r.charge(16 * len(items))
	slices.Reverse(items)
	switch x := x.(type) {
	case str:
		b := &builder{r: r, safe: x.safe}
		for _, c := range items {
			b.write(c.(str))
		}
		return b.str()
	case *generator:
		return newList(r, items)
	}
	return &generator{iterate(r, &List{items})}
}

func sortFilter(r *run, x any, a *args) any {
	v := takeArgs(r, a, 0, "reverse", "case_sensitive", "attribute")
	at, _ := v[2].(str)
	r.failIf(strings.Contains(at.s, ","), "sort by several attributes is not supported")
	get, items := getter(r, v[2], nil), itemsOf(r, x)
	// Jinja2 compares lists of keys, so equal keys of types without an order do not fail.
	keys := mapItems(r, items, func(x any) any { return newList(r, []any{folded(r, get(x), flagArg(r, v[1]))}) })
	return sortItems(r, items, keys, flagArg(r, v[0]))
}

func sum(r *run, x any, a *args) any {
	v := takeArgs(r, a, 0, "attribute", "start")
	get := getter(r, v[0], nil)
	total := v[1]
	if !given(total) {
		total = int64(0)
	}
	r.failIf(typeName(total) == "str", "sum() can't sum strings [use ''.join(seq) instead]")
	n := 0 // additions to a float; Python 3.12 and later compensate their rounding
	for item := range walk(r, x) {
		if typeName(total) == "float" {
			n++
		}
		total = binaryOp(r, "+", total, get(item))
	}
	r.failIf(n > 1, "the sum of more than two floats is not supported")
	return total
}

func unique(r *run, x any, a *args) any {
	v := takeArgs(r, a, 0, "case_sensitive", "attribute")
	get, seen := getter(r, v[1], nil), NewDict()
	for item := range walk(r, x) {
		if h := keyHash(r, folded(r, get(item), flagArg(r, v[0]))); seen.find(h) < 0 {
			r.charge(entrySize)
			seen.put(h, item, item)
		}
	}
	return &generator{iterate(r, newView(r, seen, "dict_keys"))}
}
