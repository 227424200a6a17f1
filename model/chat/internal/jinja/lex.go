package jinja

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nikolalohinski/gonja/v2/config"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// maxSource bounds a template's own length; the longest published ones are some 30 KB.
const maxSource = 1 << 20

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
	tInt
	tFloat
	tOp
)

type token struct {
	kind kind
	text string // text and strings: what they stand for; the others: as written
	line int
}

func (t token) String() string {
	switch t.kind {
	case tEOF:
		return "the end of the template"
	case tText:
		return "text"
	case tString:
		return "the string " + strconv.Quote(t.text)
	}
	return strconv.Quote(t.text)
}

var operators = map[string]bool{
	"+": true, "-": true, "*": true, "/": true, "//": true, "%": true, "**": true, "~": true, "|": true, ",": true, ":": true, ".": true,
	"<": true, "<=": true, ">": true, ">=": true, "==": true, "!=": true, "=": true,
	"(": true, ")": true, "[": true, "]": true, "{": true, "}": true,
}

// lexer turns gonja's tokens into ours. gonja finds the tags, names and operators. Whitespace control and literals are worked out here from
// the positions: its lstrip_blocks also strips blanks behind an expression on the same line, and a line break inside a tag stays in front of
// the next token's text.
type lexer struct {
	src        string
	lineStarts []int
	out        []token
	textStart  int    // where the text after the last tag begins
	inside     bool   // of a tag
	tag        string // name of that tag, for raw
	ended      int    // end of its last token so far
}

