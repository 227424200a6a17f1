package markdown

import (
	"strings"
	"unicode/utf8"
)

// Fit returns a page in which no line is too wide for a terminal: prose is wrapped as by [Page.Text],
// and a table with a wide row becomes a list as by [Page.Table].
func Fit(text string) string {
	var p Page
	var prose, table []string
	flush := func() {
		if len(prose) > 0 {
			p.Text("%s", strings.Join(prose, ""))
		}
		if len(table) > 0 {
			p.fitTable(table)
		}
		prose, table = nil, nil
	}
	code := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			code = !code
		}
		row := !code && strings.HasPrefix(line, "|")
		if row && len(prose) > 0 || !row && len(table) > 0 {
			flush()
		}
		if row {
			table = append(table, line)
		} else {
			prose = append(prose, line)
		}
	}
	flush()
	return p.String()
}

// fitTable adds the lines of a table, as they are if they fit.
func (p *Page) fitTable(lines []string) {
	wide := false
	for _, line := range lines {
		wide = wide || utf8.RuneCountInString(line) > tableColumns+1 // with the end of the line
	}
	if !wide || len(lines) < 3 {
		p.WriteString(strings.Join(lines, ""))
		return
	}
	var rows [][]string
	for i, line := range lines {
		if i == 1 {
			continue // the rule below the head
		}
		line = strings.ReplaceAll(strings.Trim(strings.TrimSpace(line), "|"), `\|`, "\x00")
		var row []string
		for cell := range strings.SplitSeq(line, "|") {
			row = append(row, strings.ReplaceAll(strings.TrimSpace(cell), "\x00", "|"))
		}
		rows = append(rows, row)
	}
	for _, row := range rows[1:] {
		if len(row) > len(rows[0]) {
			p.WriteString(strings.Join(lines, ""))
			return
		}
	}
	p.list(rows)
	p.Truncate(p.Len() - 1) // the empty line after a table is in the text
}
