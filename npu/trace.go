package npu

import (
	"context"
	"time"
)

// Span is a stretch of time in which one thing ran.
type Span struct {
	// Name is the tap name of a launch, such as "layer.3.attn.q_rope" ("a+b" for two that the device
	// fuses), or the name of a run or of host work.
	Name     string        `json:"name"`
	Category string        `json:"category"` // "op", "program" or "host"
	Start    time.Time     `json:"start"`
	Duration time.Duration `json:"duration_ns"`
}

type tracerKey struct{}

// tracer is a function and, by its address, the call of WithTracer that it came from.
type tracer struct{ trace func(Span) }

// WithTracer returns a context under which devices and models report what ran when. The function is called after the fact, from any goroutine, and
// must be safe for concurrent use. It must not block: the device's next work waits for it, that of other sessions too.
//
// Work that is done for several sessions at once is reported to the tracer of each, and once to a tracer that they share: one that a single call of WithTracer has put into the
// contexts of all. When a context has ended, what is still done for others is not reported to it; a span that is being reported at that moment may arrive after the call that was
// cancelled has returned.
func WithTracer(ctx context.Context, trace func(Span)) context.Context {
	return context.WithValue(ctx, tracerKey{}, &tracer{trace})
}

// JoinTracers returns ctx with a tracer that passes each span on to the tracers of other contexts, for whom work is done together: once to each tracer, as long as one of its
// contexts has not ended.
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

// Tracer is the function that WithTracer put into ctx, or nil.
func Tracer(ctx context.Context) func(Span) {
	if t, _ := ctx.Value(tracerKey{}).(*tracer); t != nil {
		return t.trace
	}
	return nil
}
