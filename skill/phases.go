package skill

import (
	"context"
	"errors"
	"fmt"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/xdna2"
)

// orchestrator is the skill of the whole: what [Deployment.Run] does. It is here so that all fifteen can be listed, replaced ones among them.
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
		return Outcome{}, e.firstPlan()
	case Prefill, Decode:
		return Outcome{}, e.optimise(ctx)
	case Finalise:
		return Outcome{}, e.finalMeasurement(ctx)
	case Evaluation:
		return Outcome{}, e.evaluate(ctx)
	}
	return Outcome{}, nil // kernels, block and model: the gates are the work
}

// Changes are the steps that belong to none of the three optimisation skills: kernels, tiles, the array, the LM head.
func (s phaseSkill) Changes(e *Env) []Change {
	if s.p != e.phase || s.p != Prefill && s.p != Decode {
		return nil
	}
	if e.d.info.Array == "" {
		return hostChanges(s.p, e.recipe.SeqLen)
	}
	list := e.knobSteps("vectorised kernels", "tiles for the shape, fused attention", "more of the array used", "LM head of the last row only")
	if s.p == Decode {
		list = append(list, Change{Name: "final norm on the array", Take: func(r *Recipe) {
			r.Decode.LMRows, r.Decode.FinalNorm = plan.LastRow, plan.OnNPUSide // the norm feeds a product of single rows
		}})
	}
	return list
}

// firstPlan makes the naive plan the deployment's. A plan that cannot be made is found by the architecture gate, which says why.
func (e *Env) firstPlan() error {
	if _, err := e.planned(); err != nil || e.d.state.Plan != "" {
		return nil
	}
	return e.SetRecipe(e.recipe, "the plan that one would write first")
}

// checkTried wants an optimisation phase to have tried something, and holds what it kept to what was measured.
func checkTried(_ context.Context, e *Env) (Verdict, error) {
	c := Checks{Name: GateTried}
	kept, measured := 0, 0
	attempts := e.d.state.attempted(e.phase)
	for _, a := range attempts {
		if a.After != nil {
			measured++
		}
		if a.Outcome != Kept {
			continue
		}
		kept++
		better, _ := a.faster(e.phase)
		c.Hold(better, "speed", "%s is faster beyond noise", a.Step)
	}
	c.Hold(len(attempts) > 0, "attempts", "changes tried: %d, measured: %d, kept: %d", len(attempts), measured, kept)
	return c, nil
}

// checkPlanFile reads the plan from the disk, as whoever uses it will.
func checkPlanFile(_ context.Context, e *Env) (Verdict, error) {
	c := Checks{Name: GatePlanFile}
	p, err := plan.Read(e.d.ws.path(FilePlan))
	c.Hold(err == nil, "file", "plan.json: %v", orGood(err, "can be read, and is valid"))
	if err != nil {
		return c, nil
	}
	hash, err := PlanHash(p)
	if err != nil {
		return nil, err
	}
	c.Hold(hash == e.d.state.Plan, "hash", "plan.json is the plan that was decided: %.12s, %.12s", hash, e.d.state.Plan)
	err = p.Check(e.Config(), e.d.info)
	c.Hold(err == nil, "device", "the device takes it: %v", orGood(err, "yes"))
	if e.d.info.Array != "" {
		// More programs run, by turns, and the clock prices the turns: what they cost is in the figures, and worth saying.
		err = p.CheckContexts(xdna2.NPU2())
		c.Done = append(c.Done, fmt.Sprintf("note: each pass has a hardware context for every program: %v", orGood(err, "yes")))
	}
	return c, nil
}

// evaluate asks the evaluator, in a process of its own.
func (e *Env) evaluate(ctx context.Context) error {
	if err := e.closeModel(); err != nil { // the evaluator wants the device, and the memory
		return err
	}
	e.step("independent evaluation")
	r, err := e.d.opts.Evaluate(ctx, e.d.ws.dir)
	if err != nil {
		return noVerdict{err}
	}
	return e.note(KindEvaluation, r)
}

// noVerdict is why an evaluator has said nothing: the machine was busy, its process was killed, a disk was full. Nothing follows from it for the plan.
type noVerdict struct{ error }

func (e noVerdict) Error() string {
	return fmt.Sprintf("skill: there is no verdict, and the plan stays as it was: %v; deploy again", e.error)
}

func (e noVerdict) Unwrap() error { return e.error }

// checkEvaluation is the evaluator's verdict on the plan that was decided.
func checkEvaluation(_ context.Context, e *Env) (Verdict, error) {
	c := Checks{Name: GateEvaluation}
	r := e.d.state.Evaluation
	if r == nil {
		return nil, errors.New("skill: the evaluator has said nothing")
	}
	held := 0
	for _, x := range r.Checks {
		if x.OK {
			held++
			continue
		}
		c.Hold(false, x.Name, "%s: %s", x.Name, x.Detail)
	}
	c.Hold(held > 0, "checks", "%d of %d checks hold, which %s has one by one", held, len(r.Checks), FileEvaluation)
	c.Hold(r.OK && len(r.Checks) > 0, "verdict", "the evaluator %s", map[bool]string{true: "accepts", false: "does not accept"}[r.OK])
	c.Hold(r.Plan == e.d.state.Plan, "plan", "it judged the plan that was decided: %.12s, %.12s", r.Plan, e.d.state.Plan)
	return c, nil
}

// symptomOf looks at a gate that failed: model gates get a diagnosis, op by op.
func (e *Env) symptomOf(ctx context.Context, g GateResult) (*Symptom, error) {
	s := &Symptom{Phase: e.phase, Gate: g.Name, Reasons: g.Reasons, Recipe: e.recipe}
	switch g.Name {
	case GateBlock, GateBlockOps, GateBlockFar, GateLogits, GatePaper, GateGreedy, GateDeterminism, GateGolden:
	default:
		return s, nil
	}
	e.step("looking for the first op that is wrong")
	rec, _, err := e.record(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		s.Pattern = append(s.Pattern, fmt.Sprintf("a diagnosis fails too: %v", err))
		return s, nil
	}
	d := gate.Diagnose(rec.trace)
	s.Diagnosis = &d
	if d.OK() {
		s.Pattern = append(s.Pattern, fmt.Sprintf("every op is right when its output is looked at, for the first %d tokens", len(rec.ids)))
	}
	for _, f := range d.Findings[:min(len(d.Findings), 3)] {
		s.Pattern = append(s.Pattern, f.Tap+": "+f.Cause)
		s.Pattern = append(s.Pattern, f.Where...)
	}
	return s, nil
}
