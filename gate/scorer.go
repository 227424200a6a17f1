package gate

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Scorer is what gives logits for ids: a session of a model, the oracle, or a [Recorded] output.
type Scorer interface {
	// Score runs ids from position 0 on, forgetting what came before, and gives each position's logits [vocab], those for the token after
	// it, to emit: positions ascending and none left out, on the goroutine that called Score. The logits are valid during the call only. When emit
	// returns an error, Score stops and returns it.
	Score(ctx context.Context, ids []int32, emit func(pos int, logits []float32) error) error
}

// Stepper is a Scorer that can go on from where it is, one id at a time, as generation does. With it [Greedy] tests the path that decoding
// takes, KV cache included; without it everything goes through Score. Its Score also takes a nil emit, where only the state is wanted that Step goes on from.
type Stepper interface {
	Scorer
	// Step appends one id to what the last Score or Step left behind and returns the logits after it. They are valid until the next call.
	Step(ctx context.Context, id int32) (logits []float32, err error)
}

// Behind is a Scorer of ids that come behind a prompt, which is read as generation reads it: all rows at once and nobody asks for their logits. Its keys and values show
// in those of every id behind it, each read in a step of its own. Score alone does not test that where it has to read a text in pieces, whose logits all fit into memory.
type Behind struct {
	Stepper
	Prompt []int32
}

// Score reads the prompt and steps through the ids behind it. Position 0 is that of the first of them.
func (b Behind) Score(ctx context.Context, ids []int32, emit func(pos int, logits []float32) error) error {
	if b.Stepper == nil {
		return badInput("Behind.Stepper", "the Stepper is nil")
	}
	if err := b.Stepper.Score(ctx, b.Prompt, nil); err != nil {
		return err
	}
	for pos, id := range ids {
		logits, err := b.Step(ctx, id)
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

// Recorded is a Scorer that gives back logits that someone stored, such as the golden outputs of another implementation.
type Recorded struct {
	IDs    []int32
	Logits []float32 // [len(IDs), vocab]
}

// Score gives the stored logits; ids must be those that were recorded, or the first of them.
func (r Recorded) Score(ctx context.Context, ids []int32, emit func(pos int, logits []float32) error) error {
	if emit == nil {
		return badInput("emit", "the function is nil: a record has no state, so its logits must go somewhere")
	}
	if len(r.IDs) == 0 || len(r.Logits) == 0 || len(r.Logits)%len(r.IDs) != 0 {
		return badInput("Recorded", "%d logits for %d ids are not [ids, vocab]", len(r.Logits), len(r.IDs))
	}
	if len(ids) > len(r.IDs) {
		return badInput("ids", "%d ids, the record has %d positions", len(ids), len(r.IDs))
	}
	vocab := len(r.Logits) / len(r.IDs)
	for pos, id := range ids {
		if id != r.IDs[pos] {
			return badInput("ids", "id %d at position %d was not recorded; the record has %d there", id, pos, r.IDs[pos])
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

// errStop ends a Score whose further logits nobody wants.
var errStop = errors.New("gate: enough")

// positions is Score as an iterator. It ends with what is wrong: Score's own error, or that it broke its contract.
func positions(ctx context.Context, s Scorer, ids []int32) iter.Seq2[[]float32, error] {
	return func(yield func([]float32, error) bool) {
		next, stopped := 0, false
		err := s.Score(ctx, ids, func(pos int, logits []float32) error {
			switch {
			case pos != next:
				return fmt.Errorf("gate: Score gave position %d where %d was due", pos, next)
			case pos >= len(ids):
				return fmt.Errorf("gate: Score gave more than the %d positions of its ids", len(ids))
			case len(logits) == 0:
				return fmt.Errorf("gate: Score gave no logits for position %d", pos)
			}
			next++
			if stopped = stopped || !yield(logits, nil); stopped {
				return errStop
			}
			return nil
		})
		switch {
		case stopped: // whatever words the scorer has for that
		case err != nil:
			yield(nil, err)
		case next != len(ids):
			yield(nil, fmt.Errorf("gate: Score gave %d positions of %d", next, len(ids)))
		}
	}
}

// lockstep runs two scorers over the same ids and calls f with both logits of each position. Each is halted inside its emit while the other
// computes, so that nothing is copied and at most one row of logits of each exists.
func lockstep(ctx context.Context, got, want Scorer, ids []int32, f func(pos int, got, want []float32) error) error {
	next, stop := iter.Pull2(positions(ctx, want, ids))
	defer stop()
	pos := 0
	for g, err := range positions(ctx, got, ids) {
		if err != nil {
			return fmt.Errorf("gate: device: %w", err)
		}
		w, err, ok := next()
		switch {
		case !ok: // positions gives as many as there are ids, or an error
			return fmt.Errorf("gate: reference: it ended at position %d", pos)
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

// needScorer refuses a missing scorer.
func needScorer(field string, s Scorer) error {
	if s == nil {
		return badInput(field, "the Scorer is nil")
	}
	return nil
}

// needIDs refuses an empty sequence, over which every condition would hold.
func needIDs(ids []int32, least int) error {
	if len(ids) < least {
		return badInput("ids", "%d ids, want at least %d", len(ids), least)
	}
	return nil
}
