package terminal

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

// Lines reads the messages of a conversation. Next returns io.EOF at the end.
type Lines interface {
	Next() (string, error)
	Close() error
}

// maxLine bounds a line of a pipe: more than any context holds.
const maxLine = 256 << 20

// Piped reads messages from a pipe or a terminal without escape sequences.
type Piped struct {
	r      *bufio.Reader
	prompt io.Writer // nil in a pipe
}

// ReadPiped returns the lines of r. On a terminal without escape sequences, prompt is where a
// prompt is written before each message; in a pipe it is nil.
func ReadPiped(r io.Reader, prompt io.Writer) *Piped {
	return &Piped{bufio.NewReader(r), prompt}
}

func (p *Piped) Next() (string, error) {
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
			io.WriteString(p.prompt, "\n") // if this fails, the terminal is gone
			return "", err
		}
		more, continued := strings.CutSuffix(line, `\`)
		if message += more; !continued {
			return message, nil
		}
		message += "\n"
	}
}

func (p *Piped) line() (string, error) {
	var line []byte
	for {
		part, err := p.r.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxLine {
			return "", fmt.Errorf("a line of stdin has more than %d MB: a line is a message", maxLine>>20)
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

func (p *Piped) Close() error { return nil }

// bracketedPasteOff ends the mode in which a terminal marks pasted text. Package term starts it.
const bracketedPasteOff = "\x1b[?2004l"

// Typed reads messages from a terminal, with line editing, history and multi-line paste. The terminal
// is in raw mode only during Next, so Ctrl-C is a signal while an answer is printed.
type Typed struct {
	in, out *os.File
	keys    *keyReader
	term    *term.Terminal

	mu     sync.Mutex
	cooked *term.State // the state to restore; nil unless the terminal is raw
}

// ReadTyped returns the lines that are typed at in and echoed to out, which must be terminals.
func ReadTyped(in, out *os.File) *Typed {
	t := &Typed{in: in, out: out, keys: &keyReader{in: in}}
	t.reset(nil)
	return t
}

// reset starts with an empty line. Package term has no other way to clear one.
func (t *Typed) reset(history term.History) {
	t.term = term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{t.keys, markWriter{t.out}}, "")
	if history != nil {
		t.term.History = history
	}
}

func (t *Typed) Next() (string, error) {
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
				io.WriteString(t.out, "\r\n") // if this fails, the terminal is gone
			}
			return "", err
		}
		line = typedText(line)
		more, continued := strings.CutSuffix(line, `\`)
		if pasted {
			more, continued = line, true // Enter after the paste ends the message
		}
		message = append(message, more)
		if !continued {
			return strings.Join(message, "\n"), nil
		}
	}
}

// Close restores the terminal. It may be called while Next waits in another goroutine, as after a
// signal.
func (t *Typed) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cooked == nil {
		return nil
	}
	state := t.cooked
	t.cooked = nil
	// Not through t.term, whose lock Next may hold. A terminal that is gone needs no restoring.
	io.WriteString(t.out, bracketedPasteOff)
	return term.Restore(int(t.in.Fd()), state)
}
