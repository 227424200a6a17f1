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
		r.fail("unhashable type: '%s'", typeName(v))
	}
	return h
}

func (r *run) hashed(v any) (string, bool) {
	switch v := v.(type) {
	case str:
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
	case *Tuple:
		defer r.leave(r.enter())
		h := other + "t"
		for _, x := range v.items {
			k := r.hash(x)
			r.charge(len(h) + len(k) + 8)
			h += strconv.Itoa(len(k)) + ":" + k
		}
		return h, true
	}
	i, ok := asInt(v)
	return other + strconv.FormatInt(i, 10), ok
}
