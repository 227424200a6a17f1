package chat

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// Limits on one rendering. A conversation of 4000 messages of 2500 bytes takes some 60 % of the steps with the templates of tests, and a quarter of the
// bytes; all steps take some seconds, whatever they are spent on.
const (
	maxSteps  = 2_000_000
	maxBytes  = 1 << 30 // of all texts and lists that are made
	maxOutput = 64 << 20
	maxDepth  = 150
	maxRange  = 100_000 // Jinja2's sandbox
)

// lookSteps is how many steps pass between two looks at the context: some milliseconds.
const lookSteps = 1000

// ErrLimit is wrapped by the error of a template that would not end, or would fill the memory.
var ErrLimit = errors.New("a limit is reached")

// state is what one rendering counts and knows. Every operation, every turn of a loop and every text passes it: gonja itself has no limits.
// Errors travel as panics of *RenderError and *TemplateError, because gonja drops some that are returned; Template.render takes them up.
type state struct {
	ctx          context.Context
	looked       int // steps at which ctx was last looked at
	line         int
	steps, bytes int
	depth        int
	date         string
	now          func() time.Time
}

const stateName = " state"

func stateOf(r *exec.Renderer) *state {
	v, _ := r.Environment.Context.Get(stateName)
	return v.(*state)
}

// fail ends the rendering.
func (r *state) fail(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	if len(msg) > 300 {
		msg = msg[:300] + "..."
	}
	panic(&RenderError{Line: r.line, Msg: msg})
}

func (r *state) limit(format string, args ...any) {
	panic(&RenderError{Line: r.line, Msg: fmt.Sprintf(format, args...), Err: ErrLimit})
}

func (r *state) tick(n int) {
	if r.steps += n; r.steps > maxSteps {
		r.limit("the template does not end: more than %d steps", maxSteps)
	}
	if r.steps-r.looked >= lookSteps {
		r.looked = r.steps
		if err := r.ctx.Err(); err != nil {
			panic(&RenderError{Line: r.line, Msg: "the rendering was ended: " + err.Error(), Err: err})
		}
	}
}

// weigh counts the time that an operation may take to look at values, or to make them: at every byte of a text, and every place of a list. What
// goes through nested values counts them itself as it goes.
func (r *state) weigh(values ...any) {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			r.tick(len(v) / 128)
		case list:
			r.tick(len(v) / 64)
		case tuple:
			r.tick(len(v) / 64)
		case view:
			r.tick(len(v) / 64)
		case *generator:
			r.tick(len(v.items) / 64)
		case dict:
			r.tick(len(v) / 8)
		}
	}
}

// weighArgs weighs what stands between the brackets.
func (r *state) weighArgs(a args) {
	r.weigh(a.pos...)
	for _, v := range a.named {
		r.weigh(v)
	}
}

// charge counts memory before it is taken.
func (r *state) charge(n int) {
	r.tick(1 + n/256)
	if n < 0 || n > maxBytes || r.bytes+n > maxBytes {
		r.limit("the template makes more than %d MiB of text", maxBytes>>20)
	}
	r.bytes += n
}

func (r *state) enter() int {
	if r.depth++; r.depth > maxDepth {
		r.limit("macros, loops or values are nested more than %d deep", maxDepth)
	}
	return 0
}

func (r *state) leave(int) { r.depth-- }

// writer holds the output to its limit.
type writer struct {
	state *state
	text  []byte
}

func (w *writer) Write(p []byte) (int, error) {
	if len(w.text)+len(p) > maxOutput {
		w.state.limit("the text is longer than %d MiB", maxOutput>>20)
	}
	w.text = append(w.text, p...)
	return len(p), nil
}

// args are what stands between the brackets of a filter, a test, a method or a function.
type args struct {
	of    string
	pos   []any
	named map[string]any
}

// absent stands for an argument that was not given.
type absent struct{}

// take gives the arguments by the names they have in Python.
func (r *state) take(a args, required int, names ...string) []any {
	out := make([]any, len(names))
	if len(a.pos) > len(names) {
		r.fail("%s takes at most %d arguments, not %d", a.of, len(names), len(a.pos))
	}
	used := 0
	for i, n := range names {
		v, ok := a.named[n]
		switch {
		case ok && i < len(a.pos):
			r.fail("%s got %s twice", a.of, n)
		case ok:
			used++
			out[i] = v
		case i < len(a.pos):
			out[i] = a.pos[i]
		case i < required:
			r.fail("%s lacks the argument %s", a.of, n)
		default:
			out[i] = absent{}
		}
	}
	if used < len(a.named) {
		r.fail("%s got an argument whose name it does not know: it knows %v", a.of, names)
	}
	return out
}

// integer, text and flag take an argument of their kind, or the default where none was given.
func (r *state) integer(a args, v any, missing int) int {
	if v == (absent{}) {
		return missing
	}
	i, ok := asInt(v)
	if !ok {
		r.fail("%s needs an integer, not %s", a.of, typeName(v))
	}
	return i
}

func (r *state) text(a args, v any, missing string) string {
	if v == (absent{}) {
		return missing
	}
	s, ok := v.(string)
	if !ok {
		r.fail("%s needs a string, not %s", a.of, typeName(v))
	}
	return s
}

func flag(v any, missing bool) bool {
	if v == (absent{}) {
		return missing
	}
	return truth(v)
}
