package gates

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/journal"
)

// checkArchitecture makes the first plan. A checkpoint of an unknown family has been refused
// before.
func checkArchitecture(_ context.Context, bench *Bench) (Verdict, error) {
	c := Checks{Name: journal.GateArchitecture}
	cfg := bench.Models.Config
	c.Hold(true, "family", "%s of family %s is supported: %d layers, hidden %d, %d heads over %d, head dim %d",
		cfg.Name, cfg.Family, cfg.Layers, cfg.Hidden, cfg.Heads,
		cfg.KVHeads, cfg.HeadDim)
	p, err := bench.Plan()
	c.Hold(err == nil, "plan", "a plan for %s: %v", bench.Models.Info.Kind, ErrorOr(err, "can be made"))
	if err == nil {
		err = p.Check(cfg, bench.Models.Info)
		c.Hold(err == nil, "plan", "the device takes it: %v", ErrorOr(err, "yes"))
		if wrong := bench.otherTypes(p); len(wrong) > 0 {
			c.Hold(false, "types", "%d weights are not of the type that the plan's programs read: %s", len(wrong),
				strings.Join(wrong[:min(len(wrong), 3)], "; "))
		}
	}
	return c, nil
}

// otherTypes returns the weights whose type is not the one that the programs of an array read. No
// device converts them.
func (bench *Bench) otherTypes(p *plan.Plan) []string {
	if bench.Models.Info.Array == "" {
		return nil
	}
	var list []string
	seen := map[string]bool{}
	for _, pass := range p.Passes() {
		for _, s := range slices.Concat(pass.Steps, pass.Head) {
			for i, b := range s.Args {
				if b.Const == nil {
					continue
				}
				want := p.Program(s.Program).Args[i].Type
				for _, name := range tensorsOf(*b.Const) {
					if t, err := bench.Models.Checkpoint.Tensor(name); err == nil && t.Type != want && !seen[name] {
						seen[name] = true
						list = append(list, fmt.Sprintf("%s is %s and not %s, convert the checkpoint", name, t.Type,
							want))
					}
				}
			}
		}
	}
	return list
}

// tensorsOf returns the names of the tensors of a layout.
func tensorsOf(l npu.Layout) []string {
	if l.Op == "" {
		return []string{l.Name}
	}
	var list []string
	for _, a := range l.Args {
		list = append(list, tensorsOf(a)...)
	}
	return list
}

// checkWeights checks every weight.
func checkWeights(ctx context.Context, bench *Bench) (Verdict, error) {
	c := Checks{Name: journal.GateWeights}
	list := bench.Models.Checkpoint.Tensors()
	c.Hold(len(list) > 0, "tensors", "%d tensors with %d parameters are there, with the shapes that the "+
		"config asks for", len(list), bench.Models.Checkpoint.Parameters())
	bad, err := bench.Models.Checkpoint.NonFinite(ctx)
	if err != nil {
		return nil, err
	}
	if len(bad) > 0 {
		c.Hold(false, gate.NonFinite, "%d tensors have values that are NaN or infinite: %v", len(bad),
			bad[:min(len(bad), 8)])
	} else {
		c.Hold(true, gate.NonFinite, "none of them has a value that is NaN or infinite")
	}
	return c, nil
}

// oraclePositions is how many positions the oracle computes twice, once in a pass and once in
// steps.
const oraclePositions = 24

// checkOracle compares the oracle's steps with its single pass. Only steps use the cache.
func checkOracle(ctx context.Context, bench *Bench) (Verdict, error) {
	ids, err := bench.IDs(ctx)
	if err != nil {
		return nil, err
	}
	ids = ids[:min(len(ids), oraclePositions)]
	pass, err := LogitsOf(ctx, bench.Oracle.NewState(), ids)
	if err != nil {
		return nil, err
	}
	st := bench.Oracle.NewState()
	var steps []float32
	for _, id := range ids {
		row, err := st.Step(ctx, id)
		if err != nil {
			return nil, err
		}
		steps = append(steps, row...)
	}
	return Paper(bench, journal.GateOracle, steps, pass, Thresholds().Formats["oracle"].Logits)
}

// checkOracleGolden compares the oracle with another implementation's outputs.
func checkOracleGolden(ctx context.Context, bench *Bench) (Verdict, error) {
	c := Checks{Name: journal.GateOracleGolden}
	for _, q := range bench.Golden.Sequences {
		if len(q.IDs) > bench.Models.Config.Context {
			continue // another sequence fits, or the file would have been refused
		}
		t := golden.OracleThresholds(&q)
		if record, ok := q.Record(); ok {
			if err := bench.take(&c, q.Name+" logits", func() (Verdict, error) {
				return gate.Teacher(ctx, bench.Oracle.NewState(), record, q.IDs, t)
			}); err != nil {
				return nil, err
			}
			if err := bench.take(&c, q.Name+" paper", func() (Verdict, error) {
				got, err := LogitsOf(ctx, bench.Oracle.NewState(), q.IDs)
				if err != nil {
					return nil, err
				}
				return Paper(bench, q.Name, got, q.Logits, Thresholds().Formats["oracle"].Logits)
			}); err != nil {
				return nil, err
			}
		} else if q.NLL != nil || q.Top != nil {
			if err := bench.take(&c, q.Name, func() (Verdict, error) {
				return golden.Judge(ctx, bench.Oracle.NewState(), q, t)
			}); err != nil {
				return nil, err
			}
		}
		if room := bench.Models.Config.Context - len(q.IDs); len(q.Greedy) > 0 && room > 0 {
			if err := bench.take(&c, q.Name+" greedy", func() (Verdict, error) {
				return gate.GreedyTokens(ctx, bench.Oracle.NewState(), q.IDs, q.Greedy[:min(len(q.Greedy), room)], 0)
			}); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

// LogitsOf returns the logits of all positions, [len(ids), vocab].
func LogitsOf(ctx context.Context, s gate.Scorer, ids []int32) ([]float32, error) {
	var all []float32
	err := s.Score(ctx, ids, func(_ int, row []float32) error {
		if all == nil {
			all = make([]float32, 0, len(row)*len(ids))
		}
		all = append(all, row...)
		return nil
	})
	return slices.Clip(all), err
}

// Paper compares logits by the paper's three conditions.
func Paper(bench *Bench, name string, got, want []float32, b PaperBounds) (Verdict, error) {
	return paperRows(name, got, want, bench.Models.Config.Vocab, b)
}

func paperRows(name string, got, want []float32, width int, b PaperBounds) (Verdict, error) {
	squares := 0.0
	for _, v := range want {
		squares += float64(v) * float64(v)
	}
	rms := math.Sqrt(squares / float64(max(1, len(want))))
	if rms == 0 {
		return nil, fmt.Errorf("the reference of %s is zero everywhere, and nothing can be compared with it", name)
	}
	tol, err := b.tolerance(rms)
	if err != nil {
		return nil, err
	}
	r, err := gate.Check(got, want, width, tol)
	r.Name = name
	return r, err
}
