package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxJSONDepth bounds the nesting of what comes in.
const maxJSONDepth = 150

// maxDigits bounds an integer, as Python does.
const maxDigits = 4300

// decodeJSON reads one JSON value as Python's json.loads does: the order of keys is kept, of equal keys the last one counts, 1 is an int and
// 1.0 a float.
func decodeJSON(data []byte) (any, error) {
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
		return nil, fmt.Errorf("JSON at byte %d: something follows the value", d.InputOffset())
	}
	return v, nil
}

func decode(d *json.Decoder, depth int) (any, error) {
	tok, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch tok := tok.(type) {
	case json.Number:
		return jsonNumber(string(tok))
	case json.Delim:
		if depth++; depth > maxJSONDepth {
			return nil, fmt.Errorf("nested more than %d deep", maxJSONDepth)
		}
		if tok == '[' {
			return decodeList(d, depth)
		}
		return decodeDict(d, depth)
	case nil:
		return none{}, nil
	}
	return tok, nil // bool, string
}

func decodeList(d *json.Decoder, depth int) (any, error) {
	l := list{}
	for d.More() {
		v, err := decode(d, depth)
		if err != nil {
			return nil, err
		}
		l = append(l, v)
	}
	_, err := d.Token()
	return l, err
}

func decodeDict(d *json.Decoder, depth int) (any, error) {
	out := dict{}
	at := map[string]int{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		v, err := decode(d, depth)
		if err != nil {
			return nil, err
		}
		name := key.(string) // the decoder gives no other keys
		if i, ok := at[name]; ok {
			out[i].value = v
			continue
		}
		at[name] = len(out)
		out = append(out, pair{name, v})
	}
	_, err := d.Token()
	return out, err
}

func jsonNumber(s string) (any, error) {
	if strings.ContainsAny(s, ".eE") {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) { // out of range is inf, as in Python
			return nil, err
		}
		return v, nil
	}
	if v, err := strconv.Atoi(s); err == nil {
		return v, nil
	}
	if len(s) > maxDigits {
		return nil, fmt.Errorf("an integer of %d digits, at most %d are read", len(s), maxDigits)
	}
	v, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return nil, fmt.Errorf("%q is not a number", s)
	}
	return v, nil
}

// encoder writes JSON as Python's json.dumps.
type encoder struct {
	r        *state
	b        strings.Builder
	ascii    bool
	indent   string
	indented bool
	item     string // separators
	key      string
	sorted   bool
}

// tojson is the filter as transformers redefines it.
func tojson(r *state, x any, a args) any {
	v := r.take(a, 0, "ensure_ascii", "indent", "separators", "sort_keys")
	e := &encoder{r: r, ascii: flag(v[0], false), sorted: flag(v[3], false), item: ", ", key: ": "}
	switch in := v[1].(type) {
	case absent, none:
	case string:
		e.indent, e.indented = in, true
	default:
		e.indent, e.indented = strings.Repeat(" ", min(max(0, r.integer(a, in, 0)), 1000)), true
	}
	if e.indented {
		e.item = ","
	}
	if v[2] != (absent{}) && v[2] != (none{}) {
		sep := r.items(v[2])
		if len(sep) != 2 {
			r.fail("tojson: separators are a pair of strings")
		}
		e.item, e.key = r.text(a, sep[0], ""), r.text(a, sep[1], "")
	}
	e.value(x, 0)
	return e.b.String()
}

func (e *encoder) write(s string) {
	e.r.charge(len(s))
	e.b.WriteString(s)
}

func (e *encoder) newline(level int) {
	if e.indented {
		e.r.charge(1 + level*len(e.indent))
		e.b.WriteString("\n" + strings.Repeat(e.indent, level))
	}
}

func (e *encoder) value(v any, level int) {
	e.r.tick(1)
	switch v := v.(type) {
	case none:
		e.write("null")
	case bool:
		e.write(strconv.FormatBool(v))
	case float64:
		e.write(floatJSON(v))
	case int, *big.Int:
		e.write(e.r.str(v))
	case string:
		e.str(v)
	case list:
		e.list(v, level)
	case tuple:
		e.list(v, level)
	case dict:
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
	return floatText(v)
}

func (e *encoder) list(items []any, level int) {
	if len(items) == 0 {
		e.write("[]")
		return
	}
	defer e.r.leave(e.r.enter())
	e.write("[")
	for i, x := range items {
		if i > 0 {
			e.write(e.item)
		}
		e.newline(level + 1)
		e.value(x, level+1)
	}
	e.newline(level)
	e.write("]")
}

func (e *encoder) dict(d dict, level int) {
	if len(d) == 0 {
		e.write("{}")
		return
	}
	defer e.r.leave(e.r.enter())
	if e.sorted {
		e.r.charge(32 * len(d))
		d = slices.Clone(d)
		slices.SortStableFunc(d, func(a, b pair) int { return e.r.order(a.key, b.key, "<") })
	}
	e.write("{")
	for i, p := range d {
		if i > 0 {
			e.write(e.item)
		}
		e.newline(level + 1)
		switch k := p.key.(type) {
		case string:
			e.str(k)
		case float64:
			e.str(floatJSON(k))
		case none:
			e.str("null")
		case bool:
			e.str(strconv.FormatBool(k))
		default:
			e.str(e.r.str(k))
		}
		e.write(e.key)
		e.value(p.value, level+1)
	}
	e.newline(level)
	e.write("}")
}

func (e *encoder) str(s string) {
	e.r.charge(len(s) + 2)
	e.b.WriteByte('"')
	done := 0 // what is before it is written
	for i, c := range s {
		if c >= 0x20 && c != '"' && c != '\\' && (!e.ascii || c < 0x7f) {
			continue
		}
		e.b.WriteString(s[done:i])
		_, width := utf8.DecodeRuneInString(s[i:]) // an invalid byte reads as U+FFFD and has width 1
		done = i + width
		e.r.charge(6)
		switch c {
		case '"', '\\':
			e.b.WriteByte('\\')
			e.b.WriteRune(c)
		case '\n':
			e.b.WriteString(`\n`)
		case '\r':
			e.b.WriteString(`\r`)
		case '\t':
			e.b.WriteString(`\t`)
		case '\f':
			e.b.WriteString(`\f`)
		case '\b':
			e.b.WriteString(`\b`)
		default:
			if c >= 0x10000 {
				fmt.Fprintf(&e.b, `\u%04x`, 0xd800+(c-0x10000)>>10)
				c = 0xdc00 + (c-0x10000)&0x3ff
			}
			fmt.Fprintf(&e.b, `\u%04x`, c)
		}
	}
	e.b.WriteString(s[done:])
	e.b.WriteByte('"')
}
