package jinja

import (
	"iter"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"
)

// Values are Python's: nil is None, then bool, int64, *big.Int (from JSON; passed on, printed and
// compared), float64, str, and the types here. Lists, tuples and dicts never change once made,
// because the sandbox forbids it.
type (
	// List is a Python list.
	List struct{ Items []any }
	// Tuple is a Python tuple.
	Tuple struct{ items []any }
	// Undefined is the value of a name, key or attribute that does not exist. It prints as nothing,
	// is false and empty, and everything else done with it fails.
	Undefined struct {
		hint     string // replaces the message
		of, name any    // what lacks it, or absent
	}
	// namespace is the one value that a template can change.
	namespace struct{ vars *Dict }
	// view is what range and dict.items(), keys() and values() return.
	view struct {
		typ   string
		items []any
	}
	// generator is an iterator, always true, not countable, and good for one walk.
	generator struct{ next func() (any, bool) }
	// function is a builtin function or a bound method.
	function struct {
		name string
		call func(r *run, a *args) any
	}
	// missing is the value of a variable that is not set, absent that of an argument.
	missing struct{}
	absent  struct{}
)

// kinds have a type of their own in Python, sequences a length, and collections their items.
type (
	kind       interface{ kind() string }
	sequence   interface{ length(r *run) int }
	collection interface{ all(r *run) []any }
)

func (*List) kind() string      { return "list" }
func (*Tuple) kind() string     { return "tuple" }
func (*Dict) kind() string      { return "dict" }
func (*Undefined) kind() string { return "Undefined" }
func (*namespace) kind() string { return "Namespace" }
func (v *view) kind() string    { return v.typ }
func (*generator) kind() string { return "generator" }
func (*function) kind() string  { return "function" }
func (*macro) kind() string     { return "Macro" }
func (*loop) kind() string      { return "LoopContext" }
func (absent) kind() string     { return "nothing" }
func (t str) kind() string {
	if t.safe {
		return "Markup"
	}
	return "str"
}

func (t str) length(r *run) int      { return r.runeCount(t.s) }
func (v *List) length(*run) int      { return len(v.Items) }
func (v *Tuple) length(*run) int     { return len(v.items) }
func (d *Dict) length(*run) int      { return len(d.entries) }
func (v *view) length(*run) int      { return len(v.items) }
func (u *Undefined) length(*run) int { return 0 }
func (v *List) all(*run) []any       { return v.Items }
func (v *Tuple) all(*run) []any      { return v.items }
func (v *view) all(*run) []any       { return v.items }
func (u *Undefined) all(*run) []any  { return nil }
func (d *Dict) all(r *run) []any     { return r.view(d, "dict_keys").items }

func typeName(v any) string {
	switch v := v.(type) {
	case kind:
		return v.kind()
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case float64:
		return "float"
	}
	return "int"
}

// lacks is the value of an item or attribute that x does not have.
func lacks(x, name any) *Undefined { return &Undefined{of: x, name: name} }

func (u *Undefined) message() string {
	name, _ := u.name.(str)
	switch {
	case u.hint != "":
		return u.hint
	case u.of == any(absent{}):
		return "'" + clip(name.s) + "' is undefined"
	}
	return "a " + typeName(u.of) + " has no attribute or item '" + clip(name.s) + "'"
}

// defined fails if v is undefined.
func (r *run) defined(v any) {
	if u, ok := v.(*Undefined); ok {
		r.fail("%s", u.message())
	}
}

func isUndefined(v any) bool {
	_, ok := v.(*Undefined)
	return ok
}

// asInt takes Python's integers, of which bool is one, if they fit.
func asInt(v any) (int64, bool) {
	if v == any(true) {
		return 1, true
	}
	i, ok := v.(int64)
	return i, ok || v == any(false)
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

func (r *run) truth(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case float64:
		return v != 0
	case int64:
		return v != 0
	case str:
		return v.s != ""
	case sequence:
		return v.length(r) > 0
	}
	return v != nil
}

// items lists what iterating over v gives. The caller must not change it.
func (r *run) items(v any) (out []any) {
	if c, ok := v.(collection); ok {
		return c.all(r)
	}
	size := 32 // of an item in a slice that grows
	if s, ok := v.(str); ok {
		n := r.runeCount(s.s)
		r.charge(16 * n)
		size, out = 0, make([]any, 0, n)
	}
	for x := range r.walk(v) {
		r.charge(size)
		out = append(out, x)
	}
	return out
}

// walk yields what iterating over v gives.
func (r *run) walk(v any) iter.Seq[any] {
	next := r.iterate(v)
	return func(yield func(any) bool) {
		for x, ok := next(); ok && yield(x); x, ok = next() {
		}
	}
}