func lex(source string) []token {
	if len(source) > maxSource {
		panic(failure{&ParseError{1, fmt.Sprintf("the template has %d bytes, at most %d are read", len(source), maxSource)}})
	}
	source = strings.ReplaceAll(strings.ReplaceAll(source, "\r\n", "\n"), "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(source, "\n"), lineStarts: []int{0}}
	for i := range len(l.src) {
		if l.src[i] == '\n' {
			l.lineStarts = append(l.lineStarts, i+1)
		}
	}
	cfg := config.New()
	cfg.KeepTrailingNewline = true // taken off above, so that gonja's positions are ours
	// gonja takes the quote behind an escaped backslash for an escaped quote: show it two characters of no meaning instead. Literals are read
	// from l.src.
	stream := tokens.LexAll(strings.ReplaceAll(l.src, `\\`, "$$"), cfg)
	for {
		tok := stream.Current()
		if tok == nil || tok.Type == tokens.EOF {
			l.finish()
			return l.out
		}
		if tok.Type == tokens.Error {
			l.fail(tok.Pos, "cannot be read here: %s", strings.TrimSpace(tok.Val))
		}
		stream.Next()
		l.token(tok)
	}
}

func (l *lexer) line(pos int) int {
	return sort.Search(len(l.lineStarts), func(i int) bool { return l.lineStarts[i] > pos })
}

func (l *lexer) fail(pos int, format string, args ...any) {
	panic(failure{&ParseError{l.line(min(pos, len(l.src))), fmt.Sprintf(format, args...)}})
}

func (l *lexer) add(k kind, text string, pos int) {
	l.out = append(l.out, token{k, text, l.line(pos)})
}

func (l *lexer) finish() {
	if !l.inside && l.textStart < len(l.src) {
		l.add(tText, l.src[l.textStart:], l.textStart)
	}
	l.add(tEOF, "", len(l.src))
}

func (l *lexer) token(tok *tokens.Token) {
	pos := tok.Pos
	val := tok.Val
	if trimmed := strings.TrimLeftFunc(val, isSpace); tok.Type != tokens.Data && tok.Type != tokens.String {
		pos += len(val) - len(trimmed)
		val = trimmed
	}
	end := pos + len(val)
	switch tok.Type {
	case tokens.Data: // by position, in open
	case tokens.BlockBegin:
		l.open(pos, end, true)
		l.add(tTagBegin, "{%", pos)
		l.tag, l.ended = "", end
	case tokens.VariableBegin:
		if strings.HasPrefix(l.src[end:], "+") {
			l.fail(pos, "{{+ is not supported, write {{")
		}
		l.open(pos, end, false)
		l.add(tOutBegin, "{{", pos)
		l.tag, l.ended = "{{", end
	case tokens.CommentBegin:
		l.open(pos, end, true)
	case tokens.BlockEnd:
		l.gap(l.ended, pos)
		l.add(tTagEnd, "%}", pos)
		l.close(val[0], end, l.tag != "raw") // transformers' trim_blocks leaves a line break behind {% raw %}
	case tokens.VariableEnd:
		l.gap(l.ended, pos)
		l.add(tOutEnd, "}}", pos)
		l.close(val[0], end, false)
	case tokens.CommentEnd:
		l.close(val[0], end, true)
	case tokens.String:
		l.str(tok.Pos)
	default:
		l.simple(tok.Type, val, pos)
	}
}

// gap checks that gonja skipped nothing but blanks between two tokens: it drops characters that it does not know.
func (l *lexer) gap(from, to int) {
	for from < to && isSpace(rune(l.src[from])) {
		from++
	}
	if from < to {
		l.fail(from, "%q is not part of the language", strings.TrimSpace(l.src[from:to]))
	}
}

// open ends the text before a tag, which begins at pos and whose opening delimiter, sign included, ends at end.
func (l *lexer) open(pos, end int, lstrip bool) {
	text := l.src[l.textStart:pos]
	switch sign := l.src[end-1]; {
	case sign == '-':
		text = strings.TrimRightFunc(text, isSpace)
	case sign != '+' && lstrip:
		// lstrip_blocks takes the indentation of a tag that is the first thing on its line, and nothing else.
		from := strings.LastIndexByte(text, '\n') + 1
		atLineStart := from > 0 || l.textStart == 0 || l.src[l.textStart-1] == '\n'
		if atLineStart && strings.TrimFunc(text[from:], isSpace) == "" {
			text = text[:from]
		}
	}
	if text != "" {
		l.add(tText, text, l.textStart)
	}
	l.inside = true
}

// close begins the text behind a tag.
func (l *lexer) close(sign byte, end int, trim bool) {
	l.textStart, l.ended, l.inside = end, end, false
	switch {
	case sign == '-':
		rest := l.src[end:]
		l.textStart += len(rest) - len(strings.TrimLeftFunc(rest, isSpace))
	case sign != '+' && trim && strings.HasPrefix(l.src[end:], "\n"):
		l.textStart++
	}
}

// simple takes a name, a number or an operator.
func (l *lexer) simple(typ tokens.Type, val string, pos int) {
	if val == "" {
		return // gonja's empty name of a tag that begins on the next line
	}
	l.gap(l.ended, pos)
	if l.tag == "" {
		if l.tag = val; val == "raw" && strings.Contains(l.src[l.ended:pos], "\n") {
			l.fail(pos, "write {%% raw on one line") // gonja has read what follows as tags
		}
	}
	l.ended = pos + len(val)
	first, _ := utf8.DecodeRuneInString(val)
	switch {
	case typ == tokens.Integer || typ == tokens.Float:
		k := tInt
		if typ == tokens.Float {
			k = tFloat
		}
		l.add(k, val, pos)
	case first == '_' || unicode.IsLetter(first):
		if strings.IndexFunc(val, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) >= 0 {
			l.fail(pos, "%q is not a name", val)
		}
		l.add(tName, val, pos)
	case operators[val]:
		l.add(tOp, val, pos)
	default:
		l.fail(pos, "%q is not part of the language", val)
	}
}

// str reads a string literal from the source. Escapes are Python's; one that Python does not know keeps its backslash.
func (l *lexer) str(pos int) {
	for pos < len(l.src) && l.src[pos] != '"' && l.src[pos] != '\'' {
		pos++
	}
	l.gap(l.ended, pos)
	if pos >= len(l.src) {
		l.fail(pos, "a string is missing")
	}
	quote, i := l.src[pos], pos+1
	var b strings.Builder
	for ; ; i++ {
		if i >= len(l.src) {
			l.fail(pos, "the string is not closed")
		}
		c := l.src[i]
		if c == quote {
			break
		}
		if c != '\\' || i+1 >= len(l.src) {
			b.WriteByte(c)
			continue
		}
		i++
		i += l.escape(&b, i)
	}
	l.ended = i + 1
	l.add(tString, b.String(), pos)
}

var plainEscapes = map[byte]string{
	'\n': "", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
}

// escape writes what the escape whose letter is at i stands for and returns how many bytes follow the letter.
func (l *lexer) escape(b *strings.Builder, i int) int {
	c := l.src[i]
	if s, ok := plainEscapes[c]; ok {
		b.WriteString(s)
		return 0
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	switch {
	case digits > 0:
		if i+1+digits <= len(l.src) {
			if v, err := strconv.ParseUint(l.src[i+1:i+1+digits], 16, 32); err == nil && utf8.ValidRune(rune(v)) {
				b.WriteRune(rune(v))
				return digits
			}
		}
		l.fail(i, `the escape \%c needs %d hexadecimal digits that are a character`, c, digits)
	case c >= '0' && c <= '7':
		n := 1
		for n < 3 && i+n < len(l.src) && l.src[i+n] >= '0' && l.src[i+n] <= '7' {
			n++
		}
		v, _ := strconv.ParseUint(l.src[i:i+n], 8, 32) // three octal digits always parse
		b.WriteRune(rune(v))
		return n - 1
	case c == 'N':
		l.fail(i, `the escape \N{name} is not supported, write \uXXXX`)
	}
	b.WriteByte('\\')
	b.WriteByte(c)
	return 0
}

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }
