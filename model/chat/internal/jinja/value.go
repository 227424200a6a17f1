package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
)

// Values are Python's: nil is None, bool, int64, *big.Int (only from JSON, passed on and compared), float64, string, and the types here.
// Lists, tuples and dicts are never changed once made: the sandbox of transformers forbids a template to.
type (
	// List is a Python list.
	List struct{ Items []any }
	// Tuple is a Python tuple.
	Tuple struct{ Items []any }
	// Undefined is the value of a name, key or attribute that is not there. It prints as nothing, is false and empty, and everything else
	// done with it fails with what.
	Undefined struct{ what string }
	// namespace is the one thing that a template can change.
	namespace struct{ vars *Dict }
	// view is what dict.items(), keys() and values() give: countable, not indexable.
	view struct {
		kind  string
		items []any
	}
	// generator is what map, select and their like give: always true, not countable, good for one walk.
	generator struct{ items []any }
	rangeOf   struct{ start, stop, step int64 }
	// function is anything that can be called.
	function struct {
		name  string
		call  func(r *run, a args) any
		macro bool
	}
	// markup is a string behind the filter safe. Jinja2 would escape what it is joined with; no chat template wants that, so joining fails.
	markup string
)

// Dict is a Python dict: it keeps the order in which its keys came.
type Dict struct {
	keys, values []any
	index        map[string]int
}

// NewDict returns an empty dict.
func NewDict() *Dict { return &Dict{index: map[string]int{}} }

// Set puts a value under a string key, in the place of an earlier one.
func (d *Dict) Set(key string, v any) { d.put("s"+key, key, v) }

// Get returns the value under a string key.
func (d *Dict) Get(key string) (any, bool) {
	i, ok := d.index["s"+key]
	if !ok {
		return nil, false
	}
	return d.values[i], true
}

// Len is the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// All calls f for each key and value in order.
func (d *Dict) All(f func(key, value any)) {
	for i, k := range d.keys {
		f(k, d.values[i])
	}
}

func (d *Dict) put(hash string, key, v any) {
	if i, ok := d.index[hash]; ok {
		d.values[i] = v
		return
	}
	d.index[hash] = len(d.keys)
	d.keys = append(d.keys, key)
	d.values = append(d.values, v)
}

// hash is equal for keys that Python takes for the same: 1, 1.0 and True are.
func (r *run) hash(v any) string {
	switch v := v.(type) {
	case string:
		return "s" + v
	case nil:
		return "N"
	case *big.Int:
		return "n" + v.String()
	case *Tuple:
		defer r.leave(r.enter())
		h := "t"
		for _, x := range v.Items {
			k := r.hash(x)
			r.charge(len(h) + len(k) + 8)
			h += strconv.Itoa(len(k)) + ":" + k
		}
		return h
	case bool, int64, float64:
		if i, ok := asInt(v); ok {
			return "n" + strconv.FormatInt(i, 10)
		}
		f, _ := asFloat(v)
		if f == math.Trunc(f) && math.Abs(f) < 1<<62 {
			return "n" + strconv.FormatInt(int64(f), 10)
		}
		return "f" + strconv.FormatFloat(f, 'g', -1, 64)
	}
	r.fail("unhashable type: '%s'", typeName(v))
	return ""
}

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
	case string:
		return "str"
	case markup:
		return "Markup"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *Undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *view:
		return v.kind
	case *generator:
		return "generator"
	case *rangeOf:
		return "range"
	case *loop:
		return "LoopContext"
	case *function:
		return "function"
	}
	return fmt.Sprintf("%T", v)
}

// asInt takes Python's integers, of which bool is one.
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

func truth(v any) bool {
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
	case string:
		return v != ""
	case markup:
		return v != ""
	case *List:
		return len(v.Items) > 0
	case *Tuple:
		return len(v.Items) > 0
	case *Dict:
		return len(v.keys) > 0
	case *view:
		return len(v.items) > 0
	case *rangeOf:
		return v.len() > 0
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
func length(v any) (int, bool) {
	switch v := v.(type) {
	case string:
		return runeCount(v), true
	case markup:
		return runeCount(string(v)), true
	case *List:
		return len(v.Items), true
	case *Tuple:
		return len(v.Items), true
	case *Dict:
		return len(v.keys), true
	case *view:
		return len(v.items), true
	case *rangeOf:
		return int(v.len()), true
	case *Undefined:
		return 0, true
	}
	return 0, false
}

// items lists what iterating over v gives.
func (r *run) items(v any) []any {
	switch v := v.(type) {
	case *List:
		return v.Items
	case *Tuple:
		return v.Items
	case *Dict:
		return v.keys
	case *view:
		return v.items
	case *generator:
		items := v.items
		v.items = nil
		return items
	case string:
		r.charge(24 * len(v))
		out := make([]any, 0, len(v))
		for _, c := range v {
			out = append(out, string(c))
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
	case *Undefined:
		return nil
	}
	r.fail("'%s' object is not iterable", typeName(v))
	return nil
}

// str is Python's str.
func (r *run) str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case *Undefined:
		return ""
	}
	var b strings.Builder
	r.repr(&b, v)
	return b.String()
}

