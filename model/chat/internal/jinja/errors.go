package jinja

import (
	"errors"
	"fmt"
)

// ErrLimit is wrapped by the error of a template that exceeds a limit on steps, time, memory or
// depth.
var ErrLimit = errors.New("template limit exceeded")

// ParseError is a template that is not valid or uses something that is not supported.
type ParseError struct {
	Line int // the first is 1
	Msg  string
}

func (e *ParseError) Error() string { return fmt.Sprintf("template line %d: %s", e.Line, e.Msg) }

// RenderError is a template that failed while it ran, as Python would have raised.
type RenderError struct {
	Line int
	Msg  string
	Err  error // ErrLimit, a context's error, or nil
}

func (e *RenderError) Error() string { return fmt.Sprintf("template line %d: %s", e.Line, e.Msg) }

func (e *RenderError) Unwrap() error { return e.Err }

// RaisedError is a template's own refusal: it called raise_exception.
type RaisedError struct {
	Line    int
	Message string // the template's words
}

func (e *RaisedError) Error() string {
	return fmt.Sprintf("template line %d: raise_exception: %s", e.Line, e.Message)
}

// maxMessage bounds an error's text, which may quote the template or the conversation.
const maxMessage = 300

// failure carries an error up to Parse or Render. Only these recover it.
type failure struct{ err error }

func clip(msg string) string {
	if len(msg) > maxMessage {
		msg = msg[:maxMessage] + "..."
	}
	return msg
}

func failParse(line int, format string, args ...any) {
	panic(failure{&ParseError{line, clip(fmt.Sprintf(format, args...))}})
}

func (r *run) fail(format string, args ...any) {
	panic(failure{&RenderError{Line: r.line, Msg: clip(fmt.Sprintf(format, args...))}})
}

func (r *run) limit(format string, args ...any) {
	panic(failure{&RenderError{Line: r.line, Msg: clip(fmt.Sprintf(format, args...)), Err: ErrLimit}})
}

// recovered turns what a panic carried into an error. A panic that is not a failure is a bug of
// this package. It must not take down the program that opened an untrusted template.
func recovered(p any) error {
	if f, ok := p.(failure); ok {
		return f.err
	}
	return fmt.Errorf("internal error in the template engine: %v", p)
}
