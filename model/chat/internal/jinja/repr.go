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

// text is Python's str.
func (r *run) text(v any) str {
	switch v := v.(type) {
	case str:
		return str{s: v.s, c: v.c}
	case *Undefined:
		return str{}
	case int64:
		return lit(strconv.FormatInt(v, 10))
	}
	b := r.builder()
	r.repr(b, v)
	return b.str()
}

// soft is what filters on text do with their value: a Markup stays one.
func (r *run) soft(v any) str {
	if s, ok := v.(str); ok {
		return s
	}
	return r.text(v)
}

// repr writes Python's repr.
func (r *run) repr(b *builder, v any) {
	r.tick(1)
	switch v := v.(type) {
	case nil:
		b.raw("None")
	case bool:
		if v {
			b.raw("True")
		} else {
			b.raw("False")
		}
	case int64:
		b.raw(strconv.FormatInt(v, 10))
	case *big.Int:
		b.raw(v.String())
	case float64:
		b.raw(floatRepr(v))
	case str:
		r.reprString(b, v)
	case *Undefined:
		b.raw("Undefined")
	case *List:
		r.reprItems(b, "[", v.Items, "]")
	case *Tuple:
		if len(v.items) == 1 {
			r.reprItems(b, "(", v.items, ",)")
		} else {
			r.reprItems(b, "(", v.items, ")")
		}
	case *view:
		r.reprItems(b, v.kind+"([", v.items, "])")
	case *Dict:
		r.reprDict(b, v)
	case *namespace:
		b.raw("<Namespace ")
		r.reprDict(b, v.vars)
		b.raw(">")
	case *rangeOf:
		if v.step == 1 {
			b.raw(fmt.Sprintf("range(%d, %d)", v.start, v.stop))
		} else {
			b.raw(fmt.Sprintf("range(%d, %d, %d)", v.start, v.stop, v.step))
		}
	case *macro:
		if v.name == "" {
			b.raw("<Macro anonymous>")
		} else {
			b.raw("<Macro '" + v.name + "'>")
		}
	case *loop:
		b.raw(fmt.Sprintf("<LoopContext %d/%d>", v.index+1, v.length(r)))
	default:
		r.fail("printing a %s is not supported", typeName(v))
	}
}

func (r *run) reprItems(b *builder, open string, items []any, closing string) {
	defer r.leave(r.enter())
	b.raw(open)
	for i, x := range items {
		if i > 0 {
			b.raw(", ")
		}
		r.repr(b, x)
	}
	b.raw(closing)
}

func (r *run) reprDict(b *builder, d *Dict) {
	defer r.leave(r.enter())
	b.raw("{")
	for i, e := range d.entries {
		if i > 0 {
			b.raw(", ")
		}
		r.repr(b, e.key)
		b.raw(": ")
		r.repr(b, e.value)
	}
	b.raw("}")
}

// shortest is the shortest text that reads back as the finite v, in Python's form.
func shortest(v float64) string {
	if a := math.Abs(v); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(v, 'e', -1, 64)
	}
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// reprString quotes with ' unless the text contains that and no ".
func (r *run) reprString(b *builder, t str) {
	quote := '\''
	if strings.Contains(t.s, "'") && !strings.Contains(t.s, `"`) {
		quote = '"'
	}
	mark := string(quote)
	if t.safe {
		b.raw("Markup(")
	}
	b.raw(mark)
	for s, content := range t.segments() {
		start := b.b.Len()
		for part := range r.chunks(s) {
			reprChunk(b, part, quote)
		}
		if content {
			b.mark(start)
		}
	}
	b.raw(mark)
	if t.safe {
		b.raw(")")
	}
}

func reprChunk(b *builder, s string, quote rune) {
	done := 0 // what is before it is written
	for i, c := range s {
		if c >= ' ' && c != quote && c != '\\' && (c < 0x7f || unicode.IsPrint(c)) {
			continue
		}
		b.raw(s[done:i])
		_, width := utf8.DecodeRuneInString(s[i:])
		done = i + width
		switch {
		case c == quote || c == '\\':
			b.raw(`\` + string(c))
		case c == '\n':
			b.raw(`\n`)
		case c == '\r':
			b.raw(`\r`)
		case c == '\t':
			b.raw(`\t`)
		case c < 0x100:
			b.raw(fmt.Sprintf(`\x%02x`, c))
		case c < 0x10000:
			b.raw(fmt.Sprintf(`\u%04x`, c))
		default:
			b.raw(fmt.Sprintf(`\U%08x`, c))
		}
	}
	b.raw(s[done:])
}
