package skill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
)

// These methods are for programs that drive a deployment step by step, such as an agent over a
// protocol. They look, propose and decide between phases; [Deployment.RunPhase] runs a phase.

// Decide answers the report of the last phase, as Options.Approve does, and runs nothing. It can
// approve only a phase that has passed and waits for approval. It can redirect to any phase up to
// the last one that has ended, at any time.
func (d *Deployment) Decide(decision Decision) error {
	due, waiting, more := d.log.State.Due()
	reported := Evaluation
	if more {
		reported = max(due-1, Reference)
	}
	switch {
	case decision.Action == Approve && !waiting:
		return fmt.Errorf("skill: no phase waits for approval; next is %s", dueText(due, more))
	case decision.Action == Redirect && more && (due == Reference || d.log.State.Phases[due].Status == journal.Failed):
		reported = due
	}
	if err := d.decide(reported, decision); err != nil {
		return err
	}
	return d.writeFiles()
}

// decide records a decision about a phase that was reported.
func (d *Deployment) decide(reported Phase, decision Decision) error {
	switch decision.Action {
	case Approve:
		decision.Phase = reported
	case Redirect:
		if !decision.Phase.Valid() || decision.Phase > reported {
			return fmt.Errorf("skill: cannot redirect from %s to %s, which is later", reported, decision.Phase)
		}
		if decision.Skill != "" && named(d.skills, decision.Skill) == nil {
			return fmt.Errorf("skill: cannot redirect to skill %q: there is no such skill", decision.Skill)
		}
	case Stop:
	default:
		return fmt.Errorf("skill: the decision after %s is %q, want approve, redirect or stop", reported,
			decision.Action)
	}
	return d.log.Append(journal.KindDecision, reported, decision)
}

// Look runs a gate of a phase on the plan and returns its result. It records nothing: a phase
// counts only the gates that it has run itself.
func (d *Deployment) Look(ctx context.Context, p Phase, name string) (GateResult, error) {
	e, err := d.env(p)
	if err != nil {
		return GateResult{}, err
	}
	return e.look(ctx, name)
}

// look runs one of the phase's gates and records nothing.
func (e *Env) look(ctx context.Context, name string) (GateResult, error) {
	list, err := e.gates(e.Phase)
	if err != nil {
		return GateResult{}, err
	}
	i := slices.IndexFunc(list, func(g gates.Gate) bool { return g.Name == name })
	if i < 0 {
		return GateResult{}, fmt.Errorf("skill: phase %s has no gate %q; it has %s", e.Phase, name,
			strings.Join(gateNames(list), ", "))
	}
	e.d.reference.Forget()
	r, err := list[i].Key(e.bench)
	if err != nil {
		return r, err
	}
	v, err := list[i].Check(ctx, e.bench)
	if err != nil {
		return r, gateError{fmt.Errorf("skill: gate %s: %w", name, err)}
	}
	gates.Judge(&r, v)
	return r, nil
}

// gateError is the error of a gate that exists and could not be run.
type gateError struct{ error }

func (e gateError) Unwrap() error { return e.error }

func gateNames(list []gates.Gate) []string {
	var names []string
	for _, g := range list {
		names = append(names, g.Name)
	}
	return names
}

// failing returns the name of the phase's gate that has failed, or of its last gate.
func (e *Env) failing() (string, error) {
	for _, g := range e.State.Phases[e.Phase].Gates {
		if !g.OK {
			return g.Name, nil
		}
	}
	list, err := e.gates(e.Phase)
	if err != nil {
		return "", err
	}
	return list[len(list)-1].Name, nil
}

// Diagnosis is the result of Diagnose.
type Diagnosis struct {
	Gate    GateResult `json:"gate"`
	Symptom *Symptom   `json:"symptom,omitempty"` // nil if the gate passes
	Skills  []string   `json:"skills,omitempty"`  // the skills that know the symptom, in order
}

// Diagnose runs a gate. If name is "", that is the gate of the phase that has failed, or the last
// one. If the gate fails and is one of the model, Diagnose finds the first op that is wrong although
// its inputs are right. It changes nothing: the phase itself asks the same skills for a remedy.
func (d *Deployment) Diagnose(ctx context.Context, p Phase, name string) (Diagnosis, error) {
	e, err := d.env(p)
	if err != nil {
		return Diagnosis{}, err
	}
	if name == "" {
		if name, err = e.failing(); err != nil {
			return Diagnosis{}, err
		}
	}
	r, err := e.look(ctx, name)
	found := Diagnosis{Gate: r}
	var broken gateError
	switch {
	case errors.As(err, &broken) && ctx.Err() == nil:
		found.Symptom = &Symptom{Phase: p, Gate: name, Err: err, Error: err.Error(), Recipe: e.bench.Recipe}
	case err != nil:
		return found, err
	case r.OK:
		return found, nil
	default:
		if found.Symptom, err = e.symptomOf(ctx, r); err != nil {
			return found, err
		}
	}
	d.reference.Forget()
	for _, s := range d.skills {
		if s.Trigger(*found.Symptom) {
			found.Skills = append(found.Skills, s.Name())
		}
	}
	return found, nil
}

// Propose tries a change to the plan in the optimisation phase that is next, and starts the phase
// if it has not started: it runs the gates, takes the time, and keeps the change or not. [RunPhase]
// ends the phase. The patch is a JSON object for Recipe.With.
func (d *Deployment) Propose(ctx context.Context, name string, patch []byte) (Attempt, error) {
	p, _, more := d.log.State.Due()
	if !more || p != Prefill && p != Decode {
		return Attempt{}, fmt.Errorf("skill: changes can be proposed in %s and %s, but next is %s: run it, or "+
			"redirect to one of them", Prefill, Decode, dueText(p, more))
	}
	e, err := d.env(p)
	if err != nil {
		return Attempt{}, err
	}
	next, err := e.bench.Recipe.With(patch)
	if err != nil {
		return Attempt{}, err
	}
	if d.log.State.Phases[p].Status != journal.Running {
		if err := d.log.Append(journal.KindStart, p, journal.Start{Why: "a change was proposed"}); err != nil {
			return Attempt{}, err
		}
	}
	a, err := e.Propose(ctx, Change{Name: journal.ProposalPrefix + name, Take: func(r *Recipe) { *r = next }})
	return a, errors.Join(err, d.writeFiles())
}

func dueText(p Phase, more bool) string {
	if !more {
		return "nothing"
	}
	return p.String()
}
