package gate

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Scorer returns logits for ids: a session of a model, the oracle, or a [Recorded] output.
type Scorer interface {
	// Score runs ids from position 0, dropping earlier ids, and calls emit with each
	// position's logits [vocab], those for the next token: positions ascending without gaps, on the
	// calling goroutine. The logits are valid during the call only. If emit returns an error, Score
	// stops and returns it.
	Score(ctx context.Context, ids []int32, emit func(pos int, logits []float32) error) error
}

// Stepper is a Scorer that can continue one id at a time, as decoding does. [Greedy] then tests the
// decode path including the KV cache; otherwise everything goes through Score. The Score of a
// Stepper takes a nil emit, if only the state is wanted.
type Stepper interface {
	Scorer
	// Step appends one id to the last Score or Step and returns the logits after it. They are valid
	// until the next call.
	Step(ctx context.Context, id int32) (logits []float32, err error)
}

// AfterPrompt returns a Scorer of ids that follow a prompt. The prompt is prefilled as in
// generation, without its logits, and each id after it is decoded in a step of its own. Position 0
// is that of the first id after the prompt. It tests a long prefill that Score would split into
// chunks whose logits fit into memory.
func AfterPrompt(s Stepper, prompt []int32) Scorer { return afterPrompt{s, prompt} }

type afterPrompt struct {
	stepper Stepper
	prompt  []int32
}

// Score prefills the prompt and steps through ids. Emit may be nil.
func (a afterPrompt) Score(ctx context.Context, ids []int32,
	emit func(pos int, logits []float32) error) error {
	if a.stepper == nil {
		return badInput("s", "the Stepper is nil")
	}
	if err := a.stepper.Score(ctx, a.prompt, nil); err != nil {
		return err
	}
	for pos, id := range ids {
		logits, err := a.stepper.Step(ctx, id)
		if err != nil {
			return err
		}
		if emit == nil {
			continue
		}
		if err := emit(pos, logits); err != nil {
			return err
		}
	}
	return nil
}

// Recorded is a Scorer that replays stored logits, such as the golden outputs of another
// implementation.
type Recorded struct {
	IDs    []int32
	Logits []float32 // [len(IDs), vocab]
}

// Score emits the stored logits. Ids must be a prefix of the recorded ones.
func (r Recorded) Score(ctx context.Context, ids []int32,
	emit func(pos int, logits []float32) error) error {
	if emit == nil {
		return badInput("emit", "the function is nil: only a Stepper may score without it")
	}
	if len(r.IDs) == 0 || len(r.Logits) == 0 || len(r.Logits)%len(r.IDs) != 0 {
		return badInput("Recorded", "%d logits for %d ids are not [ids, vocab]", len(r.Logits),
			len(r.IDs))
	}
	if len(ids) > len(r.IDs) {
		return badInput("ids", "%d ids, the record has %d positions", len(ids), len(r.IDs))
	}
	vocab := len(r.Logits) / len(r.IDs)
	for pos, id := range ids {
		if id != r.IDs[pos] {
			return badInput("ids", "id %d at position %d was not recorded; the record has %d there", id, pos,
				r.IDs[pos])
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := emit(pos, r.Logits[pos*vocab:][:vocab:vocab]); err != nil {
			return err
		}
	}
	return nil
}

// errStop ends a Score whose remaining logits are not needed.
var errStop = errors.New("gate: stopped")

// positions is Score as an iterator. The last pair has Score's error, or reports that it broke its
// contract.
func positions(ctx context.Context, s Scorer, ids []int32) iter.Seq2[[]float32, error] {
	return func(yield func([]float32, error) bool) {
		next, stopped := 0, false
		err := s.Score(ctx, ids, func(pos int, logits []float32) error {
			switch {
			case pos != next:
				return fmt.Errorf("gate: Score emitted position %d, want %d", pos, next)
			case pos >= len(ids):
				return fmt.Errorf("gate: Score emitted more than the %d positions of its ids", len(ids))
			case len(logits) == 0:
				return fmt.Errorf("gate: Score emitted no logits for position %d", pos)
			}
			next++
			if stopped = stopped || !yield(logits, nil); stopped {
				return errStop
			}
			return nil
		})
		switch {
		case stopped: // ignore how the scorer reports errStop
		case err != nil:
			yield(nil, err)
		case next != len(ids):
			yield(nil, fmt.Errorf("gate: Score emitted %d positions of %d", next, len(ids)))
		}
	}
}

// lockstep runs two scorers over the same ids and calls f with both logits of each position. Each
// is suspended inside its emit while the other computes, so nothing is copied and at most one row
// of logits of each exists.
func lockstep(ctx context.Context, got, want Scorer, ids []int32,
	f func(pos int, got, want []float32) error) error {
	next, stop := iter.Pull2(positions(ctx, want, ids))
	defer stop()
	pos := 0
	for g, err := range positions(ctx, got, ids) {
		if err != nil {
			return fmt.Errorf("gate: device: %w", err)
		}
		w, err, ok := next()
		switch {
		case !ok:
			return fmt.Errorf("gate: reference: ended at position %d", pos)
		case err != nil:
			return fmt.Errorf("gate: reference: %w", err)
		case len(g) != len(w):
			return fmt.Errorf("gate: the device has a vocabulary of %d, the reference %d", len(g), len(w))
		}
		if err := f(pos, g, w); err != nil {
			return err
		}
		pos++
	}
	return nil
}

// needScorer returns an InputError if s is nil.
func needScorer(field string, s Scorer) error {
	if s == nil {
		return badInput(field, "the Scorer is nil")
	}
	return nil
}

// needIDs returns an InputError for fewer than least ids: every condition holds for an empty
// sequence.
func needIDs(ids []int32, least int) error {
	if len(ids) < least {
		return badInput("ids", "%d ids, want at least %d", len(ids), least)
	}
	return nil
}
