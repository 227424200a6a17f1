package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// textOf is Python's str(v).
func textOf(r *run, v any) str {
	t := softText(r, v)
	t.safe = false
	return t
}

// softText is textOf, except that a Markup stays a Markup, as in Jinja2's filters on text.
func softText(r *run, v any) str {
	switch v := v.(type) {
	case str:
		return v
	case *Undefined:
		return str{}
	}
	b := &builder{r: r}
	b.repr(v)
	return b.str()
}

// repr writes Python's repr(v).
func (b *builder) repr(v any) {
	b.r.tick(1)
	switch v := v.(type) {
	case nil:
		b.raw("None")
	case bool:
		b.raw(strings.ToUpper(strconv.FormatBool(v)[:1]) + strconv.FormatBool(v)[1:])
	case int64:
		b.raw(strconv.FormatInt(v, 10))
	case *big.Int:
		b.raw(v.String())
	case float64:
		b.raw(floatRepr(v))
	case str:
		b.quote(v)
	case *Undefined:
		b.raw("Undefined")
	case *List:
		b.reprItems("[", v.Items, "]")
	case *Tuple:
		if len(v.items) == 1 {
			b.reprItems("(", v.items, ",)")
		} else {
			b.reprItems("(", v.items, ")")
		}
	case *view:
		b.r.failIf(v.typ == "range", "printing a range is not supported")
		b.reprItems(v.typ+"([", v.items, "])")
	case *Dict:
		b.reprDict(v)
	default:
		b.r.fail("printing a %s is not supported", typeName(v))
	}
}

func (b *builder) reprItems(open string, items []any, closing string) {
	defer b.r.leave(b.r.enter())
	for i, x := range items {
		if b.raw(open); i == 0 {
			open = ", "
		}
		b.repr(x)
	}
	if len(items) == 0 {
		b.raw(open)
	}
	b.raw(closing)
}

func (b *builder) reprDict(d *Dict) {
	defer b.r.leave(b.r.enter())
	b.raw("{")
	for i, e := range d.entries {
		if i > 0 {
			b.raw(", ")
		}
		b.repr(e.key)
		b.raw(": ")
		b.repr(e.value)
	}
	b.raw("}")
}

// floatRepr returns the shortest text that parses as v, in Python's form: 1.0, 1e+20, 1e-05.
func floatRepr(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return strings.TrimPrefix(strings.ToLower(strconv.FormatFloat(v, 'f', -1, 64)), "+")
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

// quote writes a string literal. It uses " if t contains ' and no ", and ' otherwise.
func (b *builder) quote(t str) {
	quote := '\''
	if strings.Contains(t.s, "'") && !strings.Contains(t.s, `"`) {
		quote = '"'
	}
	b.r.failIf(t.safe, "printing a Markup within another value is not supported")
	b.raw(string(quote))
	b.mapRunes(t, func(c rune) string {
		switch {
		case c == quote || c == '\\':
			return `\` + string(c)
		case c >= ' ' && (c < 0x7f || unicode.IsPrint(c)):
			return ""
		case strings.ContainsRune("\n\r\t", c):
			return strings.Trim(strconv.QuoteRune(c), "'")
		case c < 0x100:
			return fmt.Sprintf(`\x%02x`, c)
		case c < 0x10000:
			return fmt.Sprintf(`\u%04x`, c)
		}
		return fmt.Sprintf(`\U%08x`, c)
	})
	b.raw(string(quote))
}

// mapRunes writes t. A character for which replace returns a text is replaced with it.
func (b *builder) mapRunes(t str, replace func(c rune) string) {
	b.rewrite(t, func(s string) {
		for s != "" {
			part, done := nextChunk(b.r, s), 0 // part[:done] is written
			for i, c := range part {
				if out := replace(c); out != "" {
					b.raw(part[done:i])
					b.raw(out)
					_, width := utf8.DecodeRuneInString(part[i:]) // an invalid byte has width 1
					done = i + width
				}
			}
			b.raw(part[done:])
			s = s[len(part):]
		}
	})
}
