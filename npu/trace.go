package npu

import (
	"context"
	"time"
)

// Span is the time that one piece of work took.
type Span struct {
	// Name is the tap name of a launch, such as "layer.3.attn.q_rope" ("a+b" for two that the
	// device fuses), or the name of a run or of host work.
	Name     string        `json:"name"`
	Category string        `json:"category"` // "op", "program" or "host"
	Start    time.Time     `json:"start"`
	Duration time.Duration `json:"duration_ns"`
}

type tracerKey struct{}

// tracer is a function, identified by the call of WithTracer that created it.
type tracer struct{ trace func(Span) }

// WithTracer returns a context under which devices and models report spans of work to trace. It is
// called afterwards from any goroutine, must be safe for concurrent use, and must not block: the
// device's next work, also for other sessions, waits for it. A nil trace turns tracing off.
//
// Work for several sessions is reported to the tracer of each, and once to a tracer that they share
// because one call of WithTracer created it. After a context has ended, no more work for others is
// reported to its tracer, except for a span whose report has started.
func WithTracer(ctx context.Context, trace func(Span)) context.Context {
	return context.WithValue(ctx, tracerKey{}, &tracer{trace})
}

// JoinTracers returns ctx with a tracer that forwards each span to the tracers of other contexts,
// for work that is done for all of them: once per tracer while one of its contexts has not ended.
func JoinTracers(ctx context.Context, of ...context.Context) context.Context {
	type listener struct {
		*tracer
		ctxs []context.Context
	}
	var all []*listener
	known := map[*tracer]*listener{}
	for _, c := range of {
		t, _ := c.Value(tracerKey{}).(*tracer)
		if t == nil || t.trace == nil {
			continue
		}
		if known[t] == nil {
			known[t] = &listener{tracer: t}
			all = append(all, known[t])
		}
		known[t].ctxs = append(known[t].ctxs, c)
	}
	if len(all) == 0 {
		return WithTracer(ctx, nil)
	}
	return WithTracer(ctx, func(span Span) {
		for _, l := range all {
			for _, c := range l.ctxs {
				if c.Err() == nil {
					l.trace(span)
					break
				}
			}
		}
	})
}

// Tracer returns the function that WithTracer put into ctx, or nil.
func Tracer(ctx context.Context) func(Span) {
	if t, _ := ctx.Value(tracerKey{}).(*tracer); t != nil {
		return t.trace
	}
	return nil
}
