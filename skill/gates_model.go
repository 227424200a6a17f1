package skill

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
)

// checkLogits is the teacher-forced gate over all ids.
func checkLogits(ctx context.Context, e *Env) (Verdict, error) {
	s, ids, b, err := e.scored(ctx)
	if err != nil {
		return nil, err
	}
	r, err := gate.Teacher(ctx, s, e.d.known, ids, b.Model)
	r.Name, r.Text = GateLogits, e.d.texts.source
	return r, err
}

// scored is what gates of the whole model begin with.
func (e *Env) scored(ctx context.Context) (gate.Stepper, []int32, FormatBounds, error) {
	ids, err := e.ids(ctx)
	if err != nil {
		return nil, nil, FormatBounds{}, err
	}
	b, err := e.bounds()
	if err != nil {
		return nil, nil, b, err
	}
	s, err := e.Session(ctx)
	return s, ids, b, err
}

// Of the paper's gate: the ids of one pass, and those decoded one by one behind it. Their logits lie in memory, 20 MB for a large vocabulary.
const (
	paperPass  = 24
	paperSteps = 8
)

// checkPaper holds logits to the paper's three conditions, over a prompt and over tokens decoded behind it.
func checkPaper(ctx context.Context, e *Env) (Verdict, error) {
	s, ids, b, err := e.scored(ctx)
	if err != nil {
		return nil, err
	}
	ids = ids[:min(len(ids), paperPass+paperSteps)]
	pass := max(1, len(ids)-paperSteps)
	got, err := logitsOf(ctx, s, ids[:pass])
	if err != nil {
		return nil, err
	}
	for _, id := range ids[pass:] {
		row, err := s.Step(ctx, id)
		if err != nil {
			return nil, err
		}
		got = append(got, row...)
	}
	want, err := logitsOf(ctx, e.d.known, ids)
	if err != nil {
		return nil, err
	}
	return e.paper(GatePaper, got, want, b.Logits)
}

// greedyTokens is how many tokens the greedy gate generates. Source: the verification of the paper's published code.
const greedyTokens = 32

// checkGreedy continues three prompts.
func checkGreedy(ctx context.Context, e *Env) (Verdict, error) {
	s, ids, _, err := e.scored(ctx)
	if err != nil {
		return nil, err
	}
	c := Checks{Name: GateGreedy}
	for _, n := range []int{min(8, len(ids)), min(16, len(ids)), (len(ids) + 1) / 2} {
		tokens := min(greedyTokens, e.recipe.SeqLen-n)
		if tokens < 1 {
			continue
		}
		if err := e.take(&c, fmt.Sprintf("after %d ids", n), func() (Verdict, error) {
			return gate.Greedy(ctx, s, e.d.known, ids[:n], tokens, 0)
		}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// checkDeterminism scores two prompts in turn. The second is shorter and another from its first id on, so that what the first leaves behind lies where the second reads.
func checkDeterminism(ctx context.Context, e *Env) (Verdict, error) {
	s, ids, _, err := e.scored(ctx)
	if err != nil {
		return nil, err
	}
	a, b := e.pair(ids)
	r, err := gate.Determinism(ctx, s, a, b)
	r.Name = GateDeterminism
	return r, err
}

// pair are two prompts of which neither begins the other.
func (e *Env) pair(ids []int32) (a, b []int32) {
	a = ids[:min(len(ids), 70)]
	b = slices.Clone(a[:(len(a)+1)/2])
	slices.Reverse(b)
	if b[0] == a[0] {
		b[0] = (a[0] + 1) % int32(e.Config().Vocab)
	}
	return a, b
}

// checkGolden holds the device to another implementation's outputs.
func checkGolden(ctx context.Context, e *Env) (Verdict, error) {
	s, _, b, err := e.scored(ctx)
	if err != nil {
		return nil, err
	}
	c := Checks{Name: GateGolden}
	var skipped []string
	for _, q := range e.d.golden.Sequences {
		if !q.Fits(e.recipe.SeqLen) {
			skipped = append(skipped, fmt.Sprintf("%s, %d ids", q.Name, len(q.IDs)))
			continue
		}
		if record, ok := q.Record(); ok {
			if err := e.take(&c, q.Name+" logits", func() (Verdict, error) {
				return gate.Teacher(ctx, s, record, q.IDs, b.Model)
			}); err != nil {
				return nil, err
			}
		} else if q.NLL != nil || q.Top != nil {
			if err := e.take(&c, q.Name, func() (Verdict, error) { return golden.Judge(ctx, s, q, b.Model) }); err != nil {
				return nil, err
			}
		}
		if room := e.recipe.SeqLen - len(q.IDs); len(q.Greedy) > 0 && room > 0 {
			if err := e.take(&c, q.Name+" greedy", func() (Verdict, error) {
				return gate.GreedyTokens(ctx, s, q.IDs, q.Greedy[:min(len(q.Greedy), room)], 0)
			}); err != nil {
				return nil, err
			}
		}
	}
	if len(skipped) > 0 && len(c.Done) > 0 {
		c.Done = append(c.Done, fmt.Sprintf("not compared, since %d positions are too few: %s", e.recipe.SeqLen, strings.Join(skipped, "; ")))
	}
	return c, nil
}
