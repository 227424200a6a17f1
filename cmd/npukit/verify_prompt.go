package main

import (
	"context"
	"fmt"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/model"
)

// The gate of prompts reads a text as generation does, the ids but the last promptSteps at once,
// and holds the logits of those to the oracle's. The gate of logits wants those of all ids, which a
// device makes of some at a time, so that kernels for many rows would be tested by neither it nor
// the short prompts that are continued.

// promptSteps is how many ids follow the prompt one by one: enough that the mean of their
// divergence is as far from its bound as that of a text.
const promptSteps = 32

// tail is the oracle, and keeps what it gave for the last promptSteps ids.
type tail struct {
	gate.Scorer
	prompt []int32 // the ids before those; empty if there are too few for this gate
	last   gate.Recorded
}

// Score is the oracle's.
func (t *tail) Score(ctx context.Context, ids []int32, emit func(pos int, logits []float32) error) error {
	from := len(ids) - promptSteps
	if from < promptSteps {
		return t.Scorer.Score(ctx, ids, emit)
	}
	t.prompt, t.last = ids[:from], gate.Recorded{IDs: ids[from:]}
	return t.Scorer.Score(ctx, ids, func(pos int, logits []float32) error {
		if pos >= from {
			t.last.Logits = append(t.last.Logits, logits...)
		}
		return emit(pos, logits)
	})
}

// prompt holds the device's logits behind a prompt to the oracle's.
func (v *verifier) prompt(ctx context.Context, s *model.Session, ref *tail) error {
	if len(ref.prompt) == 0 {
		v.result.NotRun = append(v.result.NotRun, fmt.Sprintf("prompt: it needs a text of %d ids", 2*promptSteps))
		return nil
	}
	done := v.app.progress(fmt.Sprintf("a prompt of %s", count(len(ref.prompt), "id")))
	r, err := gate.Teacher(ctx, gate.AfterPrompt{Stepper: s, Prompt: ref.prompt}, ref.last, ref.last.IDs, v.tol)
	done()
	if err != nil {
		return err
	}
	r.Name = fmt.Sprintf("%d ids behind a prompt of %d", len(ref.last.IDs), len(ref.prompt))
	v.add(fmt.Sprintf("prompt: %d ids at once", len(ref.prompt)), "device", "oracle", r)
	return nil
}
