package jinja

import (
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on a template's size. Published templates have about 10 kB.
const maxSource, maxTokens = 1 << 20, 100_000

type tokenKind uint8

const (
	tEOF tokenKind = iota
	tText
	tOutBegin // {{
	tOutEnd
	tTagBegin // {%
	tTagEnd
	tName // or a keyword
	tString
	tNumber
	tOp
)

type token struct {
	kind  tokenKind
	text  string // of a string: its value
	value any    // of a number
	line  int
}

func (t token) String() string { return strconv.Quote(clip(t.text)) }

// The regular expressions are Jinja2's, with trim_blocks. S is a white space character of Python.
func expression(re string) *regexp.Regexp {
	return regexp.MustCompile(`(?s)` + strings.ReplaceAll(re, "S", `[\s\v\x1c-\x1f\x{85}\p{Z}]`))
}

var (
	tagBegin   = expression(`\{%[-+]?S*rawS*(?:-%\}S*|%\})|\{[%{#][-+]?`)
	commentEnd = expression(`\+#\}|-#\}S*|#\}\n?`)
	rawEnd     = expression(`\{%[-+]?S*endrawS*(?:\+%\}|-%\}S*|%\}\n?)`)
	tagEnd     = expression(`^(?:\+%\}|-%\}S*|%\}\n?)`)
	outEnd     = expression(`^(?:-\}\}S*|\}\})`)
	spaces     = expression(`^S+`)
	floats     = expression(`(?i)^(\d+_)*\d+((\.(\d+_)*\d+)?e[+-]?(\d+_)*\d+|\.(\d+_)*\d+)`)
	integers   = expression(`(?i)^(0b(_?[01])+|0o(_?[0-7])+|0x(_?[\da-f])+|[1-9](_?\d)*|0(_?0)*)`)
	names      = expression(`^[\w]+`)
	quoted     = expression(`^('([^'\\]|\\.)*'|"([^"\\]|\\.)*")`)
	operators  = expression(`^(//|\*\*|[=!<>]=|[-+/*%~\[\](){}<>=.:|,])`)
)

// lexer splits a template into text and the tokens of tags. It applies the whitespace control.
type lexer struct {
	src     string
	pos     int
	line    int  // of pos
	newline bool // pos is at the start of a line
	toks    []token
}

func lex(source string) []token {
	l := &lexer{line: 1, newline: true}
	l.failIf(len(source) > maxSource, "the template has %d bytes; the limit is %d", len(source), maxSource)
	l.failIf(!utf8.ValidString(source), "the template is not valid UTF-8")
	source = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source)
	l.src = strings.TrimSuffix(source, "\n")
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		at := tagBegin.FindStringIndex(rest)
		if at == nil {
			l.text(rest, "")
			break
		}
		open := rest[at[0]:at[1]]
		l.text(rest[:at[0]], open)
		l.advance(at[1])
		switch {
		case open[1] == '#':
			l.skipTo(commentEnd, "the comment has no end: write #}")
		case len(open) > len("{%-"):
			raw := l.skipTo(rawEnd, "{% raw %} has no end: write {% endraw %}")
			l.text(raw[:strings.LastIndex(raw, "{%")], raw[strings.LastIndex(raw, "{%"):])
		case open[1] == '{':
			l.add(tOutBegin, "{{", nil)
			l.tag(outEnd, tOutEnd, "}}")
		default:
			l.add(tTagBegin, "{%", nil)
			l.tag(tagEnd, tTagEnd, "%}")
		}
	}
	l.add(tEOF, "the end of the template", nil)
	return l.toks
}

func (l *lexer) failIf(fails bool, format string, args ...any) {
	if fails {
		failParse(l.line, format, args...)
	}
}

func (l *lexer) add(kind tokenKind, text string, value any) {
	l.failIf(len(l.toks) >= maxTokens, "the template has more than %d tokens", maxTokens)
	l.toks = append(l.toks, token{kind, text, value, l.line})
}

// advance consumes n bytes.
func (l *lexer) advance(n int) {
	text := l.src[l.pos : l.pos+n]
	l.line += strings.Count(text, "\n")
	l.pos += n
	l.newline = strings.HasSuffix(text, "\n")
}

// skipTo consumes and returns the text up to the end of the next match of re.
func (l *lexer) skipTo(re *regexp.Regexp, missing string) string {
	at := re.FindStringIndex(l.src[l.pos:])
	l.failIf(at == nil, "%s", missing)
	text := l.src[l.pos : l.pos+at[1]]
	l.advance(at[1])
	return text
}

