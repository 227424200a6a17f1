package jinja

import (
	"strings"
	"unicode/utf8"
)

func (e *attrExpr) eval(r *run) any {
	x := r.eval(e.x)
	r.line = e.line
	if v, ok := r.attribute(x, e.name.s); ok {
		return v
	}
	if d, ok := x.(*Dict); ok {
		if v, ok := d.Get(e.name.s); ok {
			if strings.HasPrefix(e.name.s, "__") {
				r.fail("reading %s as an attribute is not supported: write ['%[1]s']", e.name.s)
			}
			return v
		}
	}
	return lacks(x, e.name)
}

// attribute is Python's getattr within the sandbox.
func (r *run) attribute(x any, key string) (any, bool) {
	switch v := x.(type) {
	case *Undefined:
		r.defined(v)
	case *namespace:
		return v.vars.Get(key)
	case *loop:
		return v.attr(r, key)
	case *macro:
		if key == "name" && v.label != "" {
			return lit(v.label), true
		}
	}
	return r.method(x, key)
}

func (e *itemExpr) eval(r *run) any {
	x, key := r.eval(e.x), r.eval(e.key)
	r.line = e.line
	return r.item(x, key)
}

// item is x[key]: an item first, then an attribute.
func (r *run) item(x, key any) any {
	r.defined(x)
	if d, ok := x.(*Dict); ok {
		if h, ok := r.hashed(key); ok && d.find(h) >= 0 {
			return d.entries[d.find(h)].value
		}
	} else if i, ok := asInt(key); ok {
		if v, ok := r.index(x, i); ok {
			return v
		}
	}
	if name, ok := key.(str); ok {
		if v, ok := r.attribute(x, name.s); ok {
			return v
		}
	}
	return lacks(x, key)
}

// index is item i of a sequence, from the end if it is negative.
func (r *run) index(x any, i int64) (any, bool) {
	var items []any
	switch v := x.(type) {
	case str:
		from := r.offset(v.s, int(max(min(i, maxNumber), -maxNumber)))
		if from == len(v.s) || i < 0 && from == 0 && int64(r.runeCount(v.s)) < -i {
			return nil, false
		}
		_, width := utf8.DecodeRuneInString(v.s[from:])
		return v.cut(from, from+width), true
	case *view:
		if v.typ == "range" {
			items = v.items
		}
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

func (e *sliceExpr) eval(r *run) any {
	x := r.eval(e.x)
	bound := func(b expr, otherwise int) int {
		var v any
		if b != nil {
			v = r.eval(b)
		}
		if r.line = e.line; v == nil {
			return otherwise
		}
		return r.integer(&args{of: "slice"}, v, 0)
	}
	from, to, step := bound(e.from, absentBound), bound(e.to, absentBound), bound(e.step, 1)
	r.failIf(step == 0, "slice step cannot be zero")
	switch v := x.(type) {
	case str:
		if step == 1 {
			return r.substring(v, from, to)
		}
		b := &builder{r: r, safe: v.safe}
		for _, c := range r.pick(r.items(v), from, to, step) {
			b.write(c.(str))
		}
		return b.str()
	case *List:
		return r.list(r.pick(v.Items, from, to, step))
	case *Tuple:
		return &Tuple{r.pick(v.items, from, to, step)}
	}
	r.defined(x)
	r.fail("slices of a %s do not exist or are not supported", typeName(x))
	return nil
}

// absentBound stands for a bound of a slice that is left out.
const absentBound = -maxNumber - 1

// substring is the characters [from, to) of s. Negative bounds count from the end.
func (r *run) substring(s str, from, to int) str {
	start, end := 0, len(s.s)
	if from != absentBound {
		start = r.offset(s.s, from)
	}
	if to != absentBound {
		end = r.offset(s.s, to)
	}
	return s.cut(start, max(start, end))
}

// pick is a slice of items. As in Python, bounds are clipped to what a walk with this step reaches.
func (r *run) pick(items []any, from, to, step int) []any {
	n := len(items)
	low, high := 0, n
	first, last := low, high
	if step < 0 {
		low, high = -1, n-1
		first, last = high, low
	}
	clip := func(i, otherwise int) int {
		switch {
		case i == absentBound:
			return otherwise
		case i < 0:
			i += n
		}
		return max(low, min(i, high))
	}
	from, to = clip(from, first), clip(to, last)
	if step == 1 {
		return items[from:max(from, to):max(from, to)]
	}
	var out []any
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		r.charge(32)
		out = append(out, items[i])
	}
	return out
}
