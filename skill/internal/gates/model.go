package gates

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/skill/internal/journal"
)

// checkLogits is the teacher-forced gate over all ids.
func checkLogits(ctx context.Context, bench *Bench) (Verdict, error) {
	s, ids, b, err := bench.scored(ctx)
	if err != nil {
		return nil, err
	}
	r, err := gate.Teacher(ctx, s, bench.Known, ids, b.Model)
	r.Name, r.Text = journal.GateLogits, bench.text.Source
	return r, err
}

// scored returns the inputs of the gates of the whole model.
func (bench *Bench) scored(ctx context.Context) (gate.Stepper, []int32, FormatBounds, error) {
	ids, err := bench.IDs(ctx)
	if err != nil {
		return nil, nil, FormatBounds{}, err
	}
	b, err := bench.bounds()
	if err != nil {
		return nil, nil, b, err
	}
	s, err := bench.Session(ctx)
	return s, ids, b, err
}

// The ids of the paper's gate: one pass, and steps that are decoded after it. Their logits take
// 20 MB for a large vocabulary.
const (
	PaperPass  = 24
	paperSteps = 8
)

// checkPaper compares logits by the paper's three conditions, over a prompt and decoded tokens.
func checkPaper(ctx context.Context, bench *Bench) (Verdict, error) {
	s, ids, b, err := bench.scored(ctx)
	if err != nil {
		return nil, err
	}
	ids = ids[:min(len(ids), PaperPass+paperSteps)]
	pass := max(1, len(ids)-paperSteps)
	got, err := LogitsOf(ctx, s, ids[:pass])
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
	want, err := LogitsOf(ctx, bench.Known, ids)
	if err != nil {
		return nil, err
	}
	return Paper(bench, journal.GatePaper, got, want, b.Logits)
}

// greedyTokens is how many tokens the greedy gate generates. Source: the verification in the
// paper's published code.
const greedyTokens = 32

// checkGreedy continues three prompts.
func checkGreedy(ctx context.Context, bench *Bench) (Verdict, error) {
	s, ids, _, err := bench.scored(ctx)
	if err != nil {
		return nil, err
	}
	c := Checks{Name: journal.GateGreedy}
	for _, n := range []int{min(8, len(ids)), min(16, len(ids)), (len(ids) + 1) / 2} {
		tokens := min(greedyTokens, bench.Recipe.SeqLen-n)
		if tokens < 1 {
			continue
		}
		if err := bench.take(&c, fmt.Sprintf("after %d ids", n), func() (Verdict, error) {
			return gate.Greedy(ctx, s, bench.Known, ids[:n], tokens, 0)
		}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// checkDeterminism scores two prompts in turn. The second is shorter and differs from its first id
// on, so that it reads where the first has written.
func checkDeterminism(ctx context.Context, bench *Bench) (Verdict, error) {
	s, ids, _, err := bench.scored(ctx)
	if err != nil {
		return nil, err
	}
	a, b := bench.Pair(ids)
	r, err := gate.Determinism(ctx, s, a, b)
	r.Name = journal.GateDeterminism
	return r, err
}

// Pair returns two prompts of which neither is a prefix of the other.
func (bench *Bench) Pair(ids []int32) (a, b []int32) {
	a = ids[:min(len(ids), 70)]
	b = slices.Clone(a[:(len(a)+1)/2])
	slices.Reverse(b)
	if b[0] == a[0] {
		b[0] = (a[0] + 1) % int32(bench.Models.Config.Vocab)
	}
	return a, b
}

// checkGolden compares the device with another implementation's outputs.
func checkGolden(ctx context.Context, bench *Bench) (Verdict, error) {
	s, _, b, err := bench.scored(ctx)
	if err != nil {
		return nil, err
	}
	c := Checks{Name: journal.GateGolden}
	var skipped []string
	for _, q := range bench.Golden.Sequences {
		if !q.Fits(bench.Recipe.SeqLen) {
			skipped = append(skipped, fmt.Sprintf("%s, %d ids", q.Name, len(q.IDs)))
			continue
		}
		if record, ok := q.Record(); ok {
			if err := bench.take(&c, q.Name+" logits", func() (Verdict, error) {
				return gate.Teacher(ctx, s, record, q.IDs, b.Model)
			}); err != nil {
				return nil, err
			}
		} else if q.NLL != nil || q.Top != nil {
			if err := bench.take(&c, q.Name, func() (Verdict, error) {
				return golden.Judge(ctx, s, q,
					b.Model)
			}); err != nil {
				return nil, err
			}
		}
		if room := bench.Recipe.SeqLen - len(q.IDs); len(q.Greedy) > 0 && room > 0 {
			if err := bench.take(&c, q.Name+" greedy", func() (Verdict, error) {
				return gate.GreedyTokens(ctx, s, q.IDs, q.Greedy[:min(len(q.Greedy), room)], 0)
			}); err != nil {
				return nil, err
			}
		}
	}
	if len(skipped) > 0 && len(c.Done) > 0 {
		c.Done = append(c.Done, fmt.Sprintf("not compared, since %d positions are too few: %s", bench.Recipe.SeqLen,
			strings.Join(skipped, "; ")))
	}
	return c, nil
}
