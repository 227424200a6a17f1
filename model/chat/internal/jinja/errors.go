package jinja

import (
	"errors"
	"fmt"
)

// ErrLimit is wrapped by the error of a template that exceeds a limit on steps, time, memory or
// depth.
var ErrLimit = errors.New("template limit exceeded")

// Error is a template that cannot be parsed, or that fails on a conversation.
type Error struct {
	Kind ErrorKind
	Line int // the first is 1
	Msg  string
	Err  error // ErrLimit, a context's error, or nil
}

// ErrorKind says what an error is.
type ErrorKind uint8

const (
	ParseError  ErrorKind = iota // the template is not valid or uses what is not supported
	RenderError                  // it failed while it ran, as Python would have raised
	RaisedError                  // it called raise_exception with Msg
)

func (e *Error) Error() string { return fmt.Sprintf("template line %d: %s", e.Line, e.Msg) }
func (e *Error) Unwrap() error { return e.Err }

// maxMessage bounds an error's text, which may quote the template or the conversation.
const maxMessage = 300

// failure carries an error up to Parse or Render. Only these recover it.
type failure struct{ *Error }

func clip(msg string) string {
	if len(msg) > maxMessage {
		msg = msg[:maxMessage] + "..."
	}
	return msg
}

func failParse(line int, format string, args ...any) {
	panic(failure{&Error{ParseError, line, clip(fmt.Sprintf(format, args...)), nil}})
}

func (r *run) fail(format string, args ...any) { r.failFor(nil, format, args...) }

func (r *run) failIf(fails bool, format string, args ...any) {
	if fails {
		r.failFor(nil, format, args...)
	}
}

func (r *run) limit(format string, args ...any) { r.failFor(ErrLimit, format, args...) }

func (r *run) failFor(cause error, format string, args ...any) {
	panic(failure{&Error{RenderError, r.line, clip(fmt.Sprintf(format, args...)), cause}})
}

// recovered turns what a panic carried into an error. A panic that is not a failure is a bug of
// this package. It must not take down the program that opened an untrusted template.
func recovered(p any) error {
	if f, ok := p.(failure); ok {
		return f.Error
	}
	return fmt.Errorf("internal error in the template engine: %v", p)
}
