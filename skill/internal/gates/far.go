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

// The rows that the gate of far positions compares: the last rows of a prompt, and the tokens after
// it at the end of the session, which are decoded one by one.
const (
	farRows  = 8
	farSteps = 8
)

// farIDs fills a session with the deployment's ids in random order: a repeated text would have the
// same past at many distances.
func (bench *Bench) farIDs(ctx context.Context) ([]int32, error) {
	some, err := bench.IDs(ctx)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(3, 4)) // any fixed seed
	ids := make([]int32, bench.Recipe.SeqLen)
	for i := range ids {
		ids[i] = some[rng.IntN(len(some))]
	}
	return ids, nil
}

// checkBlockFar compares the contribution of layer 0 at the end of a session, with a full cache;
// the other gates compare the first few hundred positions. It runs the plan's embedding, layer 0
// and head without the layers between, and one layer of the oracle, so its cost does not grow with
// the depth of the model.
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
	var rows []float32 // the last rows, as many as are compared
	tap := func(name string, shape []int, values []float32) error {
		if name == blockOutput {
			rows = appendRows(rows, shape, values, width)
			rows = rows[max(0, len(rows)-(len(ids)-from)*width):]
		}
		return nil
	}
	err = bench.Models.Tapped(ctx, firstLayer(unpriced(p)), tap, func(s *model.Session) error {
		for _, err := range s.Generate(ctx, model.IDs(ids[:pass]), &model.GenerateOptions{MaxTokens: 1,
			Sampling: &model.Sampling{}, IgnoreEOS: true}) {
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
	return judgeBlock(bench, fmt.Sprintf("layer 0, positions %d to %d", from, len(ids)-1), rows, in, out,
		b.farAt(len(ids)))
}

// firstLayer returns the plan without the layers after the first; its logits mean nothing. If the
// head needs them, firstLayer returns the plan.
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
