// Package terminal reads messages from a person or a pipe, and writes text and progress to a terminal.
//
// What a model writes is shown so that it cannot control the terminal: see [Printable].
package terminal

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/term"
)

// Is reports whether stream is a file that is a terminal.
func Is(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// IsDumb reports whether the terminal has no escape sequences, such as an editor's shell.
func IsDumb() bool { return os.Getenv("TERM") == "dumb" }

// Styles for [Styled], as ANSI escapes.
const (
	Dim   = "\x1b[2m"
	Bold  = "\x1b[1m"
	plain = "\x1b[0m"
)

// Styled returns text in the style if w is a terminal with escape sequences and NO_COLOR is not set
// (no-color.org).
func Styled(w io.Writer, style, text string) string {
	if !Is(w) || IsDumb() || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return style + text + plain
}

// Printable returns text with visible control characters if w is a terminal, so that a model's text
// cannot control it. For a pipe or a file it returns text unchanged.
func Printable(w io.Writer, text string) string {
	if !Is(w) {
		return text
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || !unicode.IsControl(r):
			return r
		case r < 0x20:
			return 0x2400 + r // the Unicode picture of the control character
		}
		return unicode.ReplacementChar
	}, text)
}

// ShowStatus replaces the cursor's line by text and the time that the work has taken. The line is cut
// to the terminal's width, because only one line can be cleared.
func ShowStatus(w io.Writer, text string, took time.Duration) {
	width := 80
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			width = n
		}
	}
	text = Printable(w, strings.ReplaceAll(text, "\n", " "))
	// The last column stays free: some terminals wrap when it is filled.
	fmt.Fprint(w, "\r\x1b[K"+Styled(w, Dim, statusLine(text, took, width-1)))
}

// statusLine returns text, cut so that the seconds fit after it.
func statusLine(text string, took time.Duration, width int) string {
	suffix := fmt.Sprintf(" … %.1f s", took.Seconds())
	return Cut(Cut(text, width-Columns(suffix))+suffix, width)
}

// Cut returns the longest prefix of text that fits in width columns.
func Cut(text string, width int) string {
	n := 0
	for i, r := range text {
		if n += Columns(string(r)); n > width {
			return text[:i]
		}
	}
	return text
}

// Columns returns an upper bound of the width of text. Characters from the CJK radicals on count
// twice.
func Columns(text string) int {
	n := 0
	for _, r := range text {
		if n++; r >= 0x2e80 {
			n++
		}
	}
	return n
}

// WipeStatus clears the cursor's line.
func WipeStatus(w io.Writer) { fmt.Fprint(w, "\r\x1b[K") }

// patience is how long work runs before its progress is shown.
const patience = 700 * time.Millisecond

// ShowProgress shows on a terminal what takes long and for how long, once it has taken 0.7 s. The
// returned function ends that and clears the line; calling it again does nothing. If w is not a
// terminal, nothing is shown.
func ShowProgress(w io.Writer, what string) (done func()) {
	if !Is(w) || IsDumb() {
		return func() {}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		started := time.Now()
		tick := time.NewTicker(patience)
		defer tick.Stop()
		shown := false
		for {
			select {
			case <-stop:
				if shown {
					WipeStatus(w)
				}
				return
			case <-tick.C:
				ShowStatus(w, what, time.Since(started))
				shown = true
			}
		}
	}()
	return sync.OnceFunc(func() { close(stop); <-stopped })
}
