package skill

import (
	"context"
	"fmt"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/xdna2"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
	"github.com/npukit/npukit/skill/internal/subject"
	"github.com/npukit/npukit/skill/internal/timing"
)

// Forecast is the optimisation that a deployment is predicted to make.
type Forecast struct {
	Start  *plan.Plan // the naive plan
	Recipe Recipe     // after all steps
	Plan   *plan.Plan // of Recipe
	Steps  []Foreseen // the first one is the naive plan
}

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
// both optimisation phases in a deployment's order. It keeps a change if the clock predicts a gain
// beyond its own error, or, if the change leads to the published form, no loss (see
// [Change].Published). It computes nothing and runs no gates, so a deployment may differ: there a
// change can also fail a gate.
//
// It uses only SeqLen and Skills of the options. An [Optimiser] gets an environment that has a
// config, a recipe and a plan, but no checkpoint, device or oracle; to compute or record something
// in it is an error.
//
// If it fails, the forecast has the steps before the failure, and no plan.
func Foresee(ctx context.Context, c *checkpoint.Config, opts *Options) (*Forecast, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.SeqLen == 0 {
		o.SeqLen = min(c.Context, subject.DefaultSeqLen)
	}
	d, err := forecasting(c, o)
	f := &Forecast{}
	if err != nil {
		return f, err
	}
	f.Recipe = journal.Naive(d.models.Info, o.SeqLen)
	if f.Start, err = models.ArrayPlan(f.Recipe, c); err != nil {
		return f, err
	}
	now, err := foretold(f.Recipe, c)
	if err != nil {
		return f, err
	}
	f.Steps = []Foreseen{{Phase: Reference, Step: "first plan", Outcome: Kept, TTFT: now.TTFT,
		Token: 1 / now.TokensPerSec}}
	for _, p := range []Phase{Prefill, Decode} {
		for _, change := range newEnv(d, p).with(f.Recipe).changes() {
			if ctx.Err() != nil {
				return f, ctx.Err()
			}
			if now, err = f.try(p, change, now, c); err != nil {
				return f, err
			}
		}
	}
	f.Plan, err = models.ArrayPlan(f.Recipe, c)
	return f, err
}

// forecasting returns a deployment that has a config and nothing that computes.
func forecasting(c *checkpoint.Config, o Options) (*Deployment, error) {
	info := npu.Info{Kind: "sim", Array: "xdna2"}
	state, err := journal.Fold(nil)
	if err != nil {
		return nil, err
	}
	state.Subject = &journal.Subject{Name: c.Name, Device: info.Kind, Array: info.Array, SeqLen: o.SeqLen}
	d := &Deployment{opts: o, log: journal.Refuse(state, journal.ErrForecast), models: models.Forecast(c, info)}
	d.reference = gates.NewReference(nil, nil, o.Positions)
	d.timer = &timing.Timer{Models: d.models, Log: d.log, Step: d.events.step, Repetitions: o.Repetitions}
	d.skills, err = skills(o.Skills)
	return d, err
}

// try predicts a change to the recipe, and takes it if it is kept. now is the prediction for the
// recipe before; try returns the one for the recipe after.
func (f *Forecast) try(p Phase, change Change, now Measurement, c *checkpoint.Config) (Measurement, error) {
	if err := change.check(); err != nil {
		return now, err
	}
	step := Foreseen{Phase: p, Step: change.Name, Outcome: Rejected}
	next, err := change.take(f.Recipe)
	if err != nil {
		step.Why = err.Error()
		f.Steps = append(f.Steps, step)
		return now, nil
	}
	then, err := foretold(next, c)
	switch {
	case isRefusal(err):
		step.Why = err.Error()
	case err != nil:
		return now, err
	case then.Plan == now.Plan:
		step.Outcome, step.Why, step.TTFT, step.Token = Skipped, "the plan is the same with it", then.TTFT,
			1/then.TokensPerSec
	default:
		step.TTFT, step.Token = then.TTFT, 1/then.TokensPerSec
		better, why := timing.PredictedFaster(&Attempt{Before: &now, After: &then, Published: change.Published}, p)
		if step.Why = why; better {
			step.Outcome, f.Recipe, now = Kept, next, then
		}
	}
	f.Steps = append(f.Steps, step)
	return now, nil
}

// foretold returns the clock's prediction for a recipe's plan.
func foretold(r Recipe, c *checkpoint.Config) (Measurement, error) {
	p, err := models.ArrayPlan(r, c)
	if err != nil {
		return Measurement{}, err
	}
	hash, err := models.PlanHash(p)
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
