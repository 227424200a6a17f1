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

// Env is the environment of a skill or a gate, in one phase. Its fields must not be changed, and it
// must be used by one goroutine.
type Env struct {
	Phase   Phase   // the phase that runs
	State   *State  // of the deployment; in an evaluation, as the evaluator has read it
	Symptom Symptom // the failure that a debug skill is asked about

	Config     *checkpoint.Config     // the model's architecture
	Checkpoint *checkpoint.Checkpoint // open for as long as the deployment; nil in a forecast
	Device     npu.Device             // the device that the model is deployed on; nil in a forecast
	Oracle     *oracle.Model          // the reference implementation; nil in a forecast
	Golden     *golden.File           // reference outputs of another implementation, or nil

	d     *Deployment
	bench *gates.Bench // has the plan
	tried bool         // the plan is that of a change that is only tried
}

// env returns the environment of a phase, on the deployment's plan.
func (d *Deployment) env(p Phase) (*Env, error) {
	switch {
	case !p.Valid():
		return nil, fmt.Errorf("skill: there is no phase %d", int(p))
	case d.closed:
		return nil, journal.ErrClosed
	}
	d.events.phase, d.events.done, d.events.total = p, 0, 0
	return newEnv(d, p), nil
}

// newEnv returns the environment of a phase, also of a deployment that is closed.
func newEnv(d *Deployment, p Phase) *Env {
	recipe := d.log.State.Recipe
	if d.log.State.Plan == "" {
		recipe = journal.Naive(d.models.Info, d.log.State.Subject.SeqLen)
	}
	note := func(n journal.KernelNote) error { return d.log.Append(journal.KindKernel, p, n) }
	return envOn(d, p, &gates.Bench{Reference: d.reference, Models: d.models, Recipe: recipe, Kernel: note})
}

// envOn returns the environment of a phase on a bench.
func envOn(d *Deployment, p Phase, bench *gates.Bench) *Env {
	m := bench.Models
	return &Env{Phase: p, State: d.log.State, Config: m.Config, Checkpoint: m.Checkpoint, Device: m.Device,
		Oracle: bench.Oracle, Golden: bench.Golden, d: d, bench: bench}
}

// with returns the environment with another plan.
func (e *Env) with(r Recipe) *Env {
	other := *e
	other.bench = e.bench.With(r)
	return &other
}

// Recipe returns the recipe of the environment's plan.
func (e *Env) Recipe() Recipe { return e.bench.Recipe.Clone() }

// Plan returns the environment's plan. Callers must not change it.
func (e *Env) Plan() (*plan.Plan, error) { return e.bench.Plan() }

// Session returns an empty session of the model with the environment's plan. It belongs to the
// deployment, is valid until the next call, and need not be closed.
func (e *Env) Session(ctx context.Context) (*model.Session, error) { return e.bench.Session(ctx) }

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
func (e *Env) Step(format string, args ...any) { e.d.events.step(format, args...) }

// Issue records a bug for people to know of.
func (e *Env) Issue(i Issue) error { return e.note(journal.KindIssue, i) }

func (e *Env) note(kind journal.Kind, data any) error { return e.d.log.Append(kind, e.Phase, data) }
