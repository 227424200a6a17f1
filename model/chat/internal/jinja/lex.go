package jinja

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a template's size. Published templates have some 10 kB.
const (
	maxSource = 1 << 20
	maxTokens = 400_000
)

type kind uint8

const (
	tEOF kind = iota
	tText
	tOutBegin // {{
	tOutEnd
	tTagBegin // {%
	tTagEnd
	tName // keywords too
	tString
	tNumber
	tOp
)

type token struct {
	kind  kind
	text  string // of strings: what they stand for
	value any    // of numbers
	line  int
}

func (t token) String() string {
	switch t.kind {
	case tEOF:
		return "the end of the template"
	case tText:
		return "text"
	case tString:
		return "a string"
	}
	return strconv.Quote(t.text)
}

// lexer splits a template into text and the tokens of tags, with Jinja2's whitespace control.
type lexer struct {
	src     string
	pos     int
	line    int  // of pos
	newline bool // what was read last ended a line
	toks    []token
}

func lex(source string) []token {
	if len(source) > maxSource {
		failParse(1, "the template has %d bytes; the limit is %d", len(source), maxSource)
	}
	if !utf8.ValidString(source) {
		failParse(1, "the template is not valid UTF-8")
	}
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l := &lexer{src: strings.TrimSuffix(source, "\n"), line: 1, newline: true}
	for l.pos < len(l.src) {
		l.next()
	}
	l.add(tEOF, "", nil)
	return l.toks
}

func (l *lexer) add(k kind, text string, value any) {
	if len(l.toks) >= maxTokens {
		failParse(l.line, "the template has more than %d tokens", maxTokens)
	}
	l.toks = append(l.toks, token{k, text, value, l.line})
}

func (l *lexer) fail(format string, args ...any) { failParse(l.line, format, args...) }

// advance moves over n bytes.
func (l *lexer) advance(n int) {
	l.line += strings.Count(l.src[l.pos:l.pos+n], "\n")
	l.pos += n
}

func (l *lexer) rest() string { return l.src[l.pos:] }

func (l *lexer) skipSpace() { l.advance(leadingSpace(l.rest())) }

// next reads the text up to the next tag, and the tag.
func (l *lexer) next() {
	rest := l.rest()
	at := 0
	for {
		i := strings.IndexByte(rest[at:], '{')
		if i < 0 || at+i+1 >= len(rest) {
			l.text(rest)
			l.advance(len(rest))
			return
		}
		if at += i; strings.IndexByte("{%#", rest[at+1]) >= 0 {
			break
		}
		at++
	}
	mark, sign := rest[at+1], signAt(rest[at+2:])
	l.text(l.strip(rest[:at], mark, sign))
	l.advance(at + 2 + len(sign))
	switch mark {
	case '#':
		end := strings.Index(l.rest(), "#}")
		if end < 0 {
			l.fail("the comment has no end: write #}")
		}
		sign := ""
		if end > 0 {
			sign = signAt(l.rest()[end-1 : end])
		}
		l.advance(end)
		l.end(sign, "#}")
	case '{':
		l.add(tOutBegin, "{{", nil)
		l.tag("}}", tOutEnd)
	case '%':
		if !l.raw() {
			l.add(tTagBegin, "{%", nil)
			l.tag("%}", tTagEnd)
		}
	}
}

// signAt is the sign of whitespace control that s begins with, or empty.
func signAt(s string) string {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		return s[:1]
	}
	return ""
}

func (l *lexer) text(s string) {
	if s != "" {
		l.add(tText, s, nil)
	}
}

// strip removes blanks before a tag: all before {%-, and the indentation of a {% or {# that is
// first on its line, which is lstrip_blocks.
func (l *lexer) strip(text string, mark byte, sign string) string {
	if sign == "-" {
		return strings.TrimRightFunc(text, isSpace)
	}
	start := strings.LastIndexByte(text, '\n') + 1
	if mark != '{' && sign == "" && (start > 0 || l.newline) && leadingSpace(text[start:]) == len(text)-start {
		return text[:start]
	}
	return text
}

// end moves over the end of a tag and what it removes: all blanks after -%}, one line end after
// %} and #}, which is trim_blocks.
func (l *lexer) end(sign, closing string) {
	l.advance(len(closing))
	before := l.pos
	switch {
	case sign == "-":
		l.skipSpace()
	case sign == "" && closing != "}}" && strings.HasPrefix(l.rest(), "\n"):
		l.advance(1)
	}
	l.newline = strings.HasSuffix(l.src[before:l.pos], "\n")
}

