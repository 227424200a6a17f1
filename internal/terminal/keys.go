package terminal

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"
)

const escape = 0x1b

// Package term blocks at input that it takes for an incomplete key, and everything after it, Enter
// and Ctrl-C included, waits: at bytes that are not UTF-8, as in a paste from another encoding, at
// U+FFFD, and at an Esc that starts no sequence. keyReader therefore replaces each of these bytes by a
// mark, a character of Unicode's last private plane, which no keyboard has. The mark's low byte is the
// original byte, 0 for U+FFFD.
const (
	firstMark = 0x10ff00
	lastMark  = 0x10ffff
)

// keyReader reads keys for package term. It also records what term does not report: whether EOF was
// Ctrl-C or Ctrl-D, and whether anything had been typed before.
type keyReader struct {
	in               io.Reader
	typed, interrupt bool

	held  []byte // an incomplete character or sequence
	ready []byte // for package term
}

func (k *keyReader) Read(p []byte) (int, error) {
	for len(k.ready) == 0 {
		b := make([]byte, 256)
		n, err := k.in.Read(b)
		if b = b[:n]; n > 0 && bytes.Equal(k.held, []byte{escape}) && b[0] != '[' && b[0] != 'O' {
			k.held = nil // the Esc key, followed by another key
		}
		k.note(b)
		k.ready, k.held = readable(append(k.held, b...))
		if err != nil && len(k.ready) == 0 {
			return 0, err
		}
	}
	n := copy(p, k.ready)
	k.ready = k.ready[n:]
	return n, nil
}

func (k *keyReader) note(keys []byte) {
	for _, b := range keys {
		switch b {
		case 3:
			k.interrupt = true
		case 4:
		default:
			k.typed = true
		}
	}
}

// readable returns the part of b that package term can read, and the rest, which is an incomplete
// character or sequence.
func readable(b []byte) (ready, rest []byte) {
	for len(b) > 0 {
		if b[0] == escape {
			n, known := sequence(b)
			if n == 0 {
				break
			}
			if known {
				ready = append(ready, b[:n]...)
			}
			b = b[n:]
			continue
		}
		if !utf8.FullRune(b) {
			break
		}
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError {
			if r = firstMark; n == 1 {
				r += rune(b[0])
			}
		}
		ready = utf8.AppendRune(ready, r)
		b = b[n:]
	}
	return ready, b
}

// sequence returns the length of the escape sequence at the start of b, 0 if it is incomplete, and
// whether package term can parse it. It parses control sequences: ESC [ parameters letter (ECMA-48,
// 5.4). Others, such as F1 and Alt with a key, have no meaning here.
func sequence(b []byte) (n int, known bool) {
	if len(b) < 2 {
		return 0, false
	}
	switch c := b[1]; {
	case c == '[':
		for n = 2; n < len(b); n++ {
			if c := b[n]; c >= 0x40 && c <= 0x7e {
				return n + 1, c == '~' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
			} else if c < 0x20 || c > 0x7e {
				return n, false // it ends in the middle
			}
		}
		return 0, false
	case c == 'O': // function keys: ESC O letter
		switch {
		case len(b) < 3:
			return 0, false
		case b[2] <= ' ':
			return 2, false
		}
		return 3, false
	case c <= ' ' || c == 0x7f: // Esc, and another key
		return 1, false
	case !utf8.FullRune(b[1:]):
		return 0, false
	}
	_, n = utf8.DecodeRune(b[1:])
	return 1 + n, false
}

// typedText is a line that package term has read, with what its marks stand for.
func typedText(line string) string {
	var b strings.Builder
	for _, r := range line {
		switch {
		case r == firstMark:
			b.WriteRune(utf8.RuneError)
		case r > firstMark && r <= lastMark:
			b.WriteByte(byte(r - firstMark))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// markWriter shows marks as U+FFFD, which is as wide. Package term writes whole characters.
type markWriter struct{ out io.Writer }

func (w markWriter) Write(p []byte) (int, error) {
	shown := bytes.Map(func(r rune) rune {
		if r >= firstMark && r <= lastMark {
			return utf8.RuneError
		}
		return r
	}, p)
	if _, err := w.out.Write(shown); err != nil {
		return 0, err
	}
	return len(p), nil
}
