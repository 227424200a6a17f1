package tokenizer

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// scanner walks through JSON. A tokenizer.json is some 10 MB of vocabulary and merges and 2 KB of
// everything else: the scanner reads the former without making a value of each, and hands the
// latter to encoding/json.
type scanner struct {
	text string
	at   int
}

// maxDepth bounds the nesting of what is skipped; published files have some seven levels.
const maxDepth = 100

// peek is the first byte of the next value or sign, 0 at the end.
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

// take passes the sign c, if it is the next.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// wrong says what was expected, and where.
func (s *scanner) wrong(want string) error {
	if s.peek() == 0 {
		return fmt.Errorf("the file ends after %d bytes, where %s should be: it is incomplete", len(s.text), want)
	}
	return fmt.Errorf("byte %d: %.20q, where %s should be", s.at, s.text[s.at:], want)
}

// object calls member with each key, and member passes the value.
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

// array calls element at each, which passes it.
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

// string passes a string. What it gives is part of the text, unless there were escapes in it.
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

// id passes a number that is an id.
func (s *scanner) id() (int32, error) {
	s.peek()
	end := s.at
	for end < len(s.text) && strings.IndexByte("+-.0123456789eE", s.text[end]) >= 0 {
		end++
	}
	n, err := strconv.ParseInt(s.text[s.at:end], 10, 32)
	if err != nil || n < 0 {
		return 0, s.wrong("an id, a whole number from 0")
	}
	s.at = end
	return int32(n), nil
}

// raw passes any value and gives its text, in which only strings and nesting have been looked at.
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