// iterate returns a function that returns the items of v one by one.
func (r *run) iterate(v any) func() (any, bool) {
	at := 0
	switch v := v.(type) {
	case *generator:
		return v.next
	case str:
		return func() (any, bool) {
			if at == len(v.s) {
				return nil, false
			}
			r.charge(32)
			_, width := utf8.DecodeRuneInString(v.s[at:])
			at += width
			return v.cut(at-width, at), true
		}
	case collection:
		items := v.all(r)
		return func() (any, bool) {
			if at == len(items) {
				return nil, false
			}
			r.tick(1)
			at++
			return items[at-1], true
		}
	}
	r.fail("'%s' object is not iterable", typeName(v))
	return nil
}

// list makes a list of items, which nobody else may change.
func (r *run) list(items []any) *List {
	r.charge(40)
	return &List{items}
}

// Dict is a Python dict: it keeps the order in which its keys came. It does not change once a
// template can see it.
type Dict struct {
	entries []entry
	index   map[string]int // by hash, if there are more than smallDict entries
}

type entry struct {
	hash       string
	key, value any
}

const (
	smallDict = 8
	entrySize = 80 // about what an entry takes, index included
)

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{} }

// Set puts a value under a string key that is not content, in the place of an earlier one.
func (d *Dict) Set(key string, v any) { d.put(hashString(key), lit(key), v) }

// Get returns the value under a string key.
func (d *Dict) Get(key string) (any, bool) {
	i := d.find(hashString(key))
	if i < 0 {
		return nil, false
	}
	return d.entries[i].value, true
}

// All calls f for the keys that are strings, and their values, in order.
func (d *Dict) All(f func(key string, value any)) {
	for _, e := range d.entries {
		if k, ok := e.key.(str); ok {
			f(k.s, e.value)
		}
	}
}

// Merge puts the entries of other for which keep is true behind those of d, in the place of earlier
// ones. Nil keeps all.
func (d *Dict) Merge(other *Dict, keep func(value any) bool) *Dict {
	for _, e := range other.entries {
		if keep == nil || keep(e.value) {
			d.put(e.hash, e.key, e.value)
		}
	}
	return d
}

func (d *Dict) find(hash string) int {
	if d.index != nil {
		if i, ok := d.index[hash]; ok {
			return i
		}
		return -1
	}
	for i := range d.entries {
		if d.entries[i].hash == hash {
			return i
		}
	}
	return -1
}

func (d *Dict) put(hash string, key, v any) {
	if i := d.find(hash); i >= 0 {
		d.entries[i].value = v
		return
	}
	d.entries = append(d.entries, entry{hash, key, v})
	if n := len(d.entries); d.index == nil && n > smallDict {
		d.index = make(map[string]int, 2*n)
		for i, e := range d.entries {
			d.index[e.hash] = i
		}
	} else if d.index != nil {
		d.index[hash] = n - 1
	}
}

// set is d[key] = v.
func (r *run) set(d *Dict, key, v any) {
	r.charge(entrySize)
	d.put(r.hash(key), key, v)
}

// view is what a dict's items, keys and values return.
func (r *run) view(d *Dict, typ string) *view {
	r.charge(32 * len(d.entries))
	v := &view{typ, make([]any, len(d.entries))}
	for i, e := range d.entries {
		switch typ {
		case "dict_keys":
			v.items[i] = e.key
		case "dict_values":
			v.items[i] = e.value
		default:
			r.charge(64)
			v.items[i] = &Tuple{[]any{e.key, e.value}}
		}
	}
	return v
}

// other begins the hash of a key that is not a string. No UTF-8 text begins with it.
const other = "\xff"

func hashString(s string) string {
	if s != "" && s[0] == other[0] {
		return other + "s" + s
	}
	return s
}

// hash is equal for keys that are equal in Python: 1, 1.0 and True are. It fails for what cannot be
// a key.
func (r *run) hash(v any) string {
	h, ok := r.hashed(v)
	if !ok {
		r.fail("a %s as a key is not supported", typeName(v))
	}
	return h
}

func (r *run) hashed(v any) (string, bool) {
	switch v := v.(type) {
	case str:
		r.tick(len(v.s) / 64)
		return hashString(v.s), true
	case nil, *Undefined:
		return other + typeName(v), true
	case *big.Int:
		return other + v.String(), true
	case float64:
		if v != math.Trunc(v) || math.IsInf(v, 0) {
			return other + floatRepr(v), true
		}
		i, _ := big.NewFloat(v).Int(nil)
		return other + i.String(), true
	}
	i, ok := asInt(v)
	return other + strconv.FormatInt(i, 10), ok
}
