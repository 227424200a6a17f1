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
	case decision.Action == Redirect && more && (due == Reference || d.log.State.Phases[due].Status == Failed):
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
		if decision.Skill != "" && d.skill(decision.Skill) == nil {
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
	_, r, err := d.look(ctx, p, name)
	return r, err
}

func (d *Deployment) look(ctx context.Context, p Phase, name string) (*Env, GateResult, error) {
	if !p.Valid() {
		return nil, GateResult{}, fmt.Errorf("skill: there is no phase %d", int(p))
	}
	e, err := d.env(p)
	if err != nil {
		return nil, GateResult{}, err
	}
	list, err := e.gates(p)
	if err != nil {
		return nil, GateResult{}, err
	}
	i := slices.IndexFunc(list, func(g gates.Gate) bool { return g.Name == name })
	if i < 0 {
		return nil, GateResult{}, fmt.Errorf("skill: phase %s has no gate %q; it has %s", p, name,
			strings.Join(gateNames(list), ", "))
	}
	d.reference.Forget()
	r, err := list[i].Key(e.bench)
	if err != nil {
		return nil, r, err
	}
	v, err := list[i].Check(ctx, e.bench)
	if err != nil {
		return e, r, fmt.Errorf("skill: gate %s: %w", name, err)
	}
	gates.Judge(&r, v)
	return e, r, nil
}

func gateNames(list []gates.Gate) []string {
	var names []string
	for _, g := range list {
		names = append(names, g.Name)
	}
	return names
}

// GatesOf returns the names of the gates of a phase, for the plan as it is.
func (d *Deployment) GatesOf(p Phase) ([]string, error) {
	if !p.Valid() {
		return nil, fmt.Errorf("skill: there is no phase %d", int(p))
	}
	e, err := d.env(p)
	if err != nil {
		return nil, err
	}
	list, err := e.gates(p)
	return gateNames(list), err
}

// Diagnosis is the result of Diagnose.
type Diagnosis struct {
	Gate    GateResult `json:"gate"`
	Symptom *Symptom   `json:"symptom,omitempty"` // nil if the gate passes
	Skills  []string   `json:"skills,omitempty"`  // the skills that know the symptom, in order
}

// Diagnose runs a gate. If the gate fails and is one of the model, Diagnose finds the first op that
// is wrong although its inputs are right. It changes nothing: the phase itself asks the same skills
// for a remedy.
func (d *Deployment) Diagnose(ctx context.Context, p Phase, name string) (Diagnosis, error) {
	e, r, err := d.look(ctx, p, name)
	found := Diagnosis{Gate: r}
	switch {
	case err != nil && (e == nil || ctx.Err() != nil):
		return found, err
	case err != nil:
		found.Symptom = &Symptom{Phase: p, Gate: name, Err: err, Error: err.Error(), Recipe: e.bench.Recipe}
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
	if d.log.State.Phases[p].Status != Running {
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
