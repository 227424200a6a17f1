package jinja

import (
	"errors"
	"fmt"
)

// ErrLimit is wrapped by the errors of templates that want more steps, memory or depth than they are given.
var ErrLimit = errors.New("limit reached")

// ParseError is a template that is not valid, or that uses something this package does not have.
type ParseError struct {
	Line int // 1 is the first
	Msg  string
}

func (e *ParseError) Error() string { return fmt.Sprintf("template line %d: %s", e.Line, e.Msg) }

// RenderError is a template that failed while it ran, as Python would have raised.
type RenderError struct {
	Line int
	Msg  string
	Err  error // ErrLimit, or nil
}

func (e *RenderError) Error() string { return fmt.Sprintf("template line %d: %s", e.Line, e.Msg) }

func (e *RenderError) Unwrap() error { return e.Err }

// RaisedError is a template's own refusal: it called raise_exception.
type RaisedError struct {
	Line    int
	Message string // the template's words
}

func (e *RaisedError) Error() string {
	return fmt.Sprintf("template line %d refuses the conversation: %s", e.Line, e.Message)
}

// failure carries an error up to Parse or Render. Only they recover it.
type failure struct{ err error }

func (r *run) fail(format string, args ...any) {
	panic(failure{&RenderError{Line: r.line, Msg: fmt.Sprintf(format, args...)}})
}

func (r *run) limit(format string, args ...any) {
	panic(failure{&RenderError{Line: r.line, Msg: fmt.Sprintf(format, args...), Err: ErrLimit}})
}

// recovered turns what a panic carried into an error; a panic that is not ours is a fault in this package or in the tokeniser, and must
// not take down the program that opened a strange template.
func recovered(p any) error {
	if f, ok := p.(failure); ok {
		return f.err
	}
	return fmt.Errorf("template: internal fault: %v", p)
}
