package markdown

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// columns is the width of prose.
const columns = 100

// item matches the marker of a list item.
var item = regexp.MustCompile(`^(- |\d+\. )`)

// Text adds Markdown and wraps its paragraphs and list items at 100 columns. Headings, pictures, rows
// of tables and code blocks stay as they are.
func (p *Page) Text(format string, args ...any) {
	var words []string
	indent := ""
	flush := func() {
		p.fill(words, indent)
		words, indent = nil, ""
	}
	code := false
	for line := range strings.Lines(fmt.Sprintf(format, args...)) {
		line = strings.TrimSuffix(line, "\n")
		fence := strings.HasPrefix(line, "```")
		switch {
		case fence || code || line == "" || strings.ContainsRune("#!|", rune(line[0])):
			flush()
			p.WriteString(line + "\n")
			code = code != fence
			continue
		case item.MatchString(line):
			flush()
			indent = strings.Repeat(" ", len(item.FindString(line)))
		}
		words = append(words, strings.Fields(line)...)
	}
	flush()
}

// fill writes words in lines of at most columns, with indent before all lines but the first.
func (p *Page) fill(words []string, indent string) {
	column := 0
	for i, word := range words {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > columns:
			p.WriteString("\n" + indent)
			column = len(indent)
		default:
			p.WriteByte(' ')
			column++
		}
		p.WriteString(word)
		column += n
	}
	if len(words) > 0 {
		p.WriteByte('\n')
	}
}
