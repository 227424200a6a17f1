package jinja

import (
	"iter"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"
)

// Values have Python's types: nil is None; bool, int64, *big.Int, float64 and str; and the types
// below. A *big.Int can only be printed and compared. Lists, tuples and dicts are immutable in the
// sandbox.
type (
	// List is a Python list.
	List struct{ Items []any }
	// Tuple is a Python tuple.
	Tuple struct{ items []any }
	// Undefined is the value of a name, key or attribute that does not exist. It prints as an empty
	// string, is false and has no items. All other operations fail.
	Undefined struct {
		hint     string // error message, or empty
		of, name any    // object without it, or absent for a variable
	}
	// namespace is the only value that a template can change.
	namespace struct{ vars *Dict }
	// view is a range, or the result of dict.items(), keys() or values().
	view struct {
		typ   string
		items []any
	}
	// generator is an iterator. It is true, has no length, and can be used once.
	generator struct{ next func() (any, bool) }
	// function is a builtin function or a bound method.
	function struct {
		name string
		call func(r *run, a *args) any
	}
	// missing is the value of a variable that is not set, and absent of an argument.
	missing struct{}
	absent  struct{}
)

// kind is a value with a type of its own, sequence one with a length, collection one with items.
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

func (t str) length(r *run) int      { return runeCount(r, t.s) }
func (v *List) length(*run) int      { return len(v.Items) }
func (v *Tuple) length(*run) int     { return len(v.items) }
func (d *Dict) length(*run) int      { return len(d.entries) }
func (v *view) length(*run) int      { return len(v.items) }
func (u *Undefined) length(*run) int { return 0 }
func (v *List) all(*run) []any       { return v.Items }
func (v *Tuple) all(*run) []any      { return v.items }
func (v *view) all(*run) []any       { return v.items }
func (u *Undefined) all(*run) []any  { return nil }
func (d *Dict) all(r *run) []any     { return newView(r, d, "dict_keys").items }

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

// lacks returns the value of an item or attribute that x does not have.
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

// defined fails if v is Undefined.
func (r *run) defined(v any) {
	if u, ok := v.(*Undefined); ok {
		r.fail("%s", u.message())
	}
}

func isUndefined(v any) bool {
	_, ok := v.(*Undefined)
	return ok
}

// asInt returns the value of an int64 or a bool, which Python's integers include.
func asInt(v any) (int64, bool) {
	if v == any(true) {
		return 1, true
	}
	i, ok := v.(int64)
	return i, ok || v == any(false)
}

// asFloat returns the value of any number.
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

func truth(r *run, v any) bool {
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

// itemsOf returns the items of v. The caller must not change the slice.
func itemsOf(r *run, v any) (out []any) {
	if c, ok := v.(collection); ok {
		return c.all(r)
	}
	size := 32 // bytes for an item while append grows the slice
	if s, ok := v.(str); ok {
		n := runeCount(r, s.s)
		r.charge(16 * n)
		size, out = 0, make([]any, 0, n)
	}
	for x := range walk(r, v) {
		r.charge(size)
		out = append(out, x)
	}
	return out
}

// walk yields the items of v.
func walk(r *run, v any) iter.Seq[any] {
	next := iterate(r, v)
	return func(yield func(any) bool) {
		for x, ok := next(); ok && yield(x); x, ok = next() {
		}
	}
}

// iterate returns a function that returns the next item of v.
func iterate(r *run, v any) func() (any, bool) {
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

// newList returns a list of items, which the caller must not change afterwards.
func newList(r *run, items []any) *List {
	r.charge(40)
	return &List{items}
}

// Dict is a Python dict. It keeps the order of insertion. It must not change once a template can
// use it.
type Dict struct {
	entries []entry
	index   map[string]int // by hash; nil up to smallDict entries
}

type entry struct {
	hash       string
	key, value any
}

const (
	smallDict = 8
	entrySize = 80 // approximate bytes for an entry and its index
)

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{} }

// Set sets the value of a string key, which is not content.
func (d *Dict) Set(key string, v any) { d.put(hashString(key), lit(key), v) }

// Get returns the value of a string key.
func (d *Dict) Get(key string) (any, bool) {
	i := d.find(hashString(key))
	if i < 0 {
		return nil, false
	}
	return d.entries[i].value, true
}

// All calls f for every string key and its value, in order.
func (d *Dict) All(f func(key string, value any)) {
	for _, e := range d.entries {
		if k, ok := e.key.(str); ok {
			f(k.s, e.value)
		}
	}
}

// Merge sets the entries of other in d, and returns d. If keep is not nil, only values for which it
// returns true.
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

// setItem sets d[key] to v.
func setItem(r *run, d *Dict, key, v any) {
	r.charge(entrySize)
	d.put(keyHash(r, key), key, v)
}

// newView returns the items, keys or values of a dict.
func newView(r *run, d *Dict, typ string) *view {
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

// other is the first byte of the hash of a key that is not a string. Valid UTF-8 does not use it.
const other = "\xff"

func hashString(s string) string {
	if s != "" && s[0] == other[0] {
		return other + "s" + s
	}
	return s
}

// keyHash returns the same string for keys that are equal in Python, such as 1, 1.0 and True. It
// fails if v cannot be a key.
func keyHash(r *run, v any) string {
	h, ok := tryHash(r, v)
	if !ok {
		r.fail("a %s as a key is not supported", typeName(v))
	}
	return h
}

func tryHash(r *run, v any) (string, bool) {
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
