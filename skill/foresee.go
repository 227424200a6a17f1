package skill

import (
	"context"
	"fmt"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/xdna2"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
	"github.com/npukit/npukit/skill/internal/subject"
	"github.com/npukit/npukit/skill/internal/timing"
)

// Foreseen is the clock's prediction for a change to the plan.
type Foreseen struct {
	Phase   Phase   `json:"phase"`
	Step    string  `json:"step"`
	Outcome string  `json:"outcome"` // Kept, Rejected or Skipped
	Why     string  `json:"why"`
	TTFT    float64 `json:"ttft_s"` // with the change; 0 if there is no plan
	Token   float64 `json:"token_s"`
}

// Foresee predicts the optimisation of a plan for the XDNA 2 from a config: it tries the changes of
// both optimisation phases in a deployment's order, and keeps each one that the clock predicts to
// be faster. It computes nothing and runs no gates, so a deployment may differ: there a change can
// also fail a gate. The first entry is the naive plan.
//
// It uses only SeqLen and Skills of the options. An [Optimiser] gets an environment that has a
// config, a recipe and a plan, but no checkpoint, device or oracle; to compute or record something
// in it is an error.
func Foresee(ctx context.Context, c *checkpoint.Config, opts *Options) (Recipe, []Foreseen, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.SeqLen == 0 {
		o.SeqLen = min(c.Context, subject.DefaultSeqLen)
	}
	info := npu.Info{Kind: "sim", Array: "xdna2"}
	state, err := journal.Fold(nil)
	if err != nil {
		return Recipe{}, nil, err
	}
	state.Subject = &journal.Subject{Name: c.Name, Device: info.Kind, Array: info.Array, SeqLen: o.SeqLen}
	d := &Deployment{opts: o, log: journal.Unwritten(state, journal.ErrForecast), models: models.Forecast(c, info)}
	d.reference = gates.NewReference(nil, nil, o.Positions)
	d.timer = &timing.Timer{Models: d.models, Log: d.log, Step: d.step, Repetitions: o.Repetitions}
	if d.skills, err = skills(o.Skills); err != nil {
		return Recipe{}, nil, err
	}
	recipe := journal.Naive(info, o.SeqLen)
	now, err := foretold(recipe, c)
	if err != nil {
		return recipe, nil, err
	}
	list := []Foreseen{{Phase: Reference, Step: "first plan", Outcome: Kept, TTFT: now.TTFT,
		Token: 1 / now.TokensPerSec}}
	for _, p := range []Phase{Prefill, Decode} {
		for _, change := range d.newEnv(p).with(recipe).changes() {
			if ctx.Err() != nil {
				return recipe, list, ctx.Err()
			}
			if err := change.check(); err != nil {
				return recipe, list, err
			}
			f := Foreseen{Phase: p, Step: change.Name, Outcome: Rejected}
			next, err := change.take(recipe)
			if err != nil {
				f.Why = err.Error()
				list = append(list, f)
				continue
			}
			then, err := foretold(next, c)
			switch {
			case isRefusal(err):
				f.Why = err.Error()
			case err != nil:
				return recipe, list, err
			case then.Plan == now.Plan:
				f.Outcome, f.Why, f.TTFT, f.Token = Skipped, "the plan is the same with it", then.TTFT,
					1/then.TokensPerSec
			default:
				f.TTFT, f.Token = then.TTFT, 1/then.TokensPerSec
				better, why := timing.PredictedFaster(p, now, then)
				if f.Why = why; better {
					f.Outcome, recipe, now = Kept, next, then
				}
			}
			list = append(list, f)
		}
	}
	return recipe, list, nil
}

// foretold returns the clock's prediction for a recipe's plan.
func foretold(r Recipe, c *checkpoint.Config) (Measurement, error) {
	p, err := models.ArrayPlan(r, c)
	if err != nil {
		return Measurement{}, err
	}
	hash, err := planHash(p)
	if err != nil {
		return Measurement{}, err
	}
	est, err := p.Estimate(xdna2.NewClock(xdna2.HostNpukit()))
	if err != nil {
		return Measurement{}, fmt.Errorf("skill: %w", err)
	}
	return Measurement{Plan: hash, Positions: est.SeqLen, TTFT: est.TTFT, TokensPerSec: est.TokensPerSec,
		Predicted: true, Clock: est.Host}, nil
}
