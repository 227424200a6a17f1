package chat

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds on a template, which is data from a stranger. Published ones have some 10 kB and nest ten deep.
const (
	maxSource  = 1 << 20
	maxTokens  = 10_000 // in one tag
	maxNesting = 100    // of tags, of brackets, of conditions in one tag
)

// source writes a template anew so that gonja reads it as Jinja2 reads the original. gonja's own reading differs in whitespace control after
// {{ }}, in line ends within tags, in string escapes, in "a if b else c" within brackets and in what the operators in and is take; and it
// skips characters that it does not know. So the new text holds no whitespace control, no comments, no raw blocks and one line per tag, and
// every condition within an expression is spelled with "and" and "or".
type source struct {
	in       string
	pos      int
	line     int // of pos
	out      strings.Builder
	data     strings.Builder // text that is still to be written
	dataLine int
	marks    []mark
	open     []string // tags that wait for their end
	// newline says that what was read last ended a line, so that blanks which follow may be indentation.
	newline bool
}

// mark says which line of the original the new text holds from an offset on.
type mark struct{ offset, line int }

// rewrite gives the text for gonja and its marks.
func rewrite(text string) (string, []mark, error) {
	if len(text) > maxSource {
		return "", nil, &ParseError{1, fmt.Sprintf("the template has %d bytes, at most %d are read", len(text), maxSource)}
	}
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	s := &source{in: strings.TrimSuffix(text, "\n"), line: 1, dataLine: 1, newline: true}
	if !utf8.ValidString(text) {
		return "", nil, &ParseError{1, "the template is not valid UTF-8"}
	}
	for s.pos < len(s.in) {
		if err := s.next(); err != nil {
			return "", nil, err
		}
	}
	if len(s.open) > 0 {
		return "", nil, s.errorf("the end of {%% %s %%} is missing", s.open[len(s.open)-1])
	}
	s.flush()
	return s.out.String(), append(s.marks, mark{s.out.Len(), s.line}), nil
}

func (s *source) errorf(format string, args ...any) error {
	return &ParseError{s.line, fmt.Sprintf(format, args...)}
}

// advance moves over n bytes.
func (s *source) advance(n int) {
	s.line += strings.Count(s.in[s.pos:s.pos+n], "\n")
	s.pos += n
}

// next takes the text up to the next tag, and the tag.
func (s *source) next() error {
	rest := s.in[s.pos:]
	at := -1
	for i := 0; i+1 < len(rest); i++ {
		if rest[i] == '{' && strings.IndexByte("{%#", rest[i+1]) >= 0 {
			at = i
			break
		}
	}
	if at < 0 {
		s.text(rest)
		s.advance(len(rest))
		return nil
	}
	kind, sign := rest[at+1], byte(0)
	if at+2 < len(rest) && (rest[at+2] == '-' || rest[at+2] == '+') {
		sign = rest[at+2]
	}
	s.text(s.strip(rest[:at], kind, sign))
	s.advance(at + 2)
	if sign != 0 {
		s.advance(1)
	}
	switch kind {
	case '#':
		n := strings.Index(s.in[s.pos:], "#}")
		if n < 0 {
			return s.errorf("the end of this comment is missing")
		}
		s.end(s.in[s.pos:s.pos+n], n, "#}")
		return nil
	case '%':
		if isRaw, err := s.raw(); isRaw {
			return err
		}
	}
	return s.tag(kind)
}

// strip takes off the blanks before a tag: all for {%-, and indentation for {% and {# that begin a line (lstrip_blocks).
func (s *source) strip(text string, kind, sign byte) string {
	if sign == '-' {
		return strings.TrimRightFunc(text, isSpace)
	}
	start := strings.LastIndexByte(text, '\n') + 1
	if kind != '{' && sign != '+' && (start > 0 || s.newline) && strings.TrimFunc(text[start:], isSpace) == "" {
		return text[:start]
	}
	return text
}

