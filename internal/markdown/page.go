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
