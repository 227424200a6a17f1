package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// warnings are settings that Open ignored or changed.
type warnings []string

// add records the odd value of a field, and how Open interpreted it.
func (w *warnings) add(file, field string, value any, done string) {
	*w = append(*w, fmt.Sprintf("%s: %s is %v: %s", filepath.Base(file), field, value, done))
}

// Warnings returns the settings that Open ignored or changed, such as an invalid sampling default
// or an end token outside the vocabulary. Each entry names the file, the field, its value, and how
// Open interpreted it. They never prevent a checkpoint from opening.
func (c *Checkpoint) Warnings() []string { return slices.Clone(c.warnings) }

// addEnds adds the end tokens of one origin to the union, and to [Config].EOS.
func (c loader) addEnds(origin string, list []int) {
	for _, id := range list {
		i := slices.IndexFunc(c.text.Ends, func(e EndID) bool { return e.ID == id })
		if i < 0 {
			i = len(c.text.Ends)
			c.text.Ends = append(c.text.Ends, EndID{ID: id})
			c.config.EOS = append(c.config.EOS, id)
		}
		if !slices.Contains(c.text.Ends[i].Origins, origin) {
			c.text.Ends[i].Origins = append(c.text.Ends[i].Origins, origin)
		}
	}
}

// inVocabulary drops ids outside the vocabulary. They are never generated, and other runtimes
// ignore them.
func inVocabulary(list []int, vocab int, file, field string, w *warnings) (kept []int) {
	for _, id := range list {
		if id < 0 || id >= vocab {
			w.add(file, field, id, fmt.Sprintf("ignored, since it is outside the vocabulary of %d tokens", vocab))
			continue
		}
		kept = append(kept, id)
	}
	return kept
}

// settings reads the fields of a JSON object that only set defaults. An invalid value is reported
// and treated as missing.
type settings struct {
	file   string
	fields map[string]json.RawMessage
	warn   *warnings
}

// readSettings reads a JSON object. A file without an object is reported and has no fields.
func readSettings(file string, w *warnings) (settings, error) {
	s := settings{file: file, warn: w}
	text, err := readText(file)
	if err != nil {
		return s, err
	}
	text = quoteNonNumbers(bytes.TrimPrefix(text, utf8BOM))
	switch err := decodeJSON(file, text, &s.fields); {
	case len(bytes.TrimSpace(text)) == 0:
		*w = append(*w, filepath.Base(file)+": is empty: ignored")
	case err != nil:
		*w = append(*w, strings.TrimPrefix(err.Error(), "checkpoint: ")+": the whole file is ignored")
	case s.fields == nil:
		*w = append(*w, filepath.Base(file)+": is null, expected an object: ignored")
	}
	return s, nil
}

// quoteNonNumbers quotes NaN, Infinity and -Infinity outside strings. Python writes and reads them,
// although JSON has no such values.
func quoteNonNumbers(text []byte) []byte {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	var out []byte
	inString := false
	for i := 0; i < len(text); i++ {
		if inString && text[i] == '\\' && i+1 < len(text) {
			out = append(out, text[i], text[i+1])
			i++
			continue
		}
		if text[i] == '"' {
			inString = !inString
		}
		word := ""
		for _, w := range []string{"NaN", "Infinity", "-Infinity"} {
			if !inString && bytes.HasPrefix(text[i:], []byte(w)) {
				word = w
			}
		}
		if word == "" {
			out = append(out, text[i])
			continue
		}
		out = append(append(append(out, '"'), word...), '"')
		i += len(word) - 1
	}
	return out
}

// ignore reports an invalid value.
func (s settings) ignore(field string, want string) {
	s.warn.add(s.file, field, clip(s.fields[field]), fmt.Sprintf("ignored, since it must be %s", want))
}

// readAs reports a value that is interpreted as another.
func (s settings) readAs(field, done string) {
	s.warn.add(s.file, field, clip(s.fields[field]), "read as "+done)
}

// clip returns the start of a value, for a message.
func clip(value []byte) string {
	const most = 60
	if len(value) > most {
		return strings.ToValidUTF8(string(value[:most]), "") + "..."
	}
	return string(value)
}

// number reads a number, or a string with a number. It returns false if the field is missing, null
// or not a number.
func (s settings) number(field string) (float64, bool) {
	raw, ok := s.fields[field]
	if !ok || string(raw) == "null" {
		return 0, false
	}
	v, isString, err := parseNumber(raw)
	if err != nil {
		s.ignore(field, "a number")
		return 0, false
	}
	if isString && !math.IsNaN(v) && !math.IsInf(v, 0) { // the range check reports those
		s.readAs(field, fmt.Sprintf("the number %v", v))
	}
	return v, true
}

// parseNumber reads a JSON number, or a string with a number.
func parseNumber(raw json.RawMessage) (v float64, isString bool, err error) {
	text := string(raw)
	if isString = strings.HasPrefix(text, `"`); isString {
		if err := json.Unmarshal(raw, &text); err != nil {
			return 0, true, err
		}
	}
	v, err = strconv.ParseFloat(strings.TrimSpace(text), 64)
	return v, isString, err
}

// numberIn reads a number within bounds, or returns nil.
func (s settings) numberIn(field string, from, to float64, want string) *float64 {
	v, ok := s.number(field)
	if !ok {
		return nil
	}
	if !(v >= from && v <= to) {
		s.ignore(field, want)
		return nil
	}
	return &v
}

// bool reads a boolean; Python's 0 and 1 and the strings "true" and "false" are accepted.
func (s settings) bool(field string) *bool {
	raw, ok := s.fields[field]
	if !ok || string(raw) == "null" {
		return nil
	}
	text := strings.ToLower(strings.Trim(string(raw), `"`))
	v := text == "true" || text == "1"
	if !v && text != "false" && text != "0" {
		s.ignore(field, "true or false")
		return nil
	}
	if text != string(raw) || text == "0" || text == "1" {
		s.readAs(field, strconv.FormatBool(v))
	}
	return &v
}

// maxIDs bounds a list of special tokens. Published models have up to five.
const maxIDs = 256

// ids reads token ids: one, a list, or null.
func (s settings) ids(field string, vocab int) []int {
	raw := s.fields[field]
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var list []json.RawMessage
	if raw[0] != '[' {
		list = append(list, raw)
	} else if err := json.Unmarshal(raw, &list); err != nil || len(list) > maxIDs {
		s.ignore(field, fmt.Sprintf("a token id or a list of at most %d", maxIDs))
		return nil
	}
	var all []int
	for _, one := range list {
		v, _, err := parseNumber(one)
		if err != nil || v != math.Trunc(v) || math.Abs(v) > math.MaxInt32 {
			s.warn.add(s.file, field, clip(one), "ignored, since it must be a token id")
			continue
		}
		all = append(all, int(v))
	}
	return inVocabulary(all, vocab, s.file, field, s.warn)
}
