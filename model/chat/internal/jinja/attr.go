package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// attr is x.key: an attribute first, then an item.
func (r *run) attr(x any, key str) any {
	if d, ok := x.(*Dict); ok { // the usual case
		if m := r.method(d, key.s); m != nil {
			return m
		}
		if i := d.find(hashString(key.s)); i >= 0 {
			if strings.HasPrefix(key.s, "__") {
				r.fail("reading %s as an attribute is not supported: write ['%s']", key.s, key.s)
			}
			return d.entries[i].value
		}
		return lacks(x, key)
	}
	if v := r.attribute(x, key.s); v != nil {
		return *v
	}
	return lacks(x, key)
}

// attribute is Python's getattr within the sandbox, or nil if x has no such attribute.
func (r *run) attribute(x any, key string) *any {
	found := func(v any, ok bool) *any {
		if !ok {
			return nil
		}
		return &v
	}
	switch v := x.(type) {
	case *Undefined:
		r.defined(v)
	case *namespace:
		return found(v.vars.Get(key))
	case *loop:
		return found(v.attr(r, key))
	case *object:
		return found(v.attr(key))
	case *macro:
		return found(v.attr(key))
	case *Tuple:
		if i := slices.Index(v.names, key); i >= 0 {
			return &v.items[i]
		}
	}
	if m := r.method(x, key); m != nil {
		return &m
	}
	return nil
}

// item is x[key]: an item first, then an attribute.
func (r *run) item(x, key any) any {
	r.defined(x)
	name, isString := key.(str)
	if d, ok := x.(*Dict); ok && r.hashable(key) {
		if v, ok := r.lookup(d, key); ok {
			return v
		}
	} else if i, ok := asInt(key); ok {
		if v, ok := r.index(x, i); ok {
			return v
		}
	}
	if isString {
		if v := r.attribute(x, name.s); v != nil {
			return *v
		}
	}
	return lacks(x, key)
}

// index is item i of a sequence, from the end if it is negative.
func (r *run) index(x any, i int64) (any, bool) {
	var items []any
	switch v := x.(type) {
	case str:
		if i != int64(int(i)) {
			return nil, false
		}
		from := r.offset(v.s, int(i))
		if from == len(v.s) || i < 0 && from == 0 && int64(r.runeCount(v.s)) < -i {
			return nil, false
		}
		return v.cut(from, from+r.runeWidth(v.s[from:])), true
	case *rangeOf:
		if i < 0 {
			i += v.len()
		}
		return v.start + i*v.step, i >= 0 && i < v.len()
	case *List:
		items = v.Items
	case *Tuple:
		items = v.items
	}
	if i < 0 {
		i += int64(len(items))
	}
	if i < 0 || i >= int64(len(items)) {
		return nil, false
	}
	return items[i], true
}

// runeWidth is the length in bytes of the first character of s.
func (r *run) runeWidth(s string) int {
	_, width := utf8.DecodeRuneInString(s)
	return width
}

func (e *sliceExpr) eval(r *run) any {
	x := r.eval(e.x)
	bound := func(b expr) (int, bool) {
		if b == nil {
			return 0, false
		}
		v := r.eval(b)
		if v == nil {
			return 0, false
		}
		i, ok := asInt(v)
		if r.line = e.line; !ok {
			r.defined(v)
			r.fail("slice indices must be integers or None, not %s", typeName(v))
		}
		return int(max(min(i, maxNumber), -maxNumber)), true
	}
	from, hasFrom := bound(e.from)
	to, hasTo := bound(e.to)
	step, hasStep := bound(e.step)
	r.line = e.line
	r.defined(x)
	switch x.(type) {
	case str, *List, *Tuple, *rangeOf:
	default:
		r.fail("'%s' object cannot be sliced", typeName(x))
	}
	if !hasStep {
		step = 1
	}
	if step == 0 {
		r.fail("slice step cannot be zero")
	}
	if s, ok := x.(str); ok && step == 1 {
		return r.substring(s, from, hasFrom, to, hasTo)
	}
	n, _ := r.length(x)
	// As in Python: bounds are clipped to what a walk with this step can reach.
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	clip := func(i int, given bool, otherwise int) int {
		if !given {
			return otherwise
		}
		if i < 0 {
			i += n
		}
		return max(low, min(i, high))
	}
	first, last := low, high
	if step < 0 {
		first, last = high, low
	}
	from, to = clip(from, hasFrom, first), clip(to, hasTo, last)
	if v, ok := x.(*rangeOf); ok {
		s := int64(step)
		return &rangeOf{v.start + int64(from)*v.step, v.start + int64(to)*v.step, v.step * s}
	}
	items := r.items(x)
	r.charge(16 * (max(to-from, from-to)/max(step, -step) + 1))
	var out []any
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		r.tick(1)
		out = append(out, items[i])
	}
	switch x := x.(type) {
	case str:
		parts := make([]str, len(out))
		for i, c := range out {
			parts[i] = c.(str)
		}
		s := r.join(str{}, parts)
		s.safe = x.safe
		return s
	case *Tuple:
		return &Tuple{items: out}
	}
	return r.list(out)
}

// substring is the characters [from, to) of s. Negative bounds count from the end.
func (r *run) substring(s str, from int, hasFrom bool, to int, hasTo bool) any {
	start, end := 0, len(s.s)
	if hasFrom {
		start = r.offset(s.s, from)
	}
	if hasTo {
		end = r.offset(s.s, to)
	}
	return s.cut(start, max(start, end))
}
