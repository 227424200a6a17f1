package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Stream decodes token by token. If the bytes of a character are spread over several tokens, Next
// returns the character with the last of them. A Stream is not safe for concurrent use.
type Stream struct {
	Special bool // include the text of special tokens

	adds func(id int32, special bool) string // bytes that a token adds to the text
	// Text that adds held back, at the end of the text; nil if it holds back none.
	rest func(special bool) string
	held []byte // incomplete character
}

// Stream returns a decoder for a new text.
func (t *byteLevel) Stream() *Stream {
	return &Stream{adds: func(id int32, special bool) string {
		token, ok := t.Token(id)
		if !ok || !special && t.IsSpecial(id) {
			return ""
		}
		return token
	}}
}

// Next decodes one token and returns the text that is now complete, which may be empty.
func (s *Stream) Next(id int32) string {
	s.held = append(s.held, s.adds(id, s.Special)...)
	end := len(s.held)
	// A character has at most four bytes: look for an incomplete one among the last three bytes.
	for i := 1; i <= 3 && i <= len(s.held); i++ {
		if b := s.held[len(s.held)-i]; utf8.RuneStart(b) {
			if !utf8.FullRune(s.held[len(s.held)-i:]) {
				end = len(s.held) - i
			}
			break
		}
	}
	text := lossy(s.held[:end])
	s.held = append(s.held[:0], s.held[end:]...)
	return text
}

// Flush ends the text and returns the rest: an incomplete character becomes U+FFFD. Next then
// starts another text.
func (s *Stream) Flush() string {
	if s.rest != nil {
		s.held = append(s.held, s.rest(s.Special)...)
	}
	text := lossy(s.held)
	s.held = s.held[:0]
	return text
}

// lossy replaces each malformed part of UTF-8 with U+FFFD. A part is a maximal prefix of a
// character, as the Unicode Standard recommends in section 3.9 and Rust does.
func lossy(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = badPart(b)
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

// badPart returns the length of the malformed prefix of b: the longest that some continuation would
// complete, at least one byte.
func badPart(b []byte) int {
	n := 1
	for n < len(b) && n < 4 && !utf8.FullRune(b[:n]) {
		// b[:n] could still become a character; b[:n+1] may not.
		if utf8.FullRune(b[:n+1]) {
			break
		}
		n++
	}
	return n
}
