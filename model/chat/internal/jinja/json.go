package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxJSONDepth bounds the nesting of what comes in.
const maxJSONDepth = 150

// maxDigits bounds an integer, as Python does.
const maxDigits = 4300

// DecodeJSON reads one JSON value as Python's json.loads does: the order of keys is kept, of equal
// keys the last one counts, 1 is an int and 1.0 a float. All strings, those of keys too, are
// content.
func DecodeJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decode(d, 0)
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("JSON at byte %d: %w", d.InputOffset(), err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("JSON at byte %d: trailing data after the value", d.InputOffset())
	}
	return v, nil
}

func decode(d *json.Decoder, depth int) (any, error) {
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch tok := tok.(type) {
	case string:
		return str{s: tok, c: whole}, nil
	case json.Number:
		return number(string(tok))
	case json.Delim:
		if depth++; depth > maxJSONDepth {
			return nil, fmt.Errorf("nested more than %d deep", maxJSONDepth)
		}
		if tok == '[' {
			return decodeList(d, depth)
		}
		return decodeDict(d, depth)
	}
	return tok, nil // nil, bool
}

func decodeList(d *json.Decoder, depth int) (any, error) {
	l := &List{}
	for d.More() {
		v, err := decode(d, depth)
		if err != nil {
			return nil, err
		}
		l.Items = append(l.Items, v)
	}
	_, err := d.Token()
	return l, err
}

func decodeDict(d *json.Decoder, depth int) (any, error) {
	out := NewDict()
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := decode(d, depth)
		if err != nil {
			return nil, err
		}
		k := str{s: key.(string), c: whole} // the decoder gives no other keys
		out.put(hashString(k.s), k, v)
	}
	_, err := d.Token()
	return out, err
}

func number(s string) (any, error) {
	if strings.ContainsAny(s, ".eE") {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) { // out of range is inf, as in Python
			return nil, err
		}
		return v, nil
	}
	if v, err := strconv.ParseInt(s, 10, 64); err == nil {
		return v, nil
	}
	if len(s) > maxDigits {
		return nil, fmt.Errorf("an integer of %d digits; the limit is %d", len(s), maxDigits)
	}
	v, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return nil, fmt.Errorf("%q is not a number", s)
	}
	return v, nil
}

// encoder writes JSON as Python's json.dumps.
type encoder struct {
	r        *run
	b        *builder
	ascii    bool
	indent   str
	indented bool
	item     str // separators
	key      str
	sorted   bool
}

// tojson is the filter as transformers redefines it.
func tojson(r *run, x any, a *args) any {
	e := &encoder{r: r, b: r.builder(), item: lit(", "), key: lit(": ")}
	if len(a.pos) > 0 || len(a.names) > 0 {
		e.options(a)
	}
	e.value(x, 0)
	return e.b.str()
}

func (e *encoder) options(a *args) {
	r := e.r
	v := r.take(a, 0, "ensure_ascii", "indent", "separators", "sort_keys")
	e.ascii, e.sorted = r.flag(v[0], false), r.flag(v[3], false)
	switch in := v[1].(type) {
	case absent, nil:
	case str:
		e.indent, e.indented = in, true
	default:
		n := max(0, r.integer(a, in, 0))
		r.charge(n)
		e.indent, e.indented = lit(strings.Repeat(" ", n)), true
	}
	if e.indented {
		e.item = lit(",")
	}
	if given(v[2]) && v[2] != nil {
		sep := r.items(v[2])
		if len(sep) != 2 {
			r.fail("tojson: separators must be a pair of strings")
		}
		e.item, e.key = r.string(a, sep[0], ""), r.string(a, sep[1], "")
	}
}

func (e *encoder) newline(level int) {
	if !e.indented {
		return
	}
	e.b.raw("\n")
	for range level {
		e.b.write(e.indent)
	}
}

