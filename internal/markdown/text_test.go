package markdown

import (
	"strings"
	"testing"
)

// Prose is wrapped at 100 columns, list items are indented, and everything else is unchanged.
func TestText(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("word ", 30)) // 149 columns
	keep := "| " + long + " |\n## " + long + "\n![" + long + "](p.png)\n```\n" + long + "\n\n" + long + "\n```\n"
	var p Page
	p.Text("%s\n\n- %s\n- short\n\n%s", long, long, keep)
	wrapped := func(indent string, first int) string {
		return strings.TrimSpace(strings.Repeat("word ", first)) + "\n" + indent +
			strings.TrimSpace(strings.Repeat("word ", 30-first)) + "\n"
	}
	want := wrapped("", 20) + "\n- " + wrapped("  ", 19) + "- short\n\n" + keep
	if p.String() != want {
		t.Errorf("the page is\n%s\nwant\n%s", p.String(), want)
	}
}

// A word that is longer than a line is not broken.
func TestTextLongWord(t *testing.T) {
	word := strings.Repeat("x", 130)
	var p Page
	p.Text("a %s b\n", word)
	if want := "a\n" + word + "\nb\n"; p.String() != want {
		t.Errorf("the page is %q, want %q", p.String(), want)
	}
}
