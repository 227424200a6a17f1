package skill

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/timing"
)

// Change is a proposal for the plan.
type Change struct {
	Name  string          // must be set; of changes with the same name only the first is tried
	Take  func(r *Recipe) // must be set, and must not change SeqLen
	Order int             // changes are tried in this order; 0 is after all others

	// Published is set if the change leads to the form of published programs. It is kept unless it
	// is slower; other changes must be faster.
	Published bool
}

// take returns the recipe with the change.
func (c Change) take(r Recipe) (Recipe, error) {
	next := r.Clone()
	c.Take(&next)
	return next, r.Allows(next)
}

// check returns an error if the change cannot be tried.
func (c Change) check() error {
	if c.Name == "" || c.Take == nil {
		return fmt.Errorf("skill: the change %q lacks a Name or a Take: a skill that proposes it must set both", c.Name)
	}
	return nil
}

// Optimiser is a skill that proposes changes in the optimisation phases.
type Optimiser interface {
	Skill
	// Changes returns changes to the environment's plan in its phase.
	Changes(env *Env) []Change
}

// changes returns the changes of all optimisers for the phase, in their order. On an array they are
// the ten of the paper, for prefill and for decode; the knobs of the runtime
// apply to both and are decided first. Elsewhere they are the options of the plan.
func (e *Env) changes() []Change {
	var list []Change
	for _, s := range e.d.skills {
		if o, ok := s.(Optimiser); ok {
			list = append(list, o.Changes(e)...)
		}
	}
	slices.SortStableFunc(list, func(a, b Change) int { return cmp.Compare(rank(a), rank(b)) })
	return list
}

func rank(c Change) int {
	if c.Order == 0 {
		return math.MaxInt
	}
	return c.Order
}

// optimise tries the phase's changes one after the other, each on top of those kept before. It does
// not repeat changes that this attempt at the phase has tried, as in a process that was killed.
func (e *Env) optimise(ctx context.Context) error {
	if _, err := e.d.timer.Measure(ctx, e.Phase, e.bench.Recipe); err != nil {
		return err
	}
	list := e.changes()
	for i, c := range list {
		if slices.ContainsFunc(e.State.Attempted(e.Phase), func(a Attempt) bool { return a.Step == c.Name }) {
			continue
		}
		e.d.events.done, e.d.events.total = i, len(list)
		if _, err := e.Propose(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// Propose tries a change: it makes the plan, runs the gates and takes the speed. The change is kept
// if all gates pass and the plan is faster beyond noise; both outcomes are recorded. All changes of
// the plan in the optimisation phases are made by Propose.
func (e *Env) Propose(ctx context.Context, c Change) (Attempt, error) {
	a, err := e.try(ctx, c)
	if err != nil {
		return a, err
	}
	if err := e.note(journal.KindAttempt, a); err != nil {
		return a, err
	}
	if a.Outcome == Kept {
		e.bench = e.bench.With(a.Recipe)
		if err := e.d.writePlan(); err != nil {
			return a, err
		}
	}
	text := c.Name + ": " + a.Outcome + ", " + a.Why
	events := &e.d.events
	events.send(Event{Phase: e.Phase, What: eventAttempt, Text: text, Done: events.done, Total: events.total})
	return a, nil
}

func (e *Env) try(ctx context.Context, c Change) (Attempt, error) {
	if err := c.check(); err != nil {
		return Attempt{}, err
	}
	e.Step("trying: %s", c.Name)
	a := Attempt{Step: c.Name, Outcome: Rejected, Recipe: e.Recipe(), Published: c.Published}
	next, err := c.take(e.bench.Recipe)
	if err != nil {
		a.Why = err.Error()
		return a, nil
	}
	a.Recipe = next
	trial := e.with(a.Recipe)
	before, err := e.bench.PlanHash()
	if err != nil {
		return a, err
	}
	if a.Plan, err = trial.bench.PlanHash(); err != nil {
		return e.refused(ctx, c, a, "", err)
	}
	if a.Plan == before {
		a.Outcome, a.Why = Skipped, "the plan is the same with it"
		return a, nil
	}
	list, err := gates.Cheap(trial.bench)
	if err != nil {
		return a, err
	}
	for _, g := range list {
		r, err := trial.runGate(ctx, g)
		if isRefusal(err) || isDeviceFailure(err) {
			return e.refused(ctx, c, a, g.Name, err)
		}
		if err != nil {
			return a, err
		}
		if a.Gates = append(a.Gates, r.Key()); !r.OK {
			a.Why = "gate " + g.Name + " fails: " + r.Summary
			return a, nil
		}
	}
	if err := timeAttempt(ctx, e, trial, &a); err != nil {
		return a, err
	}
	if better, why := timing.Faster(&a, e.Phase); better {
		a.Outcome, a.Why = Kept, why
	} else {
		a.Why = why
	}
	return a, nil
}

// timeAttempt takes the speed of the plan and of the changed one. It leaves out the estimates,
// which the measurements' own records have.
func timeAttempt(ctx context.Context, e, trial *Env, a *Attempt) error {
	before, after, err := e.d.timer.Compare(ctx, e.Phase, e.bench.Recipe, trial.bench.Recipe)
	before.Estimate, after.Estimate = nil, nil
	if after.Paired != nil {
		other := Prefill
		if e.Phase == Prefill {
			other = Decode
		}
		a.Turns, a.OtherTurns, after.Paired = after.Paired.Of(e.Phase), after.Paired.Of(other), nil
	}
	a.Before, a.After = &before, &after
	return err
}

// refused finishes an attempt whose plan the array or the device does not take. The skills that
// know such a failure are asked about the changed plan, for the reason.
func (e *Env) refused(ctx context.Context, c Change, a Attempt, gate string, cause error) (Attempt, error) {
	if ctx.Err() != nil {
		return a, cause
	}
	a.Why = cause.Error()
	s := Symptom{Phase: e.Phase, Gate: gate, Err: cause, Error: cause.Error(), Recipe: a.Recipe}
	for _, sk := range e.d.skills {
		if !sk.Trigger(s) {
			continue
		}
		trial := e.with(a.Recipe)
		trial.tried = true
		o, err := trial.ask(ctx, sk, s)
		if err != nil {
			return a, err
		}
		if o.Cause != "" {
			a.Why += "; " + sk.Name() + ": " + o.Cause + "; " + o.Remedy
			return a, e.Issue(Issue{Symptom: c.Name + ": " + cause.Error(), Cause: o.Cause, Workaround: o.Remedy,
				Evidence: o.Evidence, Status: "worked around"})
		}
	}
	return a, nil
}
