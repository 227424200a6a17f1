package skill

import (
	"context"
	"fmt"

	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/oracle"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
)

// Env is the environment of a skill or a gate: a model, a device, an oracle and a plan, in one
// phase. It must be used by one goroutine.
type Env struct {
	d     *Deployment
	phase Phase
	bench *gates.Bench // has the plan

	tried   bool         // the plan is that of a change that is only tried
	symptom Symptom      // that a debug skill is asked about
	checked []Hypothesis // by that skill
}

// env returns the environment of a phase, on the deployment's plan.
func (d *Deployment) env(p Phase) (*Env, error) {
	if d.closed {
		return nil, ErrClosed
	}
	d.place = place{phase: p}
	return d.newEnv(p), nil
}

func (d *Deployment) newEnv(p Phase) *Env {
	recipe := d.log.State.Recipe
	if d.log.State.Plan == "" {
		recipe = journal.Naive(d.models.Info, d.log.State.Subject.SeqLen)
	}
	note := func(n journal.KernelNote) error { return d.log.Append(journal.KindKernel, p, n) }
	return &Env{d: d, phase: p, bench: &gates.Bench{Reference: d.reference, Models: d.models, Recipe: recipe,
		Kernel: note}}
}

// with returns the environment with another plan.
func (e *Env) with(r Recipe) *Env {
	other := *e
	other.bench = e.bench.With(r)
	return &other
}

// Phase returns the phase that runs.
func (e *Env) Phase() Phase { return e.phase }

// Config returns the model's architecture. Callers must not change it.
func (e *Env) Config() *checkpoint.Config { return e.bench.Models.Config }

// Checkpoint returns the model's checkpoint. It is open for as long as the deployment is.
func (e *Env) Checkpoint() *checkpoint.Checkpoint { return e.bench.Models.Checkpoint }

// Device returns the device that the model is deployed on.
func (e *Env) Device() npu.Device { return e.bench.Models.Device }

// Oracle returns the reference implementation of the model.
func (e *Env) Oracle() *oracle.Model { return e.bench.Oracle }

// Golden returns the reference outputs of another implementation, or nil.
func (e *Env) Golden() *golden.File { return e.bench.Golden }

// State returns the state of the deployment. Callers must not change it.
func (e *Env) State() *State { return e.d.log.State }

// Symptom returns the failure that a debug skill is asked about.
func (e *Env) Symptom() Symptom { return e.symptom }

// Recipe returns the recipe of the environment's plan.
func (e *Env) Recipe() Recipe { return e.bench.Recipe.Clone() }

// Plan returns the environment's plan. Callers must not change it.
func (e *Env) Plan() (*plan.Plan, error) { return e.bench.Plan() }

// Session returns an empty session of the model with the environment's plan. It belongs to the
// deployment, is valid until the next call, and need not be closed.
func (e *Env) Session(ctx context.Context) (*model.Session, error) { return e.bench.Session(ctx) }

// Measure returns the speed of the environment's plan: as the clock predicts it on a virtual array,
// and elsewhere the median of repetitions. It judges nothing.
func (e *Env) Measure(ctx context.Context) (Measurement, error) {
	return e.d.timer.Measure(ctx, e.phase, e.bench.Recipe)
}

// Gate runs one of the phase's gates on the environment's plan. If the gate has passed already in
// this attempt at the phase, Gate returns that result.
func (e *Env) Gate(ctx context.Context, name string) (GateResult, error) {
	list, err := e.gates(e.phase)
	if err != nil {
		return GateResult{}, err
	}
	for _, g := range list {
		if g.Name == name {
			return e.runGate(ctx, g)
		}
	}
	return GateResult{}, fmt.Errorf("skill: phase %s has no gate %q", e.phase, name)
}

// SetRecipe makes the plan of r the deployment's, for the reason why. All later gates run on that
// plan. If the plan cannot be made, SetRecipe returns an error and changes nothing. A skill that is
// asked about a change that is only tried changes the environment and not the deployment.
func (e *Env) SetRecipe(r Recipe, why string) error {
	if err := e.bench.Recipe.Allows(r); err != nil {
		return err
	}
	next := e.bench.With(r.Clone())
	hash, err := next.PlanHash()
	if err != nil {
		return err
	}
	if e.tried {
		e.bench = next
		return nil
	}
	if err := e.note(journal.KindPlan, journal.PlanNote{Recipe: next.Recipe, Hash: hash, Why: why}); err != nil {
		return err
	}
	e.bench = next
	return e.d.writePlan()
}

// Step reports the next step, as an event.
func (e *Env) Step(format string, args ...any) { e.d.step(format, args...) }

// Issue records a bug for people to know of.
func (e *Env) Issue(i Issue) error { return e.note(journal.KindIssue, i) }

// Hypothesis records a cause that a debug skill has tested.
func (e *Env) Hypothesis(h Hypothesis) { e.checked = append(e.checked, h) }

func (e *Env) note(kind journal.Kind, data any) error { return e.d.log.Append(kind, e.phase, data) }
