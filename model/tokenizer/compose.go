package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// manyMarks is the length of a run of marks from which compose replaces
// golang.org/x/text/unicode/norm. That package follows the Stream-Safe Text Format (UAX 15, section
// 13), so it inserts U+034F after 30 marks. A mark decomposes into at most two, and the character
// before it adds at most three.
const manyMarks = 10

// normalize returns s in NFC, for any length of runs of marks.
func normalize(s string) string {
	var b strings.Builder
	for {
		start, end := markRun(s)
		if start < 0 {
			b.WriteString(norm.NFC.String(s))
			return b.String()
		}
		b.WriteString(norm.NFC.String(s[:start]))
		b.WriteString(compose(s[start:end]))
		s = s[end:]
	}
}

// markRun returns the first run of at least manyMarks marks, from the boundary before it to the
// next one, which nothing composes across. start is -1 if there is none.
func markRun(s string) (start, end int) {
	marks, from := 0, 0
	for i := 0; i < len(s); {
		boundary, size := true, 1
		if s[i] >= utf8.RuneSelf {
			p := norm.NFC.PropertiesString(s[i:])
			boundary, size = p.BoundaryBefore(), max(1, p.Size())
		}
		switch {
		case !boundary:
			marks++
		case marks >= manyMarks:
			return from, i
		default:
			marks, from = 0, i
		}
		i += size
	}
	if marks >= manyMarks {
		return from, len(s)
	}
	return -1, -1
}

// placed is a character with its canonical combining class.
type placed struct {
	r     rune
	class uint8
	plain bool // from a span, see nfcPlain
}

// compose returns s in NFC, by the algorithm of the Unicode Standard, section 3.11: full canonical
// decomposition, canonical ordering, canonical composition. It does not decompose Hangul syllables,
// which has the same result.
func compose(s string) string {
	var b strings.Builder
	for _, c := range composeList(decompose(s)) {
		b.WriteRune(c.r)
	}
	return b.String()
}

// composeList does canonical composition in place.
func composeList(list []placed) []placed {
	out := list[:0]
	starter, last := -1, uint8(0) // index of the last starter in out, class of the last character
	for _, c := range list {
		if starter >= 0 && (last == 0 || last < c.class) {
			if r, ok := composite(out[starter].r, c.r); ok {
				out[starter].r = r
				out[starter].plain = out[starter].plain || c.plain
				continue
			}
		}
		if last = c.class; c.class == 0 {
			starter = len(out)
		}
		out = append(out, c)
	}
	return out
}

// decompose returns the canonical decomposition in canonical order.
func decompose(s string) []placed {
	var list []placed
	for _, r := range s {
		list = appendDecomposed(list, r, false)
	}
	return orderMarks(list)
}

// firstDecomposed is the first character with a canonical decomposition, and firstMark the first
// that composes with one before it or has a combining class other than 0.
const (
	firstDecomposed = 0xc0
	firstMark       = 0x300
)

// appendDecomposed appends the canonical decomposition of one character.
func appendDecomposed(list []placed, r rune, plain bool) []placed {
	if r < firstDecomposed {
		return append(list, placed{r: r, plain: plain})
	}
	one := string(r)
	if d := norm.NFC.PropertiesString(one).Decomposition(); d != nil {
		one = string(d)
	}
	for _, r := range one {
		list = append(list, placed{r, norm.NFC.PropertiesString(string(r)).CCC(), plain})
	}
	return list
}

// orderMarks does canonical ordering in place.
func orderMarks(list []placed) []placed {
	for i := 0; i < len(list); i++ {
		start := i
		for i < len(list) && list[i].class != 0 {
			i++
		}
		slices.SortStableFunc(list[start:i], func(a, b placed) int { return int(a.class) - int(b.class) })
	}
	return list
}

// composite returns the primary composite of two characters.
func composite(a, b rune) (rune, bool) {
	if b < firstMark {
		return 0, false
	}
	both := norm.NFC.String(string([]rune{a, b}))
	r, size := utf8.DecodeRuneInString(both)
	return r, size == len(both)
}
