package gates

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/skill/internal/journal"
)

// material is what a model reads while it is judged. The ids are those of a text through the model's own tokenizer, else the golden file's, which a gate of its own looks at anyway, else
// random ones that the oracle continues by drawing from its own distribution. Which of them is in the gates' reports.
type Text struct {
	IDs    []int32
	Source string
}

// materialText is plain English, written for this purpose, with names, figures, speech and code, so that both easy and surprising tokens come.
const materialText = `The lighthouse at Port Anselm has 214 steps, and Ines Okafor climbed them every evening for thirty-one years. "You count them so that
your legs have something to think about," she told the boy who was to take over from her. He counted 213. They went down and counted again, together,
and argued on the way, and the lamp was lit four minutes late that night, which is in the book.

The book is a list of small numbers: wind 6, sea 4, one ship inbound, oil 11 litres. Nobody reads it unless something has gone wrong. Then it is read
from the last good day on, line by line, until somebody says: here. Before this line everything follows from what came before; after it nothing does.

    for step := range steps {
        if got[step] != want[step] {
            return step // everything after this is only a consequence
        }
    }

In 1987 the council bought an automatic lamp. It was cheaper, it was never late, and in its second winter it shone for nine nights with a lens turned
the wrong way round, because nobody was there who would have looked at the wall and wondered.
`

// ids are the deployment's ids, at most so many.
func (bench *Bench) IDs(ctx context.Context) ([]int32, error) {
	if bench.text == nil {
		m, err := bench.material(ctx)
		if err != nil {
			return nil, err
		}
		bench.text = m
	}
	return bench.text.IDs, nil
}

func (bench *Bench) material(ctx context.Context) (*Text, error) {
	if bench.Models.Checkpoint == nil {
		return nil, journal.ErrForecast
	}
	// One position is left for a token behind.
	n := min(bench.Positions, bench.Recipe.SeqLen-1)
	if n < 8 {
		return nil, fmt.Errorf("skill: %d positions leave no room to judge anything", bench.Recipe.SeqLen)
	}
	if tok, err := model.OpenTokenizer(bench.Models.Checkpoint); err == nil {
		if ids, err := tok.Encode(materialText, nil); err == nil && len(ids) >= 8 {
			return &Text{ids[:min(n, len(ids))], "a text through the model's tokenizer"}, nil
		}
	}
	if g := bench.Golden; g != nil {
		for _, s := range g.Sequences {
			if len(s.IDs) >= 8 {
				return &Text{s.IDs[:min(n, len(s.IDs))], strings.TrimSuffix("the golden file's, "+s.Name, ", ")}, nil
			}
		}
	}
	bench.Models.Step("the oracle writes %d tokens", n)
	ids, err := bench.continued(ctx, n)
	return &Text{ids, "random ids that the oracle continues"}, err
}

// randomIDs are as few as make texts differ: what follows is then text that the model itself finds likely, as what it was trained on is.
const randomIDs = 4

// continued are a few random ids and what the oracle makes of them.
func (bench *Bench) continued(ctx context.Context, n int) ([]int32, error) {
	rng := rand.New(rand.NewPCG(1, 2)) // any, but the same every time
	ids := make([]int32, min(n, randomIDs))
	for i := range ids {
		ids[i] = rng.Int32N(int32(bench.Models.Config.Vocab))
	}
	st := bench.Oracle.NewState()
	var logits []float32
	err := st.Score(ctx, ids, func(_ int, row []float32) error { logits = row; return nil })
	for err == nil && len(ids) < n {
		ids = append(ids, sample(rng, logits))
		logits, err = st.Step(ctx, ids[len(ids)-1])
	}
	return ids, err
}

// sample draws from the distribution that logits stand for.
func sample(rng *rand.Rand, logits []float32) int32 {
	highest := slices.Max(logits)
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v - highest))
	}
	left := rng.Float64() * sum
	for i, v := range logits {
		if left -= math.Exp(float64(v - highest)); left <= 0 {
			return int32(i)
		}
	}
	return int32(len(logits) - 1)
}
