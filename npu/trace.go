package npu

import (
	"context"
	"time"
)

// Span is a stretch of time in which one thing ran.
type Span struct {
	Name     string // tap name of a launch ("layer.3.attn.q_rope"), name of a run, or of a piece of host work
	Category string // "op", "program" or "host"
	Start    time.Time
	Duration time.Duration
}

type tracerKey struct{}

// WithTracer returns a context under which devices and models report what ran when. The function is called after the fact, from any goroutine, and
// must be safe for concurrent use.
func WithTracer(ctx context.Context, trace func(Span)) context.Context {
	return context.WithValue(ctx, tracerKey{}, trace)
}

// Tracer is the function that WithTracer put into ctx, or nil.
func Tracer(ctx context.Context) func(Span) {
	trace, _ := ctx.Value(tracerKey{}).(func(Span))
	return trace
}
