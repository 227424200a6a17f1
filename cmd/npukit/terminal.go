package main

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

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// isDumb reports a terminal that takes no escapes, as an editor's shell is one.
func isDumb() bool { return os.Getenv("TERM") == "dumb" }

// ANSI escapes for what stands beside an answer. They are only written to terminals.
const (
	dim   = "\x1b[2m"
	bold  = "\x1b[1m"
	plain = "\x1b[0m"
)

// styled wraps text in a style, on a terminal that has some, unless NO_COLOR asks for none
// (no-color.org).
func styled(w io.Writer, style, text string) string {
	if !isTerminal(w) || isDumb() || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return style + text + plain
}

// printable makes control characters of a model's text visible, so that no text can steer the
// terminal that shows it. Into a pipe or a file text goes as it is.
func printable(w io.Writer, text string) string {
	if !isTerminal(w) {
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

// showStatus writes what is being done, and for how long, into the line of the cursor, in place of
// what stood there. It is cut to the terminal's width: of a text that takes more than a line, only
// the last can be wiped.
func showStatus(w io.Writer, text string, took time.Duration) {
	width := 80
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			width = n
		}
	}
	text = printable(w, strings.ReplaceAll(text, "\n", " "))
	// The last column stays free: some terminals wrap when it is filled.
	fmt.Fprint(w, "\r\x1b[K"+styled(w, dim, statusLine(text, took, width-1)))
}

// statusLine is as much of a text as there is room for, and the seconds behind it.
func statusLine(text string, took time.Duration, width int) string {
	behind := fmt.Sprintf(" … %.1f s", took.Seconds())
	return cut(cut(text, width-columns(behind))+behind, width)
}

// cut is the beginning of a text, as much as so many columns hold.
func cut(text string, width int) string {
	n := 0
	for i, r := range text {
		if n += columns(string(r)); n > width {
			return text[:i]
		}
	}
	return text
}

// columns is how wide a text is at most: characters from the CJK radicals on, where the wide ones
// begin, count twice.
func columns(text string) int {
	n := 0
	for _, r := range text {
		if n++; r >= 0x2e80 {
			n++
		}
	}
	return n
}

// wipeStatus leaves the line empty.
func wipeStatus(w io.Writer) { fmt.Fprint(w, "\r\x1b[K") }

// patience is how long work goes on before a terminal is told what takes so long.
const patience = 700 * time.Millisecond

// progress shows on a terminal that something takes long, with the seconds that it takes. The
// function that it returns ends that and wipes the line; calling it again does nothing.
func (a *app) progress(what string) (done func()) {
	if !isTerminal(a.err) || isDumb() {
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
					wipeStatus(a.err)
				}
				return
			case <-tick.C:
				showStatus(a.err, what, time.Since(started))
				shown = true
			}
		}
	}()
	return sync.OnceFunc(func() { close(stop); <-stopped })
}
