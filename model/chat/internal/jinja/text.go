package jinja

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Span is the byte range [Start, End) of a string.
type Span struct{ Start, End int }

// str is a Python string that tracks which of its bytes are content: those that come from a content
// string. Bytes of template literals are never content.
type str struct {
	s    string
	c    *marks
	safe bool // a Markup, which escapes a str that is added to it
}

// marks are the content spans of a string. Nil means none. A substring shares the spans.
type marks struct {
	spans []Span // sorted and disjoint, in offsets of the original string
	base  int    // offset of this string in the original one
}

// whole marks all bytes of a string of any length.
var whole = &marks{}

// lit returns a string without content.
func lit(s string) str { return str{s: s} }

// Literal returns a string without content.
func Literal(s string) any { return lit(s) }

// Content returns a string whose bytes are all content.
func Content(s string) any { return str{s: s, c: whole} }

// AppendContent returns the string v with text appended as content. v must come from Literal,
// Content or DecodeJSON.
func AppendContent(v any, text string) any {
	s := v.(str)
	b := builder{}
	b.write(s, str{s: text, c: whole})
	return b.str()
}

// String returns the text of v if it is a string.
func String(v any) (string, bool) {
	s, ok := v.(str)
	return s.s, ok
}

// cut returns the bytes [from, to) of t.
func (t str) cut(from, to int) str { return str{t.s[from:to], t.c.cut(from, to), t.safe} }

func (m *marks) cut(from, to int) *marks {
	if m == nil || m == whole {
		return m
	}
	from, to = from+m.base, to+m.base
	i, _ := slices.BinarySearchFunc(m.spans, from, func(s Span, at int) int { return s.End - at - 1 })
	if i == len(m.spans) || m.spans[i].Start >= to {
		return nil
	}
	if m.spans[i].Start <= from && m.spans[i].End >= to {
		return whole
	}
	return &marks{m.spans[i:], from}
}

// builder builds a str. It charges its memory to r if r is not nil.
type builder struct {
	r     *run
	b     strings.Builder
	spans []Span
	safe  bool // of the result
}

// grow allocates space for n more bytes.
func (b *builder) grow(n int) {
	if free := b.b.Cap() - b.b.Len(); n > free && b.r != nil {
		b.r.charge(2*b.b.Cap() + n)
		b.b.Grow(n)
	}
}

// raw appends text without content.
func (b *builder) raw(s string) {
	b.grow(len(s))
	b.b.WriteString(s)
}

// mark marks the bytes from start to the end as content.
func (b *builder) mark(start int) {
	end := b.b.Len()
	if start == end {
		return
	}
	if n := len(b.spans); n > 0 && b.spans[n-1].End == start {
		b.spans[n-1].End = end
		return
	}
	if b.r != nil && len(b.spans) == cap(b.spans) {
		b.r.charge(16 * (len(b.spans) + 1))
	}
	b.spans = append(b.spans, Span{start, end})
}

// write appends texts with their marks.
func (b *builder) write(texts ...str) {
	for _, t := range texts {
		b.rewrite(t, b.raw)
	}
}

// rewrite calls f, which appends to b, for every span of t and for the text between spans. The
// output of f for a span is content, so it must depend on that span only.
func (b *builder) rewrite(t str, f func(s string)) {
	if t.c == nil || t.c == whole {
		start := b.b.Len()
		if f(t.s); t.c != nil {
			b.mark(start)
		}
		return
	}
	done := 0
	for _, span := range t.c.spans {
		from, to := max(span.Start-t.c.base, done), min(span.End-t.c.base, len(t.s))
		if from >= to {
			break
		}
		f(t.s[done:from])
		start := b.b.Len()
		f(t.s[from:to])
		b.mark(start)
		done = to
	}
	f(t.s[done:])
}

func (b *builder) str() str {
	t := str{s: b.b.String(), safe: b.safe}
	switch {
	case len(b.spans) == 0:
	case b.spans[0] == Span{0, len(t.s)}:
		t.c = whole
	default:
		t.c = &marks{spans: b.spans}
	}
	return t
}

// joinStr is strings.Join for str.
func joinStr(r *run, sep str, parts ...str) str {
	n := 0
	for _, p := range parts {
		n += len(p.s) + len(sep.s)
	}
	b := &builder{r: r}
	b.grow(n)
	for i, p := range parts {
		if r.tick(1); i > 0 {
			b.write(sep)
		}
		b.write(p)
	}
	return b.str()
}

// chunkSize is the number of bytes that are processed between two checks of the limits.
const chunkSize = 16 << 10

// nextChunk returns the first part of s, up to a character boundary, and counts it as work.
func nextChunk(r *run, s string) string {
	n := min(len(s), chunkSize)
	for n < len(s) && n > chunkSize-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	r.tick(n/64 + 1)
	return s[:n]
}

// runeCount returns the length of s in characters.
func runeCount(r *run, s string) int {
	n := 0
	for s != "" {
		part := nextChunk(r, s)
		n += utf8.RuneCountInString(part)
		s = s[len(part):]
	}
	return n
}

// runeOffset returns the byte offset of character i of s, or len(s) if s is shorter. A negative i
// counts from the end; then the offset is 0 if s is shorter.
func runeOffset(r *run, s string, i int) int {
	at := len(s)
	for ; i < 0 && at > 0; i++ {
		r.tick(1)
		_, width := utf8.DecodeLastRuneInString(s[:at])
		at -= width
	}
	if at < len(s) || i < 0 {
		return at
	}
	for at = 0; at < len(s); {
		part := nextChunk(r, s[at:])
		for j := range part {
			if i == 0 {
				return at + j
			}
			i--
		}
		at += len(part)
	}
	return len(s)
}
