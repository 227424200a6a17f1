package terminal

import (
	"strings"
	"testing"
	"time"
)

// What is being done fits a terminal's width, with the seconds to the last; wide characters take
// two columns.
func TestStatusFitsTheTerminal(t *testing.T) {
	for _, tc := range []struct {
		text  string
		width int
		want  string
	}{
		{"reading", 39, "reading … 1.5 s"},
		{"logits of 256 positions, device and oracle", 39, "logits of 256 positions, device … 1.5 s"},
		{"logits of 256 positions", 12, "logi … 1.5 s"},
		{"東京東京東京東京", 15, "東京東 … 1.5 s"},
		{"reading", 5, " … 1."},
		{"reading", 0, ""},
	} {
		got := statusLine(tc.text, 1500*time.Millisecond, tc.width)
		if Columns(got) > tc.width || got != tc.want {
			t.Errorf("%q in %d columns is %q, of %d; want %q", tc.text, tc.width, got, Columns(got), tc.want)
		}
	}
	if n := Columns(strings.Repeat("…", 3) + "é"); n != 4 {
		t.Errorf("%d columns", n)
	}
}
