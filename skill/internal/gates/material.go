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

// Text is the ids that gates score. They are those of a text through the model's own tokenizer. If
// there is none, they are the golden file's, or random ids that the oracle continues by sampling.
// The gates' reports name the source.
type Text struct {
	IDs    []int32
	Source string
}

// materialText is plain English that was written for this purpose, with names, figures, speech and
// code, so that it has both easy and surprising tokens.
const materialText = "The lighthouse at Port Anselm has 214 steps, and Ines Okafor climbed them every evening for " +
	"thirty-one years. \"You count them so that\n" +
	"your legs have something to think about,\" she told the boy who was to take over from her. He" +
	" counted 213. They went down and counted again, together,\n" +
	"and argued on the way, and the lamp was lit four minutes late that night, which is in the " +
	"book.\n" +
	"\n" +
	"The book is a list of small numbers: wind 6, sea 4, one ship inbound, oil 11 litres. Nobody " +
	"reads it unless something has gone wrong. Then it is read\n" +
	"from the last good day on, line by line, until somebody says: here. Before this line " +
	"everything follows from what came before; after it nothing does.\n" +
	"\n" +
	"    for step := range steps {\n" +
	"        if got[step] != want[step] {\n" +
	"            return step // everything after this is only a consequence\n" +
	"        }\n" +
	"    }\n" +
	"\n" +
	"In 1987 the council bought an automatic lamp. It was cheaper, it was never late, and in its " +
	"second winter it shone for nine nights with a lens turned\n" +
	"the wrong way round, because nobody was there who would have looked at the wall and " +
	"wondered.\n"

// IDs returns the ids that the gates score, at most Positions.
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
	// One position is left for the next token.
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

// randomIDs is how many random ids a text begins with. They are few, so that most of the text is
// likely to the model, as its training data is.
const randomIDs = 4

// continued returns a few random ids and the oracle's continuation.
func (bench *Bench) continued(ctx context.Context, n int) ([]int32, error) {
	rng := rand.New(rand.NewPCG(1, 2)) // any fixed seed
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

// sample draws from the distribution of logits.
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
