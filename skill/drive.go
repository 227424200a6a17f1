package skill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/npukit/npukit/gate"
)

// This file is for whoever drives a deployment step by step from outside: an agent over a protocol, a user interface. Phases run with [Deployment.Phase]; what is here
// looks, proposes and decides between them.

// Due is the phase that comes next, and Waiting whether the one before it has passed and nobody has decided yet to go on. When all phases have passed, ok is false.
func (s *State) Due() (p Phase, waiting, ok bool) {
	p, ok = s.Next()
	waiting = ok && p > Reference && !s.Phases[p-1].approved && s.Phases[p].Status != Running
	return p, waiting, ok
}

// Decide answers the checkpoint behind the last phase that has ended, as Options.Approve would, and runs nothing. Only a phase that has passed and waits can be approved; a
// redirect goes to any phase up to the last one that has ended, at any time.
func (d *Deployment) Decide(decision Decision) error {
	due, waiting, more := d.state.Due()
	reported := Evaluation
	if more {
		reported = max(due-1, Reference)
	}
	switch {
	case decision.Action == Approve && !waiting:
		return fmt.Errorf("skill: nothing waits for approval: %s is due", dueText(due, more))
	case decision.Action == Redirect && more && (due == Reference || d.state.Phases[due].Status == Failed):
		reported = due
	}
	if err := d.decide(reported, decision); err != nil {
		return err
	}
	return d.documents()
}

// decide notes a decision about a phase that was reported.
func (d *Deployment) decide(reported Phase, decision Decision) error {
	switch decision.Action {
	case Approve:
		decision.Phase = reported
	case Redirect:
		if !decision.Phase.valid() || decision.Phase > reported {
			return fmt.Errorf("skill: a redirect from %s to %s: want one up to it", reported, decision.Phase)
		}
		if decision.Skill != "" && d.skill(decision.Skill) == nil {
			return fmt.Errorf("skill: a redirect to skill %q: there is none of that name", decision.Skill)
		}
	case Stop:
	default:
		return fmt.Errorf("skill: the decision behind %s is %q: want approve, redirect or stop", reported, decision.Action)
	}
	return d.note(KindDecision, reported, decision)
}

// Look runs a gate of a phase on the plan as it is, and gives what it says. Nothing follows from it: a phase counts only gates that it has run itself.
func (d *Deployment) Look(ctx context.Context, p Phase, name string) (GateResult, error) {
	_, r, err := d.look(ctx, p, name)
	return r, err
}

func (d *Deployment) look(ctx context.Context, p Phase, name string) (*Env, GateResult, error) {
	if !p.valid() {
		return nil, GateResult{}, fmt.Errorf("skill: there is no phase %d", int(p))
	}
	e, err := d.env(p)
	if err != nil {
		return nil, GateResult{}, err
	}
	list, err := e.gatesOf(p)
	if err != nil {
		return nil, GateResult{}, err
	}
	i := slices.IndexFunc(list, func(g Gate) bool { return g.Name == name })
	if i < 0 {
		return nil, GateResult{}, fmt.Errorf("skill: phase %s has no gate %q; it has %s", p, name, strings.Join(gateList(list), ", "))
	}
	d.recorded = nil
	r, err := e.key(list[i])
	if err != nil {
		return nil, r, err
	}
	v, err := list[i].check(ctx, e)
	if err != nil {
		return e, r, fmt.Errorf("skill: gate %s: %w", name, err)
	}
	r.judged(v)
	return e, r, nil
}

// judged fills in what a verdict says.
func (r *GateResult) judged(v Verdict) {
	r.OK = v.OK()
	r.Summary, r.Figures, r.Bounds = describe(v)
	if r.Reasons = reasonsOf(v); !r.OK && len(r.Reasons) == 0 {
		r.Reasons = []gate.Reason{{Metric: r.Name, Text: v.Err().Error()}}
	}
}

// gateList are the names of gates.
func gateList(list []Gate) []string {
	var names []string
	for _, g := range list {
		names = append(names, g.Name)
	}
	return names
}

// GatesOf names the gates that a phase asks of the plan as it is.
func (d *Deployment) GatesOf(p Phase) ([]string, error) {
	if !p.valid() {
		return nil, fmt.Errorf("skill: there is no phase %d", int(p))
	}
	e, err := d.env(p)
	if err != nil {
		return nil, err
	}
	list, err := e.gatesOf(p)
	return gateList(list), err
}

