// Package markdown builds the pages that reports are.
package markdown

import (
	"bytes"
	"fmt"
	"strings"
)

// Page is a page in the making. The zero value is an empty one.
type Page struct{ bytes.Buffer }

// Printf adds text.
func (p *Page) Printf(format string, args ...any) { fmt.Fprintf(&p.Buffer, format, args...) }

// Linef adds a line of text.
func (p *Page) Linef(format string, args ...any) {
	p.Printf(format, args...)
	p.WriteByte('\n')
}

// Table adds rows of cells, the first of them as its head.
func (p *Page) Table(rows [][]string) {
	for i, row := range rows {
		p.Printf("| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			p.Printf("|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	p.Printf("\n")
}

// Cell returns text for a cell of a table.
func Cell(s string) string { return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s) }
