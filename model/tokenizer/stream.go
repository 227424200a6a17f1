package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Stream decodes token by token. A character whose bytes are spread over several tokens comes with
// the last of them. It is for one goroutine.
type Stream struct {
	Special bool // special tokens come out as text; otherwise as nothing

	adds func(id int32, special bool) string // the bytes that a token adds to the text so far
	// What adds has kept back, at the end of the text; nil where it keeps nothing.
	rest func(special bool) string
	held []byte // beginning of a character
}

// Stream starts decoding a text.
func (t *Tokenizer) Stream() *Stream {
	return &Stream{adds: func(id int32, special bool) string {
		token, ok := t.Token(id)
		if !ok || !special && t.IsSpecial(id) {
			return ""
		}
		return token
	}}
}

// Next takes the next token and gives the text that is complete with it, which may be empty.
func (s *Stream) Next(id int32) string {
	s.held = append(s.held, s.adds(id, s.Special)...)
	end := len(s.held)
	// A character has at most four bytes: look for a beginning among the last three that waits for
	// more.
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

// Flush gives what was held back, at the end of the text: a character that was never completed
// becomes U+FFFD. What comes next is another text.
func (s *Stream) Flush() string {
	if s.rest != nil {
		s.held = append(s.held, s.rest(s.Special)...)
	}
	text := lossy(s.held)
	s.held = s.held[:0]
	return text
}

// lossy decodes UTF-8 and puts U+FFFD for each part that is not, where a part is as much as could
// have begun a character (the practice that the Unicode Standard recommends in chapter 3.9, and
// Rust follows).
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

// badPart is the length of the malformed beginning of b: the longest that some continuation would
// make a character, at least one byte.
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