func (e *encoder) value(v any, level int) {
	e.r.tick(1)
	switch v := v.(type) {
	case nil:
		e.b.raw("null")
	case bool:
		e.b.raw(strconv.FormatBool(v))
	case float64:
		e.b.raw(floatJSON(v))
	case int64:
		e.b.raw(strconv.FormatInt(v, 10))
	case *big.Int:
		e.b.raw(v.String())
	case str:
		e.str(v)
	case *List:
		e.list(v.Items, level)
	case *Tuple:
		e.list(v.items, level)
	case *Dict:
		e.dict(v, level)
	default:
		e.r.defined(v)
		e.r.fail("Object of type %s is not JSON serializable", typeName(v))
	}
}

func floatJSON(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	return shortest(v)
}

func (e *encoder) list(items []any, level int) {
	if len(items) == 0 {
		e.b.raw("[]")
		return
	}
	defer e.r.leave(e.r.enter())
	e.b.raw("[")
	for i, x := range items {
		if i > 0 {
			e.b.write(e.item)
		}
		e.newline(level + 1)
		e.value(x, level+1)
	}
	e.newline(level)
	e.b.raw("]")
}

func (e *encoder) dict(d *Dict, level int) {
	if len(d.entries) == 0 {
		e.b.raw("{}")
		return
	}
	defer e.r.leave(e.r.enter())
	entries := d.entries
	if e.sorted {
		e.r.charge(entrySize * len(entries))
		entries = append([]entry(nil), entries...)
		sort.SliceStable(entries, func(i, j int) bool {
			return e.r.order(entries[i].key, entries[j].key, "<") < 0
		})
	}
	e.b.raw("{")
	for i, entry := range entries {
		if i > 0 {
			e.b.write(e.item)
		}
		e.newline(level + 1)
		switch k := entry.key.(type) {
		case str:
			e.str(k)
		case float64:
			e.b.raw(`"` + floatJSON(k) + `"`)
		case nil:
			e.b.raw(`"null"`)
		case bool:
			e.b.raw(`"` + strconv.FormatBool(k) + `"`)
		case int64, *big.Int:
			e.b.raw(`"` + e.r.text(k).s + `"`)
		default:
			e.r.fail("keys must be str, int, float, bool or None, not %s", typeName(k))
		}
		e.b.write(e.key)
		e.value(entry.value, level+1)
	}
	e.newline(level)
	e.b.raw("}")
}

// str writes a string. Its quotes are the template's; what becomes of content stays content.
func (e *encoder) str(t str) {
	e.b.raw(`"`)
	for s, content := range t.segments() {
		start := e.b.b.Len()
		for part := range e.r.chunks(s) {
			e.chunk(part)
		}
		if content {
			e.b.mark(start)
		}
	}
	e.b.raw(`"`)
}

func (e *encoder) chunk(s string) {
	done := 0 // what is before it is written
	for i, c := range s {
		if c >= 0x20 && c != '"' && c != '\\' && (!e.ascii || c < 0x7f) {
			continue
		}
		e.b.raw(s[done:i])
		_, width := utf8.DecodeRuneInString(s[i:]) // an invalid byte reads as U+FFFD, width 1
		done = i + width
		switch c {
		case '"':
			e.b.raw(`\"`)
		case '\\':
			e.b.raw(`\\`)
		case '\n':
			e.b.raw(`\n`)
		case '\r':
			e.b.raw(`\r`)
		case '\t':
			e.b.raw(`\t`)
		case '\f':
			e.b.raw(`\f`)
		case '\b':
			e.b.raw(`\b`)
		default:
			if c >= 0x10000 {
				e.b.raw(fmt.Sprintf(`\u%04x`, 0xd800+(c-0x10000)>>10))
				c = 0xdc00 + (c-0x10000)&0x3ff
			}
			e.b.raw(fmt.Sprintf(`\u%04x`, c))
		}
	}
	e.b.raw(s[done:])
}