// repr writes Python's repr.
func (r *run) repr(b *strings.Builder, v any) {
	r.tick(1)
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case *big.Int:
		b.WriteString(v.String())
	case float64:
		b.WriteString(floatRepr(v))
	case string:
		r.charge(2 * len(v))
		reprString(b, v)
	case *Undefined:
		b.WriteString("Undefined")
	case *List:
		r.reprItems(b, "[", v.Items, "]")
	case *Tuple:
		if len(v.Items) == 1 {
			r.reprItems(b, "(", v.Items, ",)")
		} else {
			r.reprItems(b, "(", v.Items, ")")
		}
	case *view:
		r.reprItems(b, v.kind+"([", v.items, "])")
	case *Dict:
		defer r.leave(r.enter())
		b.WriteByte('{')
		for i, k := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			r.repr(b, k)
			b.WriteString(": ")
			r.repr(b, v.values[i])
		}
		b.WriteByte('}')
	case *rangeOf:
		if v.step == 1 {
			fmt.Fprintf(b, "range(%d, %d)", v.start, v.stop)
		} else {
			fmt.Fprintf(b, "range(%d, %d, %d)", v.start, v.stop, v.step)
		}
	default:
		r.fail("a %s has no text of its own: it cannot be printed or joined to a string", typeName(v))
	}
}

func (r *run) reprItems(b *strings.Builder, open string, items []any, closing string) {
	defer r.leave(r.enter())
	b.WriteString(open)
	for i, x := range items {
		if i > 0 {
			b.WriteString(", ")
		}
		r.repr(b, x)
	}
	b.WriteString(closing)
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
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// reprString quotes with ' unless the text holds that and no ".
func reprString(b *strings.Builder, s string) {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	b.WriteRune(quote)
	for _, c := range s {
		switch {
		case c == quote || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(c):
			b.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(b, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(b, `\u%04x`, c)
		default:
			fmt.Fprintf(b, `\U%08x`, c)
		}
	}
	b.WriteRune(quote)
}

// equal is Python's ==, which never fails.
func (r *run) equal(a, b any) bool {
	r.tick(1)
	if m, ok := a.(markup); ok {
		a = string(m)
	}
	if m, ok := b.(markup); ok {
		b = string(m)
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case string:
		y, ok := b.(string)
		if ok && len(x) == len(y) {
			r.tick(len(x) / 64)
		}
		return ok && x == y
	case *Undefined:
		_, ok := b.(*Undefined)
		return ok
	case *List:
		y, ok := b.(*List)
		return ok && r.equalItems(x.Items, y.Items)
	case *Tuple:
		y, ok := b.(*Tuple)
		return ok && r.equalItems(x.Items, y.Items)
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || len(x.keys) != len(y.keys) {
			return false
		}
		defer r.leave(r.enter())
		for h, i := range x.index {
			j, ok := y.index[h]
			if !ok || !r.equal(x.values[i], y.values[j]) {
				return false
			}
		}
		return true
	case *view:
		if y, ok := b.(*view); ok && x.kind != "dict_values" {
			r.fail("comparing %s is not supported", typeName(y))
		}
		return a == b
	case *rangeOf:
		y, ok := b.(*rangeOf)
		return ok && *x == *y
	}
	if c, ok := compareNumbers(a, b); ok {
		return c == 0
	}
	return a == b // functions, namespaces, generators: the same one
}

func (r *run) equalItems(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	defer r.leave(r.enter())
	for i := range a {
		if !r.equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// compareNumbers gives -1, 0, 1, or 2 where a NaN is in it; ok is false when one of the two is no number.
func compareNumbers(a, b any) (c int, ok bool) {
	_, aFloat := a.(float64)
	_, bFloat := b.(float64)
	if !aFloat && !bFloat {
		x, okA := asBig(a)
		y, okB := asBig(b)
		if !okA || !okB {
			return 0, false
		}
		return x.Cmp(y), true
	}
	x, okA := asFloat(a)
	y, okB := asFloat(b)
	switch {
	case !okA || !okB:
		return 0, false
	case x < y:
		return -1, true
	case x > y:
		return 1, true
	case x == y:
		return 0, true
	}
	return 2, true
}

func asBig(v any) (*big.Int, bool) {
	if b, ok := v.(*big.Int); ok {
		return b, true
	}
	i, ok := asInt(v)
	return big.NewInt(i), ok
}

// order is Python's ordering; op names the operator in the error for values that have none between them. A NaN gives 2.
func (r *run) order(a, b any, op string) int {
	r.tick(1)
	if c, ok := compareNumbers(a, b); ok {
		return c
	}
	switch x := a.(type) {
	case string:
		if y, ok := b.(string); ok {
			r.tick(min(len(x), len(y)) / 64)
			return strings.Compare(x, y) // UTF-8 sorts as its code points do
		}
	case *List:
		if y, ok := b.(*List); ok {
			return r.orderItems(x.Items, y.Items, op)
		}
	case *Tuple:
		if y, ok := b.(*Tuple); ok {
			return r.orderItems(x.Items, y.Items, op)
		}
	}
	r.defined(a)
	r.defined(b)
	r.fail("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	return 0
}

func (r *run) orderItems(a, b []any, op string) int {
	defer r.leave(r.enter())
	for i := range min(len(a), len(b)) {
		if !r.equal(a[i], b[i]) {
			return r.order(a[i], b[i], op)
		}
	}
	switch {
	case len(a) < len(b):
		return -1
	case len(a) > len(b):
		return 1
	}
	return 0
}

// defined fails for an undefined value, with what is missing.
func (r *run) defined(v any) {
	if u, ok := v.(*Undefined); ok {
		r.fail("%s", u.what)
	}
}
