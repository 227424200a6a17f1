package jinja

import (
	"math"
	"math/big"
	"strconv"
)

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

const smallDict = 8

// entrySize is about what an entry takes, index included.
const entrySize = 80

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

// Len returns the number of keys.
func (d *Dict) Len() int { return len(d.entries) }

// All calls f for the keys and values in order. Keys that are not strings are left out.
func (d *Dict) All(f func(key string, value any)) {
	for _, e := range d.entries {
		if k, ok := e.key.(str); ok {
			f(k.s, e.value)
		}
	}
}

// Without returns the dict without the entries for which drop is true.
func (d *Dict) Without(drop func(key string, value any) bool) *Dict {
	out := NewDict()
	for _, e := range d.entries {
		if k, ok := e.key.(str); !ok || !drop(k.s, e.value) {
			out.put(e.hash, e.key, e.value)
		}
	}
	return out
}

// Merge puts the entries of other behind those of d, in the place of earlier ones.
func (d *Dict) Merge(other *Dict) {
	for _, e := range other.entries {
		d.put(e.hash, e.key, e.value)
	}
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
	switch n := len(d.entries); {
	case d.index != nil:
		d.index[hash] = n - 1
	case n > smallDict:
		d.index = make(map[string]int, 2*n)
		for i, e := range d.entries {
			d.index[e.hash] = i
		}
	}
}

// lookup is d[key].
func (r *run) lookup(d *Dict, key any) (any, bool) {
	if i := d.find(r.hash(key)); i >= 0 {
		return d.entries[i].value, true
	}
	return nil, false
}

// set is d[key] = v.
func (r *run) set(d *Dict, key, v any) {
	r.charge(entrySize)
	d.put(r.hash(key), key, v)
}

func (d *Dict) keys() []any {
	out := make([]any, len(d.entries))
	for i, e := range d.entries {
		out[i] = e.key
	}
	return out
}

func (d *Dict) values() []any {
	out := make([]any, len(d.entries))
	for i, e := range d.entries {
		out[i] = e.value
	}
	return out
}

func (d *Dict) pairs() []any {
	out := make([]any, len(d.entries))
	for i, e := range d.entries {
		out[i] = &Tuple{items: []any{e.key, e.value}}
	}
	return out
}

// other begins the hash of a key that is not a string. No UTF-8 text begins with it.
const other = "\xff"

func hashString(s string) string {
	if s != "" && s[0] == other[0] {
		return other + "s" + s
	}
	return s
}

// hash is equal for keys that are equal in Python: 1, 1.0 and True are.
func (r *run) hash(v any) string {
	switch v := v.(type) {
	case str:
		return hashString(v.s)
	case nil:
		return other + "N"
	case *Undefined:
		return other + "U"
	case *big.Int:
		return other + "n" + v.String()
	case *Tuple:
		defer r.leave(r.enter())
		h := other + "t"
		for _, x := range v.items {
			k := r.hash(x)
			r.charge(len(h) + len(k) + 8)
			h += strconv.Itoa(len(k)) + ":" + k
		}
		return h
	case bool, int64, float64:
		if i, ok := asInt(v); ok {
			return other + "n" + strconv.FormatInt(i, 10)
		}
		f, _ := asFloat(v)
		if f == math.Trunc(f) && !math.IsInf(f, 0) {
			i, _ := big.NewFloat(f).Int(nil)
			return other + "n" + i.String()
		}
		return other + "f" + strconv.FormatFloat(f, 'g', -1, 64)
	}
	r.fail("unhashable type: '%s'", typeName(v))
	return ""
}

// hashable reports whether v can be a key.
func (r *run) hashable(v any) bool {
	switch v := v.(type) {
	case str, nil, *Undefined, *big.Int, bool, int64, float64:
		return true
	case *Tuple:
		defer r.leave(r.enter())
		for _, x := range v.items {
			if !r.hashable(x) {
				return false
			}
		}
		return true
	}
	return false
}
