package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Span is the byte range [Start, End) of a text.
type Span struct{ Start, End int }

// checkSpans returns an error unless spans are sorted, disjoint and within a text of size bytes. It
// drops empty spans, which no token can overlap.
func checkSpans(spans []Span, size int) ([]Span, error) {
	end, empty := 0, false
	for i, s := range spans {
		if s.Start < end || s.End < s.Start || s.End > size {
			return nil, fmt.Errorf("tokenizer: EncodeOptions.Plain[%d] is [%d, %d): spans must be sorted, disjoint "+
				"and within the text of %d bytes", i, s.Start, s.End, size)
		}
		end, empty = s.End, empty || s.Start == s.End
	}
	if !empty {
		return spans, nil
	}
	return slices.DeleteFunc(slices.Clone(spans), func(s Span) bool { return s.Start == s.End }), nil
}

// clipSpans returns the parts of spans inside [from, to), relative to from.
func clipSpans(spans []Span, from, to int) []Span {
	first, _ := slices.BinarySearchFunc(spans, from+1, func(s Span, at int) int { return cmp.Compare(s.End, at) })
	var list []Span
	for _, s := range spans[first:] {
		if s.Start >= to {
			break
		}
		list = append(list, Span{max(s.Start, from) - from, min(s.End, to) - from})
	}
	return list
}

// spanCursor searches spans at ascending positions of a text.
type spanCursor []Span

// overlaps reports whether [from, to) overlaps a span. from must not decrease between calls.
func (c *spanCursor) overlaps(from, to int) bool {
	c.pass(from)
	return len(*c) > 0 && (*c)[0].Start < to
}

// free returns the number of bytes from at to the next span, or to the end of a text of size bytes.
func (c *spanCursor) free(at, size int) int {
	if c.pass(at); len(*c) > 0 {
		return max(0, (*c)[0].Start-at)
	}
	return size - at
}

func (c *spanCursor) pass(at int) {
	for len(*c) > 0 && (*c)[0].End <= at {
		*c = (*c)[1:]
	}
}

// plainWriter builds a text and its spans, character by character.
type plainWriter struct {
	text  strings.Builder
	spans []Span
}

func (w *plainWriter) write(r rune, plain bool) {
	start := w.text.Len()
	w.text.WriteRune(r)
	if !plain {
		return
	}
	if last := len(w.spans) - 1; last >= 0 && w.spans[last].End == start {
		w.spans[last].End = w.text.Len()
	} else {
		w.spans = append(w.spans, Span{start, w.text.Len()})
	}
}

// lossyPlain is lossy for a text with spans. A character is in a span if one of its bytes was.
func lossyPlain(text string, spans []Span) (string, []Span) {
	if len(spans) == 0 {
		return lossy([]byte(text)), nil
	}
	var out plainWriter
	cursor := spanCursor(spans)
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 {
			n = badPart([]byte(text[i:min(len(text), i+utf8.UTFMax)]))
		}
		out.write(r, cursor.overlaps(i, i+n))
		i += n
	}
	return out.text.String(), out.spans
}

// nfcPlain is nfc for a text with spans. A character is in a span if one of the characters that it
// was composed of was.
func nfcPlain(s string, spans []Span) (string, []Span) {
	if len(spans) == 0 || norm.NFC.IsNormalString(s) {
		return nfc(s), spans
	}
	var out plainWriter
	cursor := spanCursor(spans)
	var list []placed // since the last newer mark
	flush := func() {
		for _, c := range composeList(orderMarks(list)) {
			out.write(c.r, c.plain)
		}
		list = list[:0]
	}
	for i, r := range s {
		plain := cursor.overlaps(i, i+utf8.RuneLen(r))
		if unicode.Is(newMarks, r) {
			flush()
			out.write(r, plain)
			continue
		}
		list = appendDecomposed(list, r, plain)
	}
	flush()
	return out.text.String(), out.spans
}
