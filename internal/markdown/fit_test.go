package markdown

import (
	"strings"
	"testing"
)

func TestFit(t *testing.T) {
	long := strings.Repeat("word ", 30)
	narrow := "| a | b |\n|---|--:|\n| 1 | 2 |\n"
	got := Fit("# Title\n\n" + long + "\n\n" + narrow + "\n| gate | holds | seen |\n|---|---|---|\n| `x` | " + long +
		" | |\n| `y` | a \\| b | 3 |\n\n```\n" + long + "\n| " + long + "|\n```\n")
	for _, want := range []string{"# Title\n\nword", "\n\n" + narrow + "\n- **`x`**. Holds: word",
		"\n- **`y`**. Holds: a | b. Seen: 3.\n\n```\n" + long + "\n| " + long + "|\n```\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	before, _, _ := strings.Cut(got, "```")
	for line := range strings.Lines(before) {
		if len(line) > columns+1 {
			t.Errorf("a line of %d columns: %s", len(line)-1, line)
		}
	}
	if again := Fit(got); again != got {
		t.Errorf("fitted again:\n%s\nbefore:\n%s", again, got)
	}
}