// end moves over the end of a tag that is n bytes away, and what it takes with it: all blanks for -%}, a line end for %} (trim_blocks).
func (s *source) end(body string, n int, mark string) {
	s.advance(n + len(mark))
	before := s.pos
	switch {
	case strings.HasSuffix(body, "-"):
		s.advance(len(s.in) - s.pos - len(strings.TrimLeftFunc(s.in[s.pos:], isSpace)))
	case mark != "}}" && !strings.HasSuffix(body, "+") && strings.HasPrefix(s.in[s.pos:], "\n"):
		s.advance(1)
	}
	s.newline = strings.HasSuffix(s.in[before:s.pos], "\n")
	s.dataLine = s.line
}

// raw takes {% raw %} ... {% endraw %} as text.
func (s *source) raw() (bool, error) {
	name, n := word(s.in[s.pos:])
	if name != "raw" {
		return false, nil
	}
	s.advance(n)
	rest := s.in[s.pos:]
	switch {
	case strings.HasPrefix(rest, "-%}"):
		s.advance(3)
		s.advance(len(s.in) - s.pos - len(strings.TrimLeftFunc(s.in[s.pos:], isSpace)))
	case strings.HasPrefix(rest, "%}"):
		s.advance(2)
	default:
		return true, s.errorf("unexpected text in {%% raw %%}")
	}
	s.newline = false
	for from := s.pos; ; {
		i := strings.Index(s.in[from:], "{%")
		if i < 0 {
			return true, s.errorf("the end of {%% raw %%} is missing")
		}
		from += i + 2
		sign := byte(0)
		tail := s.in[from:]
		if tail != "" && (tail[0] == '-' || tail[0] == '+') {
			sign, tail = tail[0], tail[1:]
		}
		name, n := word(tail)
		body, found := "", false
		for _, sign := range []string{"", "-", "+"} {
			if name == "endraw" && strings.HasPrefix(tail[n:], sign+"%}") {
				body, found = sign, true
			}
		}
		if !found {
			continue
		}
		s.text(s.strip(s.in[s.pos:from-2], '%', sign))
		s.end(body, len(s.in)-len(tail)+n+len(body)-s.pos, "%}")
		return true, nil
	}
}

// word is the first name in text, and where the blanks behind it end.
func word(text string) (string, int) {
	start := len(text) - len(strings.TrimLeftFunc(text, isSpace))
	end := start
	for end < len(text) && isName(text[end]) {
		end++
	}
	return text[start:end], len(text) - len(strings.TrimLeftFunc(text[end:], isSpace))
}

func (s *source) text(text string) {
	if s.data.Len() == 0 {
		s.dataLine = s.line
	}
	s.data.WriteString(text)
}

// flush writes the text that waits, as a string that is printed: so no text is taken for a tag, and all output passes our limits.
func (s *source) flush() {
	text := s.data.String()
	if text == "" {
		return
	}
	s.data.Reset()
	s.marks = append(s.marks, mark{s.out.Len(), s.dataLine})
	s.out.WriteString("{{ " + quote(text) + " }}")
}

// emit writes a tag from its tokens.
func (s *source) emit(open string, toks []token, closing string) {
	s.flush()
	s.marks = append(s.marks, mark{s.out.Len(), s.line})
	s.out.WriteString(open)
	for _, t := range toks {
		s.out.WriteByte(' ')
		s.marks = append(s.marks, mark{s.out.Len(), t.line})
		s.out.WriteString(t.text)
	}
	s.out.WriteString(" " + closing)
}

// quote writes a string such that gonja reads back the same one.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\'' || c == '\\' || c < ' ' || c > '~':
			fmt.Fprintf(&b, `\U%08x`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// lineAt is the original line of an offset in the new text.
func lineAt(marks []mark, offset int) int {
	i, found := slices.BinarySearchFunc(marks, offset, func(m mark, at int) int { return m.offset - at })
	if found {
		return marks[i].line
	}
	return marks[max(0, i-1)].line
}

// isSpace is Python's idea of a blank.
func isSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }

func isName(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
