package gates

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/plan"
)

// Rows that the gate of far positions looks at: the last of a prompt that leaves room for some tokens in a session, and those tokens, decoded one by one.
const (
	farRows  = 8
	farSteps = 8
)

// farIDs fill a session with the deployment's ids, drawn in any order: a text that is repeated would show the same past at many distances.
func (bench *Bench) farIDs(ctx context.Context) ([]int32, error) {
	some, err := bench.IDs(ctx)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(3, 4)) // any, but the same every time
	ids := make([]int32, bench.Recipe.SeqLen)
	for i := range ids {
		ids[i] = some[rng.IntN(len(some))]
	}
	return ids, nil
}

// checkBlockFar judges what layer 0 adds at the end of a session, behind a cache that is full: the other gates look at the first few hundred positions. It runs the plan's embedding, layer 0
// and head without the layers between, and the oracle that one layer, so that it costs as much for a deep model as for a shallow one.
func checkBlockFar(ctx context.Context, bench *Bench) (Verdict, error) {
	ids, err := bench.farIDs(ctx)
	if err != nil {
		return nil, err
	}
	p, err := bench.Plan()
	if err != nil {
		return nil, err
	}
	pass := max(1, len(ids)-farSteps)
	from := max(0, pass-farRows)
	width := bench.Models.Config.Hidden
	var rows []float32 // of the last passes, as many as are looked at
	tap := func(name string, shape []int, values []float32) error {
		if name == blockOutput {
			rows = appendRows(rows, shape, values, width)
			rows = rows[max(0, len(rows)-(len(ids)-from)*width):]
		}
		return nil
	}
	err = bench.Models.Tapped(ctx, firstLayer(unpriced(p)), tap, func(s *model.Session) error {
		for _, err := range s.Generate(ctx, model.IDs(ids[:pass]), &model.GenerateOptions{MaxTokens: 1, Sampling: &model.Sampling{}, IgnoreEOS: true}) {
			if err != nil {
				return err
			}
		}
		for _, id := range ids[pass:] {
			if _, err := s.Step(ctx, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	in, out, err := bench.Oracle.Block(ctx, ids, from)
	if err != nil {
		return nil, err
	}
	b, err := bench.bounds()
	if err != nil {
		return nil, err
	}
	return judgeBlock(bench, fmt.Sprintf("layer 0, positions %d to %d", from, len(ids)-1), rows, in, out, b.farAt(len(ids)))
}

// firstLayer is the plan without the layers behind the first; its logits mean nothing. Where the head cannot do without them it is the plan.
func firstLayer(p *plan.Plan) *plan.Plan {
	q := *p
	shorten := func(pass plan.Pass) plan.Pass {
		pass.Steps = slices.DeleteFunc(slices.Clone(pass.Steps), func(s plan.Step) bool {
			return strings.HasPrefix(s.Name, "layer.") && s.Name != "layer.0"
		})
		return pass
	}
	q.Prefill = slices.Clone(p.Prefill)
	for i := range q.Prefill {
		q.Prefill[i] = shorten(q.Prefill[i])
	}
	if q.Decode = shorten(p.Decode); q.Validate() != nil {
		return p
	}
	return &q
}