// text adds the text before a tag that begins with open. It removes the trailing white space before
// {%-, and by lstrip_blocks the indentation of a {% or {# that is first on its line.
func (l *lexer) text(s, open string) {
	start := strings.LastIndexByte(s, '\n') + 1
	switch {
	case len(open) > 2 && open[2] == '-':
		s = strings.TrimRightFunc(s, IsSpace)
	case open == "" || open[1] == '{' || len(open) > 2 && open[2] == '+':
	case (start > 0 || l.newline) && strings.TrimLeftFunc(s[start:], IsSpace) == "":
		s = s[:start]
	}
	if s != "" {
		l.add(tText, s, nil)
	}
}

var closers = map[string]string{"(": ")", "[": "]", "{": "}"}

// tag adds the tokens of a tag, including its end.
func (l *lexer) tag(end *regexp.Regexp, kind tokenKind, closing string) {
	var open []string // the closing brackets still needed
	for {
		if n := len(spaces.FindString(l.src[l.pos:])); n > 0 {
			l.advance(n)
		}
		rest := l.src[l.pos:]
		l.failIf(rest == "", "the tag has no end: write %s", closing)
		if at := end.FindStringIndex(rest); at != nil && len(open) == 0 {
			l.add(kind, closing, nil)
			l.advance(at[1])
			return
		}
		text := ""
		switch c, _ := utf8.DecodeRuneInString(rest); {
		case c == '"' || c == '\'':
			text = quoted.FindString(rest)
			l.failIf(text == "", "the string has no end")
			l.add(tString, l.unquote(text[1:len(text)-1]), nil)
		case c >= '0' && c <= '9':
			text = l.number(rest[:min(len(rest), maxDigits)])
		case c == '_' || unicode.IsLetter(c):
			text = names.FindString(rest)
			next, _ := utf8.DecodeRuneInString(rest[len(text):])
			l.failIf(text == "" || next != utf8.RuneError && unicode.IsLetter(next),
				"a name with characters outside ASCII is not supported")
			l.add(tName, text, nil)
		default:
			text = operators.FindString(rest)
			l.failIf(text == "", "unexpected character %q", c)
			if closer, ok := closers[text]; ok {
				open = append(open, closer)
			} else if strings.Contains(")]}", text) {
				l.failIf(len(open) == 0 || open[len(open)-1] != text, "unexpected %q", text)
				open = open[:len(open)-1]
			}
			l.add(tOp, text, nil)
		}
		l.advance(len(text))
	}
}

// number adds the number at the start of rest and returns its text.
func (l *lexer) number(rest string) string {
	if text := floats.FindString(rest); text != "" && l.src[l.pos-1] != '.' { // x.1 has an index
		f, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
		l.failIf(err != nil, "%q is not a number", text)
		l.add(tNumber, text, f)
		return text
	}
	text := integers.FindString(rest)
	i, err := strconv.ParseInt(strings.ToLower(text), 0, 64)
	l.failIf(err != nil && strings.Trim(text, "0_") != "", "integers of over 64 bits are not supported")
	l.add(tNumber, text, i)
	return text
}

// escapes are the escapes of one character.
var escapes = strings.NewReplacer("\\\n", "", `\\`, `\`, `\'`, `'`, `\"`, `"`, `\a`, "\a", `\b`, "\b",
	`\f`, "\f", `\n`, "\n", `\r`, "\r", `\t`, "\t", `\v`, "\v")

var escaped = regexp.MustCompile(`(?s)\\(x[[:xdigit:]]{2}|u[[:xdigit:]]{4}|U[[:xdigit:]]{8}|[0-7]{1,3}|.)`)

// unquote returns the value of a string literal with Python's escapes. An unknown escape keeps its
// backslash.
func (l *lexer) unquote(s string) string {
	return escaped.ReplaceAllStringFunc(s, func(e string) string {
		c, _ := utf8.DecodeRuneInString(e[1:])
		var v uint64
		switch {
		case len(e) > 3 && strings.ContainsRune("xuU", c):
			v, _ = strconv.ParseUint(e[2:], 16, 32) // the regular expression matches digits only
		case c >= '0' && c <= '7':
			v, _ = strconv.ParseUint(e[1:], 8, 32)
		case strings.ContainsRune("xuUN", c) || c >= utf8.RuneSelf:
			l.failIf(true, "the escape %s is incomplete or not supported", e)
		default:
			return escapes.Replace(e)
		}
		l.failIf(!utf8.ValidRune(rune(v)), "the escape %s is not a character", e)
		return string(rune(v))
	})
}

// small returns v as an int64 if it fits, and v otherwise.
func small(v *big.Int) any {
	if v.IsInt64() {
		return v.Int64()
	}
	return v
}

// IsSpace reports whether Python's str.isspace is true for c.
func IsSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }
