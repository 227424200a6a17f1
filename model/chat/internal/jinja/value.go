package jinja

import (
	"fmt"
	"math"
	"math/big"
	"slices"
)

// Values are Python's: nil is None, then bool, int64, *big.Int (from JSON; passed on, printed and
// compared), float64, str, and the types here. Lists, tuples and dicts never change once made,
// because the sandbox forbids it.
type (
	// List is a Python list.
	List struct{ Items []any }
	// Tuple is a Python tuple. One of groupby has names for its items.
	Tuple struct {
		items []any
		names []string
	}
	// Undefined is the value of a name, key or attribute that does not exist. It prints as nothing,
	// is false and empty, and everything else done with it fails.
	Undefined struct {
		hint string // replaces the message
		of   any    // what lacks it, or absent
		name any
	}
	// namespace is the one value that a template can change.
	namespace struct{ vars *Dict }
	// view is what dict.items(), keys() and values() return: countable but not indexable.
	view struct {
		kind  string
		items []any
	}
	// generator is an iterator, always true, not countable, and good for one walk.
	generator struct {
		kind string
		next func() (any, bool)
	}
	rangeOf struct{ start, stop, step int64 }
	// function is a builtin function or a bound method.
	function struct {
		name string
		call func(r *run, a *args) any
	}
	// object is what cycler returns: attributes that change with its methods.
	object struct {
		kind string
		attr func(name string) (any, bool)
	}
)

// missing is the value of a variable that is not set.
type missing struct{}

func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case str:
		if v.safe {
			return "Markup"
		}
		return "str"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *Undefined:
		return "Undefined"
	case *namespace:
		return "TemplateNamespace"
	case *view:
		return v.kind
	case *generator:
		return v.kind
	case *rangeOf:
		return "range"
	case *loop:
		return "LoopContext"
	case *function:
		return "function"
	case *macro:
		return "Macro"
	case *object:
		return v.kind
	}
	return fmt.Sprintf("%T", v)
}

// undefinedName is the value of a name that is not set.
func undefinedName(name string) *Undefined { return &Undefined{of: absent{}, name: lit(name)} }

// lacks is the value of an item or attribute that x does not have.
func lacks(x, name any) *Undefined { return &Undefined{of: x, name: name} }

// unsafe is the value of an attribute that the sandbox refuses.
func unsafe(x any, name string) *Undefined {
	return &Undefined{hint: "access to attribute '" + name + "' of '" + typeName(x) +
		"' object is unsafe."}
}

func (u *Undefined) message(r *run) string {
	if u.hint != "" {
		return u.hint
	}
	name, isString := u.name.(str)
	if u.of == (absent{}) {
		return "'" + clip(name.s) + "' is undefined"
	}
	what := typeName(u.of) + " object"
	if u.of == nil {
		what = "None"
	}
	if isString {
		return "'" + what + "' has no attribute '" + clip(name.s) + "'"
	}
	b := &builder{r: r}
	switch u.name.(type) {
	case nil, bool, int64, float64, *big.Int:
		r.repr(b, u.name)
	default:
		b.raw("of type " + typeName(u.name))
	}
	return what + " has no element " + b.str().s
}

// defined fails if v is undefined.
func (r *run) defined(v any) {
	if u, ok := v.(*Undefined); ok {
		r.fail("%s", u.message(r))
	}
}

func isUndefined(v any) bool {
	_, ok := v.(*Undefined)
	return ok
}

// asInt takes Python's integers, of which bool is one, if they fit.
func asInt(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

// asFloat takes every number.
func asFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		return f, true
	}
	i, ok := asInt(v)
	return float64(i), ok
}

func asBig(v any) (*big.Int, bool) {
	if b, ok := v.(*big.Int); ok {
		return b, true
	}
	i, ok := asInt(v)
	return big.NewInt(i), ok
}

func (r *run) truth(v any) bool {
	switch v := v.(type) {
	case nil, *Undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case *big.Int:
		return v.Sign() != 0
	case str:
		return v.s != ""
	case *List:
		return len(v.Items) > 0
	case *Tuple:
		return len(v.items) > 0
	case *Dict:
		return len(v.entries) > 0
	case *view:
		return len(v.items) > 0
	case *rangeOf:
		return v.len() > 0
	case *loop:
		return v.length(r) > 0
	}
	return true
}

func (v *rangeOf) len() int64 {
	switch {
	case v.step > 0 && v.start < v.stop:
		return (v.stop-v.start-1)/v.step + 1
	case v.step < 0 && v.start > v.stop:
		return (v.start-v.stop-1)/-v.step + 1
	}
	return 0
}

// length is Python's len, for what has one.
func (r *run) length(v any) (int, bool) {
	switch v := v.(type) {
	case str:
		return r.runeCount(v.s), true
	case *List:
		return len(v.Items), true
	case *Tuple:
		return len(v.items), true
	case *Dict:
		return len(v.entries), true
	case *view:
		return len(v.items), true
	case *rangeOf:
		return int(v.len()), true
	case *loop:
		return v.length(r), true
	case *Undefined:
		return 0, true
	}
	return 0, false
}

// items lists what iterating over v gives. The caller must not change it.
func (r *run) items(v any) []any {
	switch v := v.(type) {
	case *List:
		return v.Items
	case *Tuple:
		return v.items
	case *Dict:
		r.charge(16 * len(v.entries))
		return v.keys()
	case *view:
		return v.items
	case *Undefined:
		return nil
	case str:
		var out []any
		r.charge(48 * r.runeCount(v.s))
		for at, end := 0, 0; at < len(v.s); at = end {
			if r.tick(1); at&0xff == 0 {
				out = slices.Grow(out, min(256, len(v.s)-at))
			}
			end = at + r.runeWidth(v.s[at:])
			out = append(out, v.cut(at, end))
		}
		return out
	case *rangeOf:
		n := v.len()
		r.charge(int(24 * n))
		out := make([]any, n)
		for i := range out {
			out[i] = v.start + int64(i)*v.step
		}
		return out
	}
	var out []any
	next := r.iterate(v)
	for x, ok := next(); ok; x, ok = next() {
		r.charge(32)
		out = append(out, x)
	}
	return out
}

// iterate returns a function that returns the items of v one by one.
func (r *run) iterate(v any) func() (any, bool) {
	switch v := v.(type) {
	case *generator:
		return v.next
	case *namespace, *loop, *function, *macro, *object, nil, bool, int64, float64, *big.Int:
		r.fail("'%s' object is not iterable", typeName(v))
	}
	items := r.items(v)
	return func() (any, bool) {
		if len(items) == 0 {
			return nil, false
		}
		r.tick(1)
		x := items[0]
		items = items[1:]
		return x, true
	}
}

// list makes a list of items, which nobody else may change.
func (r *run) list(items []any) *List {
	r.charge(40)
	return &List{items}
}

// floatRepr is the shortest text that reads back as v, in Python's form: 1.0, 1e+20, 1e-05.
func floatRepr(v float64) string {
	switch {
	case math.IsNaN(v):
		return "nan"
	case math.IsInf(v, 1):
		return "inf"
	case math.IsInf(v, -1):
		return "-inf"
	}
	return shortest(v)
}
