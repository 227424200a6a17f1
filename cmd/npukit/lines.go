package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"
)

// lines gives one message of a conversation after the other, and io.EOF when there are no more.
type lines interface {
	Next() (string, error)
	Close() error
}

// pipedLines reads a message a line.
type pipedLines struct {
	r      *bufio.Reader
	prompt io.Writer // shows that a message is waited for, on a terminal that can do no more; nil in a pipe
}

func (p *pipedLines) Next() (string, error) {
	if p.prompt == nil {
		return p.line()
	}
	message := ""
	for prompt := "> "; ; prompt = "… " {
		if _, err := io.WriteString(p.prompt, prompt); err != nil {
			return "", err
		}
		line, err := p.line()
		if err != nil {
			io.WriteString(p.prompt, "\n") // where it fails the terminal is gone, and nothing is left to say
			return "", err
		}
		more, continued := strings.CutSuffix(line, `\`)
		if message += more; !continued {
			return message, nil
		}
		message += "\n"
	}
}

func (p *pipedLines) line() (string, error) {
	var line []byte
	for {
		part, err := p.r.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxStdin {
			return "", fmt.Errorf("a line of stdin has more than %d MB: a line is a message", maxStdin>>20)
		}
		if err == bufio.ErrBufferFull {
			continue
		}
		if err == io.EOF && len(line) > 0 {
			err = nil // a last line without a newline
		}
		return strings.TrimRight(string(line), "\r\n"), err
	}
}

func (p *pipedLines) Close() error { return nil }

// bracketedPasteOff ends the mode in which a terminal marks what is pasted; package term begins it.
const bracketedPasteOff = "\x1b[?2004l"

// typedLines reads messages from a person, with editing, history and paste of several lines. The
// terminal is in raw mode only while it reads, so that Ctrl-C is a signal while an answer comes.
type typedLines struct {
	in, out *os.File
	keys    *keyReader
	term    *term.Terminal

	mu     sync.Mutex
	cooked *term.State // to go back to, while the terminal is raw
}

func newTypedLines(in, out *os.File) *typedLines {
	t := &typedLines{in: in, out: out, keys: &keyReader{in: in}}
	t.reset(nil)
	return t
}

// reset begins with an empty line, which package term offers no other way to do.
func (t *typedLines) reset(history term.History) {
	t.term = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{t.keys, markWriter{t.out}}, "")
	if history != nil {
		t.term.History = history
	}
}

func (t *typedLines) Next() (string, error) {
	state, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return "", err
	}
	t.mu.Lock()
	t.cooked = state
	t.mu.Unlock()
	defer t.Close()
	if width, height, err := term.GetSize(int(t.out.Fd())); err == nil {
		if err := t.term.SetSize(width, height); err != nil {
			return "", err
		}
	}
	t.term.SetBracketedPasteMode(true)
	var message []string
	for {
		t.term.SetPrompt("> ")
		if len(message) > 0 {
			t.term.SetPrompt("… ")
		}
		t.keys.typed, t.keys.interrupt = len(message) > 0, false
		line, err := t.term.ReadLine()
		pasted := errors.Is(err, term.ErrPasteIndicator)
		if err == io.EOF && t.keys.interrupt && t.keys.typed {
			if _, err := io.WriteString(t.out, "^C\r\n"); err != nil {
				return "", err
			}
			t.reset(t.term.History)
			message = nil
			continue
		}
		if err != nil && !pasted {
			if err == io.EOF {
				io.WriteString(t.out, "\r\n") // where it fails the terminal is gone, and nothing is left to say
			}
			return "", err
		}
		line = typedText(line)
		more, continued := strings.CutSuffix(line, `\`)
		if pasted {
			more, continued = line, true // what follows may be typed: Enter ends the message
		}
		message = append(message, more)
		if !continued {
			return strings.Join(message, "\n"), nil
		}
	}
}

// Close gives the terminal back as it was. It may be called while Next waits in another goroutine,
// which a signal has left behind.
func (t *typedLines) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cooked == nil {
		return nil
	}
	state := t.cooked
	t.cooked = nil
	// Not through t.term, which Next may hold; a terminal that is gone needs none.
	io.WriteString(t.out, bracketedPasteOff)
	return term.Restore(int(t.in.Fd()), state)
}
