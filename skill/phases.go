package skill

import (
	"context"
	"fmt"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/skill/internal/journal"
)

// orchestrator stands for [Deployment.Run], so that the list of skills is complete.
type orchestrator struct{}

func (orchestrator) Name() string                               { return "deploy-new-llm" }
func (orchestrator) Trigger(Symptom) bool                       { return false }
func (orchestrator) Run(context.Context, *Env) (Outcome, error) { return Outcome{}, nil }

// phaseSkill does the work of a phase that is not its gates.
type phaseSkill struct{ p Phase }

func (s phaseSkill) Name() string       { return s.p.Info().Skill }
func (phaseSkill) Trigger(Symptom) bool { return false }

func (s phaseSkill) Run(ctx context.Context, e *Env) (Outcome, error) {
	switch s.p {
	case Reference:
		return Outcome{}, firstPlan(e)
	case Prefill, Decode:
		return Outcome{}, e.optimise(ctx)
	case Finalise:
		return Outcome{}, finalMeasurement(ctx, e)
	case Evaluation:
		return Outcome{}, callEvaluator(ctx, e)
	}
	return Outcome{}, nil // kernels, block and model: the gates are the work
}

// Changes returns the changes that belong to none of the three optimisation skills: kernels, tiles,
// the array, the LM head.
func (s phaseSkill) Changes(e *Env) []Change {
	if s.p != e.Phase || s.p != Prefill && s.p != Decode {
		return nil
	}
	if e.bench.Models.Info.Array == "" {
		return hostChanges(s.p, e.bench.Recipe.SeqLen)
	}
	list := knobSteps(e, "vectorised kernels", "tiles for the shape, fused attention", "more of the array used",
		"LM head of the last row only")
	if s.p == Decode {
		list = append(list, Change{Name: "final norm on the array", Take: func(r *Recipe) {
			// The norm feeds a product of single rows.
			r.Decode.LMRows, r.Decode.FinalNorm = plan.TunedKnobs().LMRows, plan.OnDevice
		}})
	}
	return list
}

// firstPlan makes the naive plan the deployment's. If no plan can be made, the architecture gate
// reports why.
func firstPlan(e *Env) error {
	if _, err := e.Plan(); err != nil || e.State.Plan != "" {
		return nil
	}
	return e.SetRecipe(e.bench.Recipe, "the plan that one would write first")
}

// finalMeasurement takes the figures that are reported, of the plan as it is now. They are taken in
// turns with the first plan, so that both are measured in the same way and at the same time.
func finalMeasurement(ctx context.Context, e *Env) error {
	if err := e.d.writePlan(); err != nil {
		return err
	}
	if first, ok := e.State.FirstRecipe(); ok {
		_, _, err := e.d.timer.Compare(ctx, e.Phase, first, e.bench.Recipe)
		return err
	}
	_, err := e.d.timer.Measure(ctx, e.Phase, e.bench.Recipe)
	return err
}

// callEvaluator calls Options.Evaluate, which evaluates in a process of its own.
func callEvaluator(ctx context.Context, e *Env) error {
	if err := e.bench.Models.Close(); err != nil { // the evaluator needs the device and the memory
		return err
	}
	e.Step("independent evaluation")
	r, err := e.d.opts.Evaluate(ctx, e.d.ws.Dir)
	if err != nil {
		return noVerdict{err}
	}
	return e.note(journal.KindEvaluation, r)
}

// noVerdict is why an evaluator has no verdict: the machine was busy, its process was killed, a
// disk was full. The plan stays as it was.
type noVerdict struct{ error }

func (e noVerdict) Error() string {
	return fmt.Sprintf("skill: there is no verdict, and the plan stays as it was: %v; deploy again", e.error)
}

func (e noVerdict) Unwrap() error { return e.error }
