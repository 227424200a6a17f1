// Package jinja renders chat templates like Jinja2 3.1.6 in the environment of transformers:
// trim_blocks, lstrip_blocks, loop controls, {% generation %}, the immutable sandbox, and a tojson
// that neither escapes HTML nor sorts keys.
//
// The output is equal to Jinja2's byte for byte. A construct that is not supported returns an error
// with its line; an approximate prompt would degrade a model's answers unnoticed.
//
// Strings track which of their bytes are message content, through all filters, methods and
// operators.
//
// Templates are untrusted input. Parsing limits size and nesting; rendering limits steps, time,
// memory and depth. Within the package, errors are panics of the type failure, which Parse and
// Render return as errors.
package jinja

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Limits of one rendering. maxSteps and maxBytes grow with the conversation, which a template may
// copy several times. Most published templates use 2 million steps for 4,000 messages of 2.5 kB.
const (
	maxSteps = 4 << 20  // nodes evaluated, items visited, and blocks of 64 bytes read
	maxBytes = 64 << 20 // allocated for values, including garbage
	maxTime  = 2 * time.Second
	maxCalls = 200  // nested calls, recursive loops and nested values
	maxDepth = 4000 // nested expressions and statements, over all calls
)

// A rendering checks the clock and the context every pollSteps.
const (
	pollSteps = 1000
	// maxStep caps the time that a step counts for, so that nine tenths of the time in which other
	// threads run do not count. No step takes so long: longer work has more steps.
	maxStep = 20 * time.Microsecond
)

// Environment is the input of a rendering other than variables.
type Environment struct {
	// Strftime returns the current time in a strftime format.
	Strftime func(format string) (string, error)
	// Size is the approximate size of the variables in bytes.
	Size int
}

// run is one rendering.
type run struct {
	ctx                context.Context
	env                Environment
	steps, maxSteps    int
	poll               int // steps at the next check of the clock
	before             int // steps one period before the last check
	bytes, maxBytes    int
	spent              time.Duration
	looked             time.Time // time of the last check
	calls, depth, line int
	vars               *Dict // the caller's variables
	scope              *scope
	out                *builder
	noArgs             args // shared by calls without arguments; only of changes
}

// Render executes the template. content are the spans of text that come from content strings,
// sorted, disjoint and not empty. Errors are *Error.
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

// tick counts n steps.
func (r *run) tick(n int) {
	if r.steps += n; r.steps >= r.poll {
		r.look()
	}
}

// look fails if the rendering exceeds a limit or is cancelled.
func (r *run) look() {
	done := r.steps - r.before // two periods, because work may follow its tick
	r.before, r.poll = max(r.before, r.poll-pollSteps), r.steps+pollSteps
	if r.steps > r.maxSteps {
		r.limit("the template runs too long: more than %d steps", r.maxSteps)
	}
	if err := r.ctx.Err(); err != nil {
		r.failFor(err, "rendering stopped: %v", err)
	}
	now := time.Now()
	took := now.Sub(r.looked)
	r.spent += max(took/10, min(took, maxStep*time.Duration(done)))
	r.looked = now
	if r.spent > maxTime {
		r.limit("the template runs too long: more than %v", maxTime)
	}
}

// charge counts n bytes of memory. Call it before allocating.
func (r *run) charge(n int) {
	if n < 0 || n > r.maxBytes-r.bytes {
		r.limit("the template uses too much memory: more than %d MiB", r.maxBytes>>20)
	}
	r.bytes += n
	r.tick(n/64 + 1)
}

// enter and leave count nested calls and values. Use them as defer r.leave(r.enter()).
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

// deeper counts nested evaluations, which limits the stack.
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

// ErrLimit is wrapped by the error of a rendering that exceeds a limit on steps, time, memory or
// depth.
var ErrLimit = errors.New("template limit exceeded")

// Error is returned if a template cannot be parsed or fails to render.
type Error struct {
	Kind ErrorKind
	Line int // from 1
	Msg  string
	Err  error // ErrLimit, a context's error, or nil
}

// ErrorKind is the kind of an Error.
type ErrorKind uint8

const (
	ParseError  ErrorKind = iota // the template is invalid or not supported
	RenderError                  // rendering failed
	RaisedError                  // the template called raise_exception with Msg
)

func (e *Error) Error() string { return fmt.Sprintf("template line %d: %s", e.Line, e.Msg) }
func (e *Error) Unwrap() error { return e.Err }

const maxMessage = 300 // bytes of an error message, which may quote untrusted text

// failure is a panic that Parse or Render recovers and returns as an error.
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

// recovered returns the error of a panic. A panic that is not a failure is a bug in this package,
// and an error too, because an untrusted template must not crash the program.
func recovered(p any) error {
	if f, ok := p.(failure); ok {
		return f.Error
	}
	return fmt.Errorf("internal error in the template engine: %v", p)
}
