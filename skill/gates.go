package skill

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/xdna2"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
	"github.com/npukit/npukit/skill/internal/timing"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// Gate is a condition at the end of phases. It must compute its own evidence.
type Gate struct {
	Name   string
	Phases []Phase // from Reference to Finalise
	// Check runs the gate on the environment's plan. Its error means that the gate could not be
	// run; the findings are in the verdict.
	Check func(ctx context.Context, env *Env) (Verdict, error)
}

// Verdict is a gate's report: whether it passed, and its findings. The reports of package gate are
// verdicts, and [Checks] is one.
type Verdict = gates.Verdict

// Checks is the verdict of a gate that checks several things. Its method Hold adds one of them:
//
//	c := skill.Checks{Name: "length"}
//	c.Hold(n < 100, "tokens", "%d tokens were generated", n)
//
// The zero value has checked nothing and is not OK.
type Checks = gates.Checks

// on returns the gate with its Check run in the environments that envOf makes.
func (g Gate) on(envOf func(*gates.Bench) *Env) gates.Gate {
	return gates.Gate{Name: g.Name, Run: func(ctx context.Context, bench *gates.Bench) (Verdict, error) {
		return g.Check(ctx, envOf(bench))
	}}
}

// gates returns all gates that a phase must pass, with those of the user.
func (e *Env) gates(p Phase) ([]gates.Gate, error) {
	list, err := e.builtInGates(p)
	if err != nil {
		return nil, err
	}
	for _, g := range e.d.opts.Gates {
		if slices.Contains(g.Phases, p) {
			list = append(list, g.on(func(bench *gates.Bench) *Env {
				other := *e
				other.bench = bench
				return &other
			}))
		}
	}
	return list, nil
}

func (e *Env) builtInGates(p Phase) ([]gates.Gate, error) {
	own := func(name string, check func(*Env) (Verdict, error)) gates.Gate {
		return gates.Gate{Name: name, Run: func(context.Context, *gates.Bench) (Verdict, error) { return check(e) }}
	}
	switch p {
	case Reference:
		return gates.OfReference(e.bench), nil
	case KernelValidation:
		return gates.OfKernels(e.bench)
	case SingleBlock:
		return gates.OfBlock(), nil
	case FullModel:
		return gates.OfModel(e.bench), nil
	case Prefill, Decode:
		kernels, err := gates.OfKernels(e.bench)
		return slices.Concat([]gates.Gate{own(journal.GateTried, checkTried)}, kernels, gates.OfModel(e.bench)), err
	case Finalise:
		return append([]gates.Gate{own(journal.GatePlanFile, checkPlanFile), gates.BlockFar()},
			gates.OfModel(e.bench)...), nil
	case Evaluation:
		return []gates.Gate{own(journal.GateEvaluation, func(e *Env) (Verdict, error) {
			return checkEvaluation(e.d.log.State)
		})}, nil
	}
	return nil, fmt.Errorf("skill: there is no phase %d", int(p))
}

// runGate runs a gate on the environment's plan and records its result.
func (e *Env) runGate(ctx context.Context, g gates.Gate) (GateResult, error) {
	d := e.d
	if d.models.Checkpoint == nil {
		return GateResult{}, journal.ErrForecast
	}
	reports := ""
	if d.ws != nil {
		reports = d.ws.Path(workspace.FolderReports)
	}
	r := &gates.Runner{
		Log: d.log, Reports: reports, Plain: d.opts.plain, PartsFrom: d.opts.partsFrom(), Step: d.events.step,
		Done: func(r GateResult) { d.events.send(Event{Phase: e.Phase, What: eventGate, Text: r.Summary, Gate: &r}) },
	}
	return r.Run(ctx, e.Phase, g, e.bench)
}

// checkTried checks that an optimisation phase has tried something, and that the changes kept are
// faster.
func checkTried(e *Env) (Verdict, error) {
	c := Checks{Name: journal.GateTried}
	kept, measured := 0, 0
	attempts := e.State.Attempted(e.Phase)
	for _, a := range attempts {
		if a.After != nil {
			measured++
		}
		if a.Outcome != Kept {
			continue
		}
		kept++
		better, _ := timing.Faster(&a, e.Phase)
		how := "is faster beyond noise"
		if a.Published {
			how = "is faster beyond noise, or as fast and the published form"
		}
		c.Hold(better, "speed", "%s %s", a.Step, how)
	}
	c.Hold(len(attempts) > 0, "attempts", "changes tried: %d, measured: %d, kept: %d", len(attempts), measured, kept)
	return c, nil
}

// checkPlanFile reads the plan from the disk, as its users will.
func checkPlanFile(e *Env) (Verdict, error) {
	c := Checks{Name: journal.GatePlanFile}
	p, err := plan.Read(e.d.ws.Path(workspace.FilePlan))
	c.Hold(err == nil, "file", "plan.json: %v", gates.ErrorOr(err, "can be read, and is valid"))
	if err != nil {
		return c, nil
	}
	hash, err := models.PlanHash(p)
	if err != nil {
		return nil, err
	}
	decided := e.State.Plan
	c.Hold(hash == decided, "hash", "plan.json is the plan that was decided: %.12s, %.12s", hash, decided)
	info := e.bench.Models.Info
	err = p.Check(e.Config, info)
	c.Hold(err == nil, "device", "the device takes it: %v", gates.ErrorOr(err, "yes"))
	if info.Array != "" {
		// More programs than contexts take turns. The clock has priced that; a note tells it.
		err = p.CheckContexts(xdna2.NPU2())
		c.Done = append(c.Done, fmt.Sprintf("note: each pass has a hardware context for every program: %v",
			gates.ErrorOr(err, "yes")))
	}
	return c, nil
}

// checkEvaluation is the evaluator's verdict on the plan that was decided.
func checkEvaluation(s *State) (Verdict, error) {
	c := Checks{Name: journal.GateEvaluation}
	r := s.Evaluation
	if r == nil {
		return nil, errors.New("skill: the evaluator has reported nothing")
	}
	held := 0
	for _, x := range r.Checks {
		if x.OK {
			held++
			continue
		}
		c.Hold(false, x.Name, "%s: %s", x.Name, x.Detail)
	}
	c.Hold(held > 0, "checks", "%d of %d checks hold, which %s has one by one", held, len(r.Checks),
		workspace.FileEvaluation)
	c.Hold(r.OK && len(r.Checks) > 0, "verdict", "the evaluator %s",
		map[bool]string{true: "accepts", false: "does not accept"}[r.OK])
	c.Hold(r.Plan == s.Plan, "plan", "it judged the plan that was decided: %.12s, %.12s", r.Plan, s.Plan)
	return c, nil
}