// raw reads {% raw %} ... {% endraw %} as text. It reports false for other tags.
func (l *lexer) raw() bool {
	rest := l.rest()
	n := leadingSpace(rest)
	if !strings.HasPrefix(rest[n:], "raw") {
		return false
	}
	n += len("raw")
	n += leadingSpace(rest[n:])
	sign := ""
	if strings.HasPrefix(rest[n:], "-") {
		sign = "-"
	}
	if !strings.HasPrefix(rest[n+len(sign):], "%}") {
		return false
	}
	l.advance(n + len(sign) + len("%}"))
	begin := l.pos
	if sign == "-" {
		l.skipSpace()
	}
	l.newline = strings.HasSuffix(l.src[begin:l.pos], "\n")
	for from := l.pos; ; {
		i := strings.Index(l.src[from:], "{%")
		if i < 0 {
			l.fail("{%% raw %%} has no end: write {%% endraw %%}")
		}
		from += i + 2
		before := signAt(l.src[from:])
		at := from + len(before)
		at += leadingSpace(l.src[at:])
		if !strings.HasPrefix(l.src[at:], "endraw") {
			continue
		}
		at += len("endraw")
		at += leadingSpace(l.src[at:])
		after := signAt(l.src[at:])
		if !strings.HasPrefix(l.src[at+len(after):], "%}") {
			continue
		}
		l.text(l.strip(l.src[l.pos:from-2], '%', before))
		l.advance(at + len(after) - l.pos)
		l.end(after, "%}")
		return true
	}
}

// operators of more than one character come first.
var operators = []string{
	"==", "!=", ">=", "<=", "//", "**", "+", "-", "*", "/", "%", "~", "<", ">", "=", "(", ")", "[",
	"]", "{", "}", ",", ".", ":", "|",
}

var closers = map[string]string{"(": ")", "[": "]", "{": "}"}

// tag reads the tokens of a tag and its end.
func (l *lexer) tag(closing string, end kind) {
	var open []string // the brackets that close the open ones
	for {
		l.skipSpace()
		rest := l.rest()
		if rest == "" {
			l.fail("the tag has no end: write %s", closing)
		}
		if len(open) == 0 {
			sign := signAt(rest)
			if sign == "+" && closing == "}}" {
				sign = "" // it is an operator
			}
			if strings.HasPrefix(rest[len(sign):], closing) {
				l.add(end, closing, nil)
				l.advance(len(sign))
				l.end(sign, closing)
				return
			}
		}
		switch c := rest[0]; {
		case c == '"' || c == '\'':
			l.str()
		case isDigit(c):
			n, v := l.number(rest)
			l.add(tNumber, rest[:n], v)
			l.advance(n)
		case isNameByte(c):
			n := 0
			for n < len(rest) && isNameByte(rest[n]) {
				n++
			}
			if n < len(rest) && rest[n] >= utf8.RuneSelf {
				l.fail("a character outside ASCII in a name is not supported")
			}
			l.add(tName, rest[:n], nil)
			l.advance(n)
		default:
			open = l.operator(open)
		}
	}
}

func (l *lexer) operator(open []string) []string {
	rest := l.rest()
	for _, op := range operators {
		if !strings.HasPrefix(rest, op) {
			continue
		}
		switch op {
		case "(", "[", "{":
			open = append(open, closers[op])
		case ")", "]", "}":
			if len(open) == 0 || open[len(open)-1] != op {
				l.fail("unexpected %q", op)
			}
			open = open[:len(open)-1]
		}
		l.add(tOp, op, nil)
		l.advance(len(op))
		return open
	}
	c, _ := utf8.DecodeRuneInString(rest)
	if unicode.IsLetter(c) {
		l.fail("the character %q in a name is not supported", c)
	}
	l.fail("unexpected character %q", c)
	return nil
}

