// Package jinja renders Jinja2 chat templates as Jinja2 3.1.6 does in the environment of
// transformers: trim_blocks, lstrip_blocks, loop controls, {% generation %}, the immutable
// sandbox, and a tojson that neither escapes HTML nor sorts keys.
//
// Values keep Python's types and order, because a prompt that is almost right makes a model answer
// almost right. A construct that is not supported is an error that names its line.
//
// Every string knows which of its bytes are message content, through all filters, methods and
// operators.
//
// Templates are untrusted input. Parsing bounds size and nesting; rendering bounds steps, time,
// memory and depth. Errors inside one rendering travel as panics of a private type and leave the
// package as errors.
package jinja

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Limits of one rendering. They grow with the conversation, of which a template may make several
// copies. 4,000 messages of 2,500 bytes take most published templates 2 million steps.
const (
	maxSteps = 4 << 20  // evaluated nodes, items walked, and blocks of 64 bytes looked at
	maxBytes = 64 << 20 // of all values made, garbage included
	maxTime  = 2 * time.Second
	maxCalls = 200  // nested calls, loops that call themselves, and nested values
	maxDepth = 4000 // nested expressions and statements of all calls
)

// Every pollSteps a rendering looks at the clock and the context.
const (
	pollSteps = 1000
	// maxStep is the most time that a step counts for. None takes so long: work grows with length,
	// and so do its steps. More means that the operating system ran something else.
	maxStep = 20 * time.Microsecond
)

// Environment is what a rendering takes from its caller.
type Environment struct {
	// Strftime returns the current time in a format of strftime.
	Strftime func(format string) (string, error)
	// Size is about how many bytes the variables have.
	Size int
}

// run is one rendering.
type run struct {
	ctx                context.Context
	env                Environment
	steps, maxSteps    int
	poll               int // steps at which to look at the clock next
	before             int // steps before the stretch that ended at the last look
	bytes, maxBytes    int
	spent              time.Duration
	looked             time.Time // at the clock
	calls, depth, line int
	vars               *Dict // of the caller
	scope              *scope
	out                *builder
	noArgs             args // shared by calls without arguments; only its of is written
}

// Render runs the template over the variables. content are the bytes of the text that came from
// content; its spans are sorted, disjoint and not empty. Errors are *Error.
func (t *Template) Render(ctx context.Context, vars *Dict, env Environment) (
	text string, content []Span, err error) {
	return t.render(&run{
		ctx: ctx, env: env, vars: vars, line: 1,
		maxSteps: maxSteps + env.Size, maxBytes: maxBytes + 8*env.Size, looked: time.Now(),
	})
}

func (t *Template) render(r *run) (text string, content []Span, err error) {
	r.out = &builder{r: r}
	defer func() {
		if p := recover(); p != nil {
			text, content, err = "", nil, recovered(p)
		}
	}()
	r.look()
	r.within(t.body.frame, nil, func() { r.exec(t.body.stmts) })
	return r.out.b.String(), r.out.spans, nil
}

// tick counts work.
func (r *run) tick(n int) {
	if r.steps += n; r.steps >= r.poll {
		r.look()
	}
}

// look ends the rendering if it is over a limit or cancelled.
func (r *run) look() {
	done := r.steps - r.before // in two stretches: work may follow its tick
	r.before, r.poll = max(r.before, r.poll-pollSteps), r.steps+pollSteps
	if r.steps > r.maxSteps {
		r.limit("the template does not end: more than %d steps", r.maxSteps)
	}
	if err := r.ctx.Err(); err != nil {
		r.failFor(err, "rendering stopped: %v", err)
	}
	now := time.Now()
	r.spent += min(now.Sub(r.looked), maxStep*time.Duration(done))
	r.looked = now
	if r.spent > maxTime {
		r.limit("the template does not end: more than %v", maxTime)
	}
}

// charge counts memory before it is allocated.
func (r *run) charge(n int) {
	if n < 0 || n > r.maxBytes-r.bytes {
		r.limit("the template makes more than %d MiB of text and values", r.maxBytes>>20)
	}
	r.bytes += n
	r.tick(n/64 + 1)
}

// enter and leave count nested calls and values: defer r.leave(r.enter()).
func (r *run) enter() int {
	if r.calls++; r.calls > maxCalls {
		r.limit("calls or values nest more than %d deep", maxCalls)
	}
	return r.calls - 1
}

func (r *run) leave(calls int) { r.calls = calls }

func (r *run) eval(e expr) any {
	r.deeper()
	v := e.eval(r)
	r.depth--
	return v
}

// deeper counts nested evaluation, which bounds the stack.
func (r *run) deeper() {
	if r.depth++; r.depth > maxDepth {
		r.limit("expressions and statements nest more than %d deep", maxDepth)
	}
	r.tick(1)
}

func (r *run) evalAll(es []expr) []any {
	if len(es) == 0 {
		return nil
	}
	r.charge(16 * len(es))
	out := make([]any, len(es))
	for i, e := range es {
		out[i] = r.eval(e)
	}
	return out
}

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

const maxMessage = 300 // bytes of an error, which may quote the template or the conversation

// failure carries an error up to Parse or Render. Only these recover it.
type failure struct{ *Error }

func clip(msg string) string {
	if len(msg) > maxMessage {
		msg = strings.ToValidUTF8(msg[:maxMessage], "") + "..."
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