// Diagnosis is what a look at a failing gate has found.
type Diagnosis struct {
	Gate    GateResult `json:"gate"`
	Symptom *Symptom   `json:"symptom,omitempty"` // nil when the gate passes
	Skills  []string   `json:"skills,omitempty"`  // that know such a symptom, in the order in which the phase asks them
}

// Diagnose runs a gate and, when it fails, finds the first op that is wrong from right inputs, where the gate is one of a model. It changes nothing: remedies are taken
// by the phase's own run, which asks the same skills.
func (d *Deployment) Diagnose(ctx context.Context, p Phase, name string) (Diagnosis, error) {
	e, r, err := d.look(ctx, p, name)
	found := Diagnosis{Gate: r}
	switch {
	case err != nil && (e == nil || ctx.Err() != nil):
		return found, err
	case err != nil:
		found.Symptom = &Symptom{Phase: p, Gate: name, Err: err, Error: err.Error(), Recipe: e.recipe}
	case r.OK:
		return found, nil
	default:
		if found.Symptom, err = e.symptomOf(ctx, r); err != nil {
			return found, err
		}
	}
	d.recorded = nil
	for _, s := range d.skills {
		if s.Trigger(*found.Symptom) {
			found.Skills = append(found.Skills, s.Name())
		}
	}
	return found, nil
}

// proposalPrefix keeps the names of proposals apart from those of the built-in steps: a step of a trajectory is tried once, and nobody may take its name to have it left out.
const proposalPrefix = "proposed: "

// Propose tries a change to the plan in the optimisation phase that is due, which begins with it if it has not: the gates are asked, the time is taken, and it is
// kept or not. The phase ends when it is run.
func (d *Deployment) Propose(ctx context.Context, name string, patch []byte) (Attempt, error) {
	p, _, more := d.state.Due()
	if !more || p != Prefill && p != Decode {
		return Attempt{}, fmt.Errorf("skill: changes can be proposed in %s and %s, and %s is due: run it, or redirect to one of them", Prefill, Decode, dueText(p, more))
	}
	e, err := d.env(p)
	if err != nil {
		return Attempt{}, err
	}
	next, err := e.recipe.With(patch)
	if err != nil {
		return Attempt{}, err
	}
	if d.state.Phases[p].Status != Running {
		if err := d.note(KindStart, p, Start{Why: "a change was proposed"}); err != nil {
			return Attempt{}, err
		}
	}
	a, err := e.Propose(ctx, Change{Name: proposalPrefix + name, Take: func(r *Recipe) { *r = next }})
	return a, errors.Join(err, d.documents())
}

func dueText(p Phase, more bool) string {
	if !more {
		return "nothing"
	}
	return p.String()
}

// maxPatch bounds the text of a patch: a recipe has some five hundred bytes.
const maxPatch = 64 << 10

// With is the recipe with the fields that a JSON object names, such as {"prefill": {"merge_post": true}}. The number of positions and the sort of device cannot
// be changed.
func (r Recipe) With(patch []byte) (Recipe, error) {
	if len(patch) > maxPatch {
		return r, fmt.Errorf("skill: a change to a recipe of %d bytes, %d at most are read", len(patch), maxPatch)
	}
	next := r.clone()
	d := json.NewDecoder(bytes.NewReader(patch))
	d.DisallowUnknownFields()
	if err := d.Decode(&next); err != nil {
		return r, fmt.Errorf("skill: a change to a recipe: %w; want an object such as {\"prefill\": {\"merge_post\": true}} or {\"chunk\": 512}", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, errors.New("skill: a change to a recipe: there is something behind the object")
	}
	if err := r.allows(next); err != nil {
		return r, err
	}
	return next, nil
}

// allows reports what no change may change, whoever proposes it: what the deployment is about.
func (r Recipe) allows(next Recipe) error {
	switch {
	case next.SeqLen != r.SeqLen:
		return fmt.Errorf("skill: a change to a recipe: seq_len is %d in this deployment, another one needs another folder", r.SeqLen)
	case (next.Prefill == nil) != (r.Prefill == nil) || (next.Decode == nil) != (r.Decode == nil):
		return errors.New("skill: a change to a recipe: prefill and decode are knobs of an array; they are there on such a device and nowhere else")
	case next.Prefill != nil && next.Chunk != r.Chunk:
		return errors.New("skill: a change to a recipe: chunk is of a device that takes any number of rows; on an array there are lengths")
	}
	return nil
}