// number reads a number and returns its length.
func (l *lexer) number(rest string) (int, any) {
	digits := func(i int, ok func(byte) bool) int { // digits with single underscores between
		for i < len(rest) && (ok(rest[i]) ||
			rest[i] == '_' && i > 0 && ok(rest[i-1]) && i+1 < len(rest) && ok(rest[i+1])) {
			i++
		}
		return i
	}
	n := digits(0, isDigit)
	isFloat := false
	if l.pos == 0 || l.src[l.pos-1] != '.' { // after a dot it is an index
		if n+1 < len(rest) && rest[n] == '.' && isDigit(rest[n+1]) {
			n, isFloat = digits(n+1, isDigit), true
		}
		if n < len(rest) && rest[n]|0x20 == 'e' {
			exponent := n + 1 + len(signAt(rest[n+1:]))
			if exponent < len(rest) && isDigit(rest[exponent]) {
				n, isFloat = digits(exponent, isDigit), true
			}
		}
	}
	if isFloat {
		v, err := strconv.ParseFloat(strings.ReplaceAll(rest[:n], "_", ""), 64)
		if err != nil {
			l.fail("%q is not a number", rest[:n])
		}
		return n, v
	}
	if rest[0] == '0' {
		isBase := map[byte]func(byte) bool{'b': isBinary, 'o': isOctal, 'x': isHex}
		if n == 1 && len(rest) > 2 && isBase[rest[1]|0x20] != nil {
			ok := isBase[rest[1]|0x20]
			start := 2
			if rest[2] == '_' {
				start = 3
			}
			if end := digits(start, ok); end > start {
				return end, l.integer(rest[:end])
			}
		}
		n = digits(0, func(c byte) bool { return c == '0' })
	}
	return n, l.integer(rest[:n])
}

func (l *lexer) integer(text string) any {
	v, ok := new(big.Int).SetString(text, 0)
	if strings.Trim(text, "0_") == "" {
		v, ok = new(big.Int), true
	}
	if !ok || len(text) > maxDigits {
		l.fail("%q is not a number", text)
	}
	return small(v)
}

// small is v as an int64 if it fits.
func small(v *big.Int) any {
	if v.IsInt64() {
		return v.Int64()
	}
	return v
}

// str reads a string literal. Its escapes are Python's; one that Python does not know keeps its
// backslash.
func (l *lexer) str() {
	rest := l.rest()
	var b strings.Builder
	for i := 1; i < len(rest); i++ {
		c := rest[i]
		switch {
		case c == rest[0]:
			l.add(tString, b.String(), nil)
			l.advance(i + 1)
			return
		case c == '\\' && i+1 < len(rest):
			i += l.escape(&b, rest[i+1:])
		default:
			b.WriteByte(c)
		}
	}
	l.fail("the string has no end")
}

var escapes = map[byte]string{
	'\n': "", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n",
	'r': "\r", 't': "\t", 'v': "\v",
}

// escape writes what an escape stands for and returns its length without the backslash.
func (l *lexer) escape(b *strings.Builder, rest string) int {
	c := rest[0]
	if s, ok := escapes[c]; ok {
		b.WriteString(s)
		return 1
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	switch {
	case digits > 0:
		if len(rest) > digits {
			v, err := strconv.ParseUint(rest[1:1+digits], 16, 32)
			if err == nil && utf8.ValidRune(rune(v)) {
				b.WriteRune(rune(v))
				return 1 + digits
			}
		}
		l.fail(`the escape \%c needs %d hexadecimal digits of a character`, c, digits)
	case isOctal(c):
		n := 1
		for n < 3 && n < len(rest) && isOctal(rest[n]) {
			n++
		}
		v, _ := strconv.ParseUint(rest[:n], 8, 32) // three octal digits always parse
		b.WriteRune(rune(v))
		return n
	case c == 'N':
		l.fail(`the escape \N{name} is not supported: write \uXXXX`)
	case c >= utf8.RuneSelf:
		// Jinja2 writes the character as an escape before it reads escapes, so that the backslash
		// here escapes that one's.
		r, width := utf8.DecodeRuneInString(rest)
		switch {
		case r < 0x100:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
		return width
	}
	b.WriteByte('\\')
	return 0
}

func leadingSpace(s string) int { return len(s) - len(strings.TrimLeftFunc(s, isSpace)) }

// isSpace is Python's str.isspace for one character.
func isSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isOctal(c byte) bool { return c >= '0' && c <= '7' }

func isBinary(c byte) bool { return c == '0' || c == '1' }

func isHex(c byte) bool { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }

func isNameByte(c byte) bool { return c == '_' || isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' }
