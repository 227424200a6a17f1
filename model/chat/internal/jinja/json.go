package jinja

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// maxJSONDepth limits the nesting of decoded values.
const maxJSONDepth = 150

// maxDigits limits the length of an integer. Longer ones than 308 digits overflow a float64, which
// comparisons use.
const maxDigits = 300

// DecodeJSON decodes one JSON value like Python's json.loads: it keeps the order of keys, the last
// of several equal keys wins, 1 is an int and 1.0 a float. All strings are content, including keys.
func DecodeJSON(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := decode(d, 0)
	if err != nil {
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
		list, dict := &List{}, NewDict()
		for d.More() {
			var key str
			if tok == '{' {
				k, err := decode(d, depth)
				if err != nil {
					return nil, err
				}
				key = k.(str) // the decoder returns no other keys
			}
			v, err := decode(d, depth)
			if err != nil {
				return nil, err
			}
			if tok == '{' {
				dict.put(hashString(key.s), key, v)
			} else {
				list.Items = append(list.Items, v)
			}
		}
		if _, err := d.Token(); err != nil || tok == '[' {
			return list, err
		}
		return dict, nil
	}
	return tok, nil // nil, bool
}

func number(s string) (any, error) {
	if strings.ContainsAny(s, ".eE") {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) { // inf if out of range, as in Python
			return nil, err
		}
		return v, nil
	}
	if len(s) > maxDigits {
		return nil, fmt.Errorf("an integer of %d digits is not supported; the limit is %d", len(s), maxDigits)
	}
	v, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return nil, fmt.Errorf("%q is not a number", s)
	}
	return small(v), nil
}

// encoder encodes JSON like Python's json.dumps.
type encoder struct {
	*builder
	ascii, sorted, indented bool
	indent, item, key       str // item and key are the separators after them
}

// tojson is the filter that transformers puts in place of Jinja2's.
func tojson(r *run, x any, a *args) any {
	e := &encoder{builder: &builder{r: r}, item: lit(", "), key: lit(": ")}
	v := takeArgs(r, a, 0, "ensure_ascii", "indent", "separators", "sort_keys")
	e.ascii, e.sorted = flagArg(r, v[0]), flagArg(r, v[3])
	if set(v[1]) {
		e.indented, e.item = true, lit(",")
		var ok bool
		if e.indent, ok = v[1].(str); !ok {
			e.indent = repeat(r, lit(" "), int64(integerArg(r, a, v[1], 0))).(str)
		}
	}
	if set(v[2]) {
		sep := itemsOf(r, v[2])
		r.failIf(len(sep) != 2, "tojson: separators must be a pair of strings")
		e.item, e.key = stringArg(r, a, sep[0], ""), stringArg(r, a, sep[1], "")
	}
	e.value(x, 0)
	return e.str()
}

func (e *encoder) newline(level int) {
	if e.indented {
		e.write(lit("\n"), repeat(e.r, e.indent, int64(level)).(str))
	}
}

func (e *encoder) value(v any, level int) {
	e.r.tick(1)
	text, isScalar := e.scalar(v)
	switch v := v.(type) {
	case str:
		e.string(v)
	case *List, *Tuple:
		e.list(itemsOf(e.r, v), level)
	case *Dict:
		e.dict(v, level)
	default:
		e.r.defined(v)
		e.r.failIf(!isScalar, "Object of type %s is not JSON serializable", typeName(v))
		e.raw(text)
	}
}

func (e *encoder) scalar(v any) (string, bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case *big.Int:
		return v.String(), true
	case float64:
		return strings.NewReplacer("nan", "NaN", "inf", "Infinity").Replace(floatRepr(v)), true
	}
	return "", false
}

func (e *encoder) list(items []any, level int) {
	defer e.r.leave(e.r.enter())
	e.raw("[")
	for i, x := range items {
		if i > 0 {
			e.write(e.item)
		}
		e.newline(level + 1)
		e.value(x, level+1)
	}
	if len(items) > 0 {
		e.newline(level)
	}
	e.raw("]")
}

func (e *encoder) dict(d *Dict, level int) {
	defer e.r.leave(e.r.enter())
	entries := d.entries
	if e.sorted {
		e.r.charge(entrySize * len(entries))
		entries = slices.Clone(entries)
		slices.SortStableFunc(entries, func(a, b entry) int { return compare(e.r, a.key, b.key, "<") })
	}
	e.raw("{")
	for i, entry := range entries {
		if i > 0 {
			e.write(e.item)
		}
		e.newline(level + 1)
		key, isString := entry.key.(str)
		if text, ok := e.scalar(entry.key); ok {
			key = lit(text)
		} else if !isString {
			e.r.fail("keys must be str, int, float, bool or None, not %s", typeName(entry.key))
		}
		e.string(key)
		e.write(e.key)
		e.value(entry.value, level+1)
	}
	if len(entries) > 0 {
		e.newline(level)
	}
	e.raw("}")
}

// string writes a string. The quotes are not content; escaped content is.
func (e *encoder) string(t str) {
	e.raw(`"`)
	e.mapRunes(t, func(c rune) string {
		if i := strings.IndexRune("\"\\\n\r\t\f\b", c); i >= 0 {
			return `\` + `"\nrtfb`[i:i+1]
		}
		switch {
		case c >= ' ' && (!e.ascii || c < 0x7f):
			return ""
		case c < 0x10000:
			return fmt.Sprintf(`\u%04x`, c)
		}
		high, low := utf16.EncodeRune(c)
		return fmt.Sprintf(`\u%04x\u%04x`, high, low)
	})
	e.raw(`"`)
}
