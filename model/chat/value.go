package chat

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// Values are Python's: bool, int, *big.Int (only from JSON, passed on and compared), float64, string, and the types here. An undefined value
// is nil, as in gonja, and so None is a type. Those that can be empty have the kind of a slice or an array, because "and" and "or" are gonja's
// and go by the length. Lists, tuples and dicts are never changed once made: the sandbox of transformers forbids a template to.
type (
	none  [0]struct{}
	list  []any
	tuple []any
	dict  []pair
	pair  struct{ key, value any }
	// view is what dict.items(), keys() and values() and range() give: countable, but without a text of its own.
	view []any
	// generator is what map, select and their like give: always true, not countable, good for one walk.
	generator struct{ items []any }
	// namespace is the one thing that a template can change.
	namespace struct{ values dict }
	// function is one of ours that a template can call.
	function struct{ call func(r *state, a args) any }
)

// get finds a key; Python takes 1, 1.0 and True for the same.
func (d dict) get(key any) (any, bool) {
	for _, p := range d {
		if s, ok := p.key.(string); ok {
			if s == key {
				return p.value, true
			}
		} else if sameKey(p.key, key) {
			return p.value, true
		}
	}
	return nil, false
}

func (d *dict) set(key string, v any) { d.put(key, v) }

func (d *dict) put(key, v any) {
	for i, p := range *d {
		if p.key == key || sameKey(p.key, key) {
			(*d)[i].value = v
			return
		}
	}
	*d = append(*d, pair{key, v})
}

func sameKey(a, b any) bool {
	if c, ok := compareNumbers(a, b); ok {
		return c == 0
	}
	switch a.(type) {
	case string, none:
		return a == b
	}
	return false
}

// unwrap takes a value out of gonja.
func unwrap(v *exec.Value) any {
	if v == nil || v.IsNil() {
		return nil
	}
	if v.IsError() {
		panic(v.Interface().(error))
	}
	return v.Interface()
}

func typeName(v any) string {
	switch v.(type) {
	case nil:
		return "undefined"
	case none:
		return "NoneType"
	case bool:
		return "bool"
	case int, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case list:
		return "list"
	case tuple:
		return "tuple"
	case dict:
		return "dict"
	case view:
		return "view or range"
	case *namespace:
		return "Namespace"
	case *generator:
		return "generator"
	case *loop:
		return "LoopContext"
	}
	return "function"
}

// asInt takes Python's integers, of which bool is one.
func asInt(v any) (int, bool) {
	switch v := v.(type) {
	case int:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

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
	return big.NewInt(int64(i)), ok
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil, none:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	}
	n, ok := length(v)
	return !ok || n > 0
}

// length is Python's len, for what has one.
func length(v any) (int, bool) {
	switch v := v.(type) {
	case nil:
		return 0, true
	case string:
		return utf8.RuneCountInString(v), true
	case list:
		return len(v), true
	case tuple:
		return len(v), true
	case dict:
		return len(v), true
	case view:
		return len(v), true
	}
	return 0, false
}

// items lists what iterating over v gives.
func (r *state) items(v any) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case list:
		return v
	case tuple:
		return v
	case view:
		return v
	case dict:
		r.charge(16 * len(v))
		out := make([]any, len(v))
		for i, p := range v {
			out[i] = p.key
		}
		return out
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
	}
	r.fail("'%s' object is not iterable", typeName(v))
	return nil
}

// defined fails for an undefined value.
func (r *state) defined(v any) {
	if v == nil {
		r.fail("a value is undefined")
	}
}

// str is Python's str.
func (r *state) str(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	var b strings.Builder
	r.repr(&b, v)
	return b.String()
}

// repr writes Python's repr.
func (r *state) repr(b *strings.Builder, v any) {
	r.charge(8)
	switch v := v.(type) {
	case nil:
		b.WriteString("Undefined")
	case none:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case int:
		b.WriteString(strconv.Itoa(v))
	case *big.Int:
		b.WriteString(v.String())
	case float64:
		b.WriteString(floatText(v))
	case string:
		r.charge(2 * len(v))
		reprString(b, v)
	case list:
		r.reprItems(b, "[", v, "]")
	case tuple:
		if len(v) == 1 {
			r.reprItems(b, "(", v, ",)")
		} else {
			r.reprItems(b, "(", v, ")")
		}
	case dict:
		defer r.leave(r.enter())
		b.WriteByte('{')
		for i, p := range v {
			if i > 0 {
				b.WriteString(", ")
			}
			r.repr(b, p.key)
			b.WriteString(": ")
			r.repr(b, p.value)
		}
		b.WriteByte('}')
	default:
		r.fail("printing a %s, or joining it to a string, is not supported", typeName(v))
	}
}

func (r *state) reprItems(b *strings.Builder, open string, items []any, closing string) {
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

// floatText is the shortest text that reads back as v, in Python's form: 1.0, 1e+20, 1e-05.
func floatText(v float64) string {
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
