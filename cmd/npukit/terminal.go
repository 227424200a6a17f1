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

// ANSI escapes for what stands beside an answer. They are only written to terminals.
const (
	dim   = "\x1b[2m"
	bold  = "\x1b[1m"
	plain = "\x1b[0m"
)

// styled wraps text in a style, on a terminal, unless NO_COLOR asks for none (no-color.org).
func styled(w io.Writer, style, text string) string {
	if !isTerminal(w) || os.Getenv("NO_COLOR") != "" {
		return text
	}
	return style + text + plain
}

// printable makes control characters of a model's text visible, so that no text can steer the terminal that shows it. Into a pipe or a file text
// goes as it is.
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

// patience is how long work goes on before a terminal is told what takes so long.
const patience = 700 * time.Millisecond

// progress shows on a terminal that something takes long, with the seconds that it takes. The function that it returns ends that and wipes the
// line; calling it again does nothing.
func (a *app) progress(what string) (done func()) {
	if !isTerminal(a.err) {
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
					fmt.Fprint(a.err, "\r\x1b[K")
				}
				return
			case <-tick.C:
				fmt.Fprintf(a.err, "\r\x1b[K%s", styled(a.err, dim, fmt.Sprintf("%s … %.1f s", what, time.Since(started).Seconds())))
				shown = true
			}
		}
	}()
	return sync.OnceFunc(func() { close(stop); <-stopped })
}
