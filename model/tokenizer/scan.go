package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// scanner is a JSON tokenizer for the 10 MB of vocabulary and merges in a tokenizer.json, which it
// reads without allocating a value for each. The other 2 KB go to encoding/json.
type scanner struct {
	text string
	at   int
}

// maxDepth bounds the nesting of skipped values. Published files have about seven levels.
const maxDepth = 100

// peek returns the first byte of the next token, or 0 at the end.
func (s *scanner) peek() byte {
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	return 0
}

// take consumes the byte c if it is next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// wrong returns an error with the position and the expected syntax.
func (s *scanner) wrong(want string) error {
	if s.peek() == 0 {
		return fmt.Errorf("the file ends after %d bytes, expected %s: it is incomplete", len(s.text), want)
	}
	return fmt.Errorf("byte %d: %.20q, expected %s", s.at, s.text[s.at:], want)
}

// object calls member with each key. member must consume the value.
func (s *scanner) object(member func(key string) error) error {
	if !s.take('{') {
		return s.wrong("an object")
	}
	for more := !s.take('}'); more; {
		key, err := s.string()
		if err != nil {
			return err
		}
		if !s.take(':') {
			return s.wrong("a colon")
		}
		if err := member(key); err != nil {
			return err
		}
		if more = s.take(','); !more && !s.take('}') {
			return s.wrong("a comma or }")
		}
	}
	return nil
}

// array calls element for each element. element must consume it.
func (s *scanner) array(element func() error) error {
	if !s.take('[') {
		return s.wrong("an array")
	}
	for more := !s.take(']'); more; {
		if err := element(); err != nil {
			return err
		}
		if more = s.take(','); !more && !s.take(']') {
			return s.wrong("a comma or ]")
		}
	}
	return nil
}

// string consumes a string. The result shares memory with the text unless the string has escapes.
func (s *scanner) string() (string, error) {
	if !s.take('"') {
		return "", s.wrong("a string")
	}
	start, escaped := s.at, false
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '"':
			s.at++
			if !escaped {
				return s.text[start : s.at-1], nil
			}
			var out string
			if err := json.Unmarshal([]byte(s.text[start-1:s.at]), &out); err != nil {
				return "", fmt.Errorf("byte %d: %w", start-1, err)
			}
			return out, nil
		case c == '\\':
			escaped = true
			s.at++
		case c < ' ':
			return "", s.wrong("a character of a string")
		}
	}
	s.at = len(s.text)
	return "", s.wrong("the end of a string")
}

// id consumes a number that is a token id.
func (s *scanner) id() (int32, error) {
	s.peek()
	end := s.at
	for end < len(s.text) && strings.IndexByte("+-.0123456789eE", s.text[end]) >= 0 {
		end++
	}
	n, err := strconv.ParseInt(s.text[s.at:end], 10, 32)
	if err != nil || n < 0 {
		return 0, s.wrong("an id, a non-negative integer")
	}
	s.at = end
	return int32(n), nil
}

// raw consumes any value and returns its text. It checks only strings and nesting.
func (s *scanner) raw() (string, error) {
	s.peek()
	start := s.at
	for depth := 0; ; {
		switch s.peek() {
		case 0:
			return "", s.wrong("a value")
		case '"':
			if _, err := s.string(); err != nil {
				return "", err
			}
		case '{', '[':
			if depth++; depth > maxDepth {
				return "", fmt.Errorf("byte %d: more than %d levels of nesting", s.at, maxDepth)
			}
			s.at++
		case '}', ']':
			if depth--; depth < 0 {
				return "", s.wrong("a value")
			}
			s.at++
		case ',', ':':
			if depth == 0 {
				return "", s.wrong("a value")
			}
			s.at++
		default:
			for s.at < len(s.text) && strings.IndexByte(" \t\r\n,:{}[]\"", s.text[s.at]) < 0 {
				s.at++
			}
		}
		if c := s.peek(); depth == 0 && (c == ',' || c == '}' || c == ']' || c == 0) {
			return s.text[start:s.at], nil
		}
	}
}
