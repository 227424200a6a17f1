// Package markdown builds the pages that reports are.
package markdown

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
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

// tableColumns is the width of the longest row of a table.
const tableColumns = 120

// Table adds rows of cells, the first of them as its head. If a row is too wide to be read in a
// terminal, Table adds a list instead: an item for each row, with the head's names before the cells
// that are not empty.
func (p *Page) Table(rows [][]string) {
	for _, row := range rows {
		if utf8.RuneCountInString(tableRow(row)) > tableColumns {
			p.list(rows)
			return
		}
	}
	for i, row := range rows {
		p.Linef("%s", tableRow(row))
		if i == 0 {
			p.Printf("|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	p.Printf("\n")
}

func tableRow(row []string) string { return "| " + strings.Join(row, " | ") + " |" }

// list adds rows as items: "- **cell**. Head: cell. Head: cell.", or "- **cell**: cell" if there are
// two columns.
func (p *Page) list(rows [][]string) {
	for _, row := range rows[1:] {
		text := "- **" + row[0] + "**"
		for i, cell := range row[1:] {
			cell = strings.ReplaceAll(cell, `\|`, "|")
			switch head := rows[0][i+1]; {
			case cell == "" || cell == "-":
			case len(rows[0]) == 2:
				text += ": " + cell
			default:
				text = strings.TrimSuffix(text, ".") + ". " + strings.ToUpper(head[:min(1, len(head))]) +
					head[min(1, len(head)):] + ": " + strings.TrimSuffix(cell, ".") + "."
			}
		}
		p.fill(strings.Fields(text), "  ")
	}
	p.Printf("\n")
}

// Cell returns text for a cell of a table.
func Cell(s string) string { return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s) }
