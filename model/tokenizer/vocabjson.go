package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Vocabulary and merges are most of a tokenizer.json: 400,000 short strings. They are read by a scanner of their own, which takes a third of the time of
// decoding by reflection. The decoder has checked the syntax before it hands the bytes over.

// vocabMap is an object of tokens and ids. Anything else is left empty.
type vocabMap map[string]int32

func (m *vocabMap) UnmarshalJSON(data []byte) error {
	if !bytes.HasPrefix(data, []byte("{")) {
		return nil
	}
	*m = make(vocabMap, bytes.Count(data, []byte(":")))
	for s := (scanner{data: data}); s.next(); {
		token, err := s.text()
		if err != nil {
			return err
		}
		number := s.literal()
		id, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			return fmt.Errorf("the id of token %q is %.20q, want a whole number", token, number)
		}
		if first, twice := (*m)[token]; twice {
			return fmt.Errorf("token %q is there twice, with the ids %d and %d", token, first, id)
		}
		(*m)[token] = int32(id)
	}
	return nil
}

// mergeList reads merges as "a b" or as ["a", "b"]. A space cannot be part of either, since the byte-level alphabet writes it otherwise.
type mergeList [][2]string

func (m *mergeList) UnmarshalJSON(data []byte) error {
	if !bytes.HasPrefix(data, []byte("[")) {
		return errors.New("merges are no list")
	}
	pairs := bytes.HasPrefix(bytes.TrimLeft(data[1:], " \t\r\n"), []byte("["))
	*m = make(mergeList, 0, bytes.Count(data, []byte(","))/2)
	for s := (scanner{data: data}); s.next(); {
		left, err := s.text()
		if err != nil {
			return err
		}
		var right string
		if pairs {
			if !s.next() {
				return fmt.Errorf("merge %d has one part", len(*m))
			}
			if right, err = s.text(); err != nil {
				return err
			}
		} else {
			var ok bool
			if left, right, ok = strings.Cut(left, " "); !ok {
				return fmt.Errorf("merge %d, %q, is not two tokens with a space between", len(*m), left)
			}
		}
		*m = append(*m, [2]string{left, right})
	}
	return nil
}

// scanner finds strings in valid JSON.
type scanner struct {
	data []byte
	at   int
}

// next goes to the next string.
func (s *scanner) next() bool {
	i := bytes.IndexByte(s.data[s.at:], '"')
	if i < 0 {
		return false
	}
	s.at += i
	return true
}

// text is the string at hand.
func (s *scanner) text() (string, error) {
	end := s.at + 1
	escaped := false
	for end < len(s.data) && s.data[end] != '"' {
		if s.data[end] == '\\' {
			escaped = true
			end++
		}
		end++
	}
	if end >= len(s.data) {
		return "", errors.New("a string has no end")
	}
	quoted := s.data[s.at : end+1]
	s.at = end + 1
	if !escaped {
		return string(quoted[1 : len(quoted)-1]), nil
	}
	var text string
	err := json.Unmarshal(quoted, &text)
	return text, err
}

// literal is what follows a colon, up to a comma or a brace.
func (s *scanner) literal() string {
	rest := s.data[s.at:]
	end := bytes.IndexAny(rest, ",}")
	if end < 0 {
		end = len(rest)
	}
	s.at += end
	return strings.Trim(string(rest[:end]), ": \t\r\n")
}
