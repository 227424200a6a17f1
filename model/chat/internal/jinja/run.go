package jinja

import (
	"context"
	"time"
)

// Limits of one rendering. They grow with the conversation, of which a template may make several
// copies. 4,000 messages of 2,500 bytes take most published templates 2 million steps.
const (
	maxSteps = 8 << 20  // evaluated nodes, items walked, and blocks of 64 bytes looked at
	maxBytes = 64 << 20 // of all values made, garbage included
	maxTime  = 2 * time.Second
	maxCalls = 200  // nested calls, loops that call themselves, and nested values
	maxDepth = 4000 // nested expressions and statements of all calls
)

const (
	// pollSteps is how many steps pass between two looks at the clock and the context.
	pollSteps = 1000
	// maxPoll is the most time that one stretch between two looks counts for. A longer one means
	// that the operating system ran something else.
	maxPoll = 20 * time.Millisecond
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
	ctx      context.Context
	env      Environment
	steps    int
	poll     int // steps at which to look at the clock next
	maxSteps int
	bytes    int
	maxBytes int
	spent    time.Duration
	looked   time.Time
	calls    int
	depth    int
	line     int
	vars     *Dict // of the caller
	scope    *scope
	out      *builder
	noArgs   args // shared by calls without arguments; only its of is written
}

// Render runs the template over the variables. Its errors are *Error.
func (t *Template) Render(ctx context.Context, vars *Dict, env Environment) (text Text, err error) {
	r := &run{
		ctx: ctx, env: env, vars: vars, line: 1,
		maxSteps: maxSteps + env.Size, maxBytes: maxBytes + 8*env.Size, looked: time.Now(),
	}
	r.out = &builder{r: r}
	defer func() {
		if p := recover(); p != nil {
			text, err = Text{}, recovered(p)
		}
	}()
	r.look()
	r.within(t.body.frame, nil, func() { r.exec(t.body.stmts) })
	return Text{r.out.b.String(), r.out.spans}, nil
}

// tick counts work.
func (r *run) tick(n int) {
	if r.steps += n; r.steps >= r.poll {
		r.look()
	}
}

// look ends the rendering if it is over a limit or cancelled.
func (r *run) look() {
	r.poll = r.steps + pollSteps
	if r.steps > r.maxSteps {
		r.limit("the template does not end: more than %d steps", r.maxSteps)
	}
	if err := r.ctx.Err(); err != nil {
		r.failFor(err, "rendering stopped: %v", err)
	}
	now := time.Now()
	r.spent += min(now.Sub(r.looked), maxPoll)
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
	r.tick(n / 64)
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
