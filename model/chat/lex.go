package chat

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// token is a piece of a tag, as it is written for gonja.
type token struct {
	kind rune // 'n' name, 'k' keyword, 's' string, '0' number, 'o' operator
	text string
	line int
}

const keywords = " and or not if else in is "

// operators of more than one character come first.
var operators = strings.Fields("== != >= <= // ** + - * / % ~ < > = ( ) [ ] { } , . : |")

// lex reads the tokens of a tag up to its end, which it takes.
func (s *source) lex(closing string) ([]token, error) {
	var (
		toks     []token
		brackets []byte
		start    = s.pos
	)
	for {
		s.advance(len(s.in) - s.pos - len(strings.TrimLeftFunc(s.in[s.pos:], isSpace)))
		rest := s.in[s.pos:]
		if rest == "" {
			return nil, s.errorf("the end of this tag, %s, is missing", closing)
		}
		if len(brackets) == 0 {
			if rest[0] == '-' || rest[0] == '+' && closing == "%}" {
				if strings.HasPrefix(rest[1:], closing) {
					s.end(rest[:1], 1, closing)
					return toks, nil
				}
			}
			if strings.HasPrefix(rest, closing) {
				s.end("", 0, closing)
				return toks, nil
			}
		}
		if len(toks) == maxTokens {
			return nil, s.errorf("this tag is too long: more than %d words and signs", maxTokens)
		}
		t := token{line: s.line}
		n := 0
		switch c := rest[0]; {
		case c == '"' || c == '\'':
			text, size, err := s.stringLiteral(rest)
			if err != nil {
				return nil, err
			}
			t.kind, t.text, n = 's', text, size
		case c >= '0' && c <= '9':
			for n < len(rest) && (isName(rest[n]) || exponent(rest[:n+1]) || fraction(rest[:n], rest[n:], toks)) {
				n++
			}
			text, ok := number(rest[:n])
			if !ok {
				return nil, s.errorf("%q is not a number that can be read", rest[:min(n, 40)])
			}
			t.kind, t.text = '0', text
		case isName(c):
			for n < len(rest) && isName(rest[n]) {
				n++
			}
			t.kind, t.text = 'n', rest[:n]
			if strings.HasPrefix(t.text, "__") {
				return nil, s.errorf("names that begin with __ are not allowed")
			}
			if strings.Contains(keywords, " "+t.text+" ") {
				t.kind = 'k'
			}
		default:
			for _, op := range operators {
				if strings.HasPrefix(rest, op) {
					t.kind, t.text, n = 'o', op, len(op)
					break
				}
			}
			if n == 0 {
				c, _ := utf8.DecodeRuneInString(rest)
				return nil, s.errorf("unexpected character %q", c)
			}
		}
		if t.kind == 'o' {
			switch c := t.text[0]; c {
			case '(', '[', '{':
				if brackets = append(brackets, c); len(brackets) > maxNesting {
					return nil, s.errorf("brackets nest more than %d deep", maxNesting)
				}
			case ')', ']', '}':
				open := map[byte]byte{')': '(', ']': '[', '}': '{'}[c]
				if len(brackets) == 0 || brackets[len(brackets)-1] != open {
					return nil, s.errorf("unexpected %q", c)
				}
				brackets = brackets[:len(brackets)-1]
			}
		}
		last := len(toks) - 1
		if t.kind == 's' && last >= 0 && toks[last].kind == 's' && s.pos > start {
			toks[last].text = toks[last].text[:len(toks[last].text)-1] + t.text[1:] // strings side by side are one
		} else {
			toks = append(toks, t)
		}
		s.advance(n)
	}
}

// exponent says that text ends in the sign of an exponent.
func exponent(text string) bool {
	n := len(text)
	return n > 2 && (text[n-1] == '+' || text[n-1] == '-') && (text[n-2] == 'e' || text[n-2] == 'E') && !strings.HasPrefix(text, "0x")
}

// fraction says that a point in a number is followed by digits; behind a point a number is an index.
func fraction(before, rest string, toks []token) bool {
	index := len(toks) > 0 && toks[len(toks)-1].text == "."
	return rest[0] == '.' && !index && !strings.Contains(before, ".") && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9'
}

func number(text string) (string, bool) {
	if strings.HasSuffix(text, "_") || strings.Contains(text, "__") {
		return "", false
	}
	text = strings.ReplaceAll(text, "_", "")
	if len(text) > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9' && strings.Trim(text, "0") != "" && !strings.Contains(text, ".") {
		return "", false
	}
	if v, err := strconv.ParseInt(text, 0, 64); err == nil {
		return strconv.FormatInt(v, 10), true
	}
	if strings.ContainsAny(text, ".eE") && !strings.ContainsAny(text, "xX") {
		v, err := strconv.ParseFloat(text, 64)
		return strconv.FormatFloat(v, 'e', -1, 64), err == nil
	}
	return "", false
}

// stringLiteral reads a string in Python's way and writes it in gonja's.
func (s *source) stringLiteral(rest string) (string, int, error) {
	var b strings.Builder
	for i := 1; i < len(rest); i++ {
		switch c := rest[i]; {
		case c == rest[0]:
			return quote(b.String()), i + 1, nil
		case c == '\\' && i+1 < len(rest):
			n, err := s.escape(&b, rest[i+1:])
			if err != nil {
				return "", 0, err
			}
			i += n
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, s.errorf("the end of this string is missing")
}

// escape reads what follows a backslash and gives its length.
func (s *source) escape(b *strings.Builder, rest string) (int, error) {
	const letters, values = "abfnrtv\\'\"", "\a\b\f\n\r\t\v\\'\""
	c := rest[0]
	if i := strings.IndexByte(letters, c); i >= 0 {
		b.WriteByte(values[i])
		return 1, nil
	}
	if c == '\n' {
		return 1, nil
	}
	digits, base := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c], 16
	start := 1
	if c >= '0' && c <= '7' {
		start, base = 0, 8
		for digits < 3 && digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '7' {
			digits++
		}
	}
	if digits == 0 {
		if c == 'N' {
			return 0, s.errorf(`the escape \N is not supported: write the character itself`)
		}
		b.WriteByte('\\') // unknown escapes stay as they are
		return 0, nil
	}
	if len(rest) < start+digits {
		return 0, s.errorf("a string has an escape that is cut off")
	}
	v, err := strconv.ParseUint(rest[start:start+digits], base, 32)
	if err != nil || !utf8.ValidRune(rune(v)) {
		return 0, s.errorf("a string has an escape that is not a character")
	}
	b.WriteRune(rune(v))
	return start + digits, nil
}
