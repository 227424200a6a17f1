package gate_test

import (
	"context"
	"errors"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Every exported function that takes an interface, a function or a pointer returns an InputError
// for nil.
func TestNilArguments(t *testing.T) {
	ctx, ids, toy := context.Background(), []int32{1, 2, 3}, newToy("")
	other, tol := []int32{3, 1}, format(t, "npu")
	var rec gate.Recording
	emit := func(int, []float32) error { return nil }
	for name, call := range map[string]func() error{
		"Teacher, device": func() error {
			_, err := gate.Teacher(ctx, nil, toy, ids,
				tol)
			return err
		},
		"Teacher, reference": func() error {
			_, err := gate.Teacher(ctx, toy, nil, ids,
				tol)
			return err
		},
		"Greedy, device": func() error {
			_, err := gate.Greedy(ctx, nil, toy, ids, 1,
				0)
			return err
		},
		"Greedy, reference": func() error {
			_, err := gate.Greedy(ctx, toy, nil, ids, 1,
				0)
			return err
		},
		"GreedyTokens": func() error {
			_, err := gate.GreedyTokens(ctx, nil, ids, ids,
				0)
			return err
		},
		"Determinism": func() error {
			_, err := gate.Determinism(ctx, nil, ids,
				other)
			return err
		},
		"AfterPrompt.Score": func() error { return gate.AfterPrompt(nil, nil).Score(ctx, ids, emit) },
		"Recorded.Score": func() error {
			return gate.Recorded{IDs: ids, Logits: make([]float32, 6)}.Score(ctx, ids, nil)
		},
		"Recording.Trace": func() error { _, err := rec.Trace(nil); return err },
		"Observe":         func() error { return gate.Observe(nil, "x", []float32{1}, []float32{1}, 1) },
		"Save":            func() error { return gate.Save(t.TempDir(), "x", nil) },
	} {
		var input *gate.InputError
		if err := call(); !errors.As(err, &input) {
			t.Errorf("%s: error %v, want an InputError", name, err)
		}
	}
	if _, ok := gate.Published(nil); ok {
		t.Error("Published has a tolerance for no op")
	}
	if _, ok := gate.CPU(nil, dtype.F32); ok {
		t.Error("CPU has a tolerance for no op")
	}
	if _, ok := gate.CPU(op.Add{Rows: 1, Width: 1}, dtype.Invalid); ok {
		t.Error("CPU has a tolerance for results without a type")
	}
}

// A nil emit runs the steps for the state alone, as a Stepper's Score does.
func TestAfterPromptWithoutEmit(t *testing.T) {
	b := gate.AfterPrompt(stepper{newToy("")}, []int32{1, 2})
	if err := b.Score(context.Background(), []int32{3, 4}, nil); err != nil {
		t.Error(err)
	}
}
