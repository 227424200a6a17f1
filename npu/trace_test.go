package npu

import (
	"context"
	"testing"
)

// A tracer shared by several contexts gets each span once until the last of them has ended. A
// context without a tracer is ignored.
func TestJoinTracers(t *testing.T) {
	if trace := Tracer(t.Context()); trace != nil {
		t.Error("there is a tracer where none was put")
	}
	if trace := Tracer(JoinTracers(WithTracer(t.Context(), func(Span) {}), t.Context(),
		WithTracer(t.Context(), nil))); trace != nil {
		t.Error("contexts without tracers have one together")
	}
	shared, own := 0, 0
	root := WithTracer(t.Context(), func(Span) { shared++ })
	a, endA := context.WithCancel(root)
	b, endB := context.WithCancel(root)
	c, endC := context.WithCancel(WithTracer(root, func(Span) { own++ }))
	defer endC()
	trace := Tracer(JoinTracers(context.Background(), a, b, t.Context(), c))
	for i, step := range []struct {
		before      func()
		shared, own int
	}{{func() {}, 1, 1}, {endA, 2, 2}, {endB, 2, 3}, {endC, 2, 3}} {
		step.before()
		if trace(Span{}); shared != step.shared || own != step.own {
			t.Errorf("after %d spans the shared tracer has %d and the other %d, want %d and %d", i+1, shared,
				own, step.shared, step.own)
		}
	}
}
