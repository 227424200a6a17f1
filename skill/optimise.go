package skill

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
)

// Change is a proposal for the plan.
type Change struct {
	Name  string          // must be set: of changes with the same name only the first is tried
	Take  func(r *Recipe) // must be set; what it makes of SeqLen is rejected, as by [Recipe.With]
	Order int             // in which changes are tried; 0 is behind all others
}

// take is the recipe with the change.
func (c Change) take(r Recipe) (Recipe, error) {
	next := r.clone()
	c.Take(&next)
	return next, r.allows(next)
}

// check reports a change that cannot be tried at all.
func (c Change) check() error {
	if c.Name == "" || c.Take == nil {
		return fmt.Errorf("skill: the change %q lacks a Name or a Take: a skill that proposes it must set both", c.Name)
	}
	return nil
}

// Optimiser is a skill that proposes changes in the optimisation phases.
type Optimiser interface {
	Skill
	Changes(env *Env) []Change
}

// changes are the steps of a phase's trajectory, those of all optimisers, in their order. On an array they are the ten of the paper, for prefill and for decode in turn; what the
// runtime does between dispatches belongs to both and is decided first. Elsewhere they are what the plan offers.
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

// optimise tries the phase's changes one after the other, each on top of those kept before. A process that was killed goes on behind the last one that it noted.
func (e *Env) optimise(ctx context.Context) error {
	if _, err := e.Measure(ctx); err != nil {
		return err
	}
	list := e.changes()
	for i, c := range list {
		if slices.ContainsFunc(e.d.state.attempted(e.phase), func(a Attempt) bool { return a.Step == c.Name }) {
			continue
		}
		e.done, e.total = i, len(list)
		if _, err := e.Propose(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// Propose tries a change: the plan is made, the gates are asked, its speed is taken; it is kept when all gates pass and it is faster beyond noise, and forgotten
// otherwise. Both are noted. It is how a plan changes in the optimisation phases, whoever proposes.
func (e *Env) Propose(ctx context.Context, c Change) (Attempt, error) {
	a, err := e.try(ctx, c)
	if err != nil {
		return a, err
	}
	if err := e.note(KindAttempt, a); err != nil {
		return a, err
	}
	if a.Outcome == Kept {
		e.recipe = a.Recipe
		if err := e.d.writePlan(); err != nil {
			return a, err
		}
	}
	e.d.observe(Event{Phase: e.phase, What: EventAttempt, Text: c.Name + ": " + a.Outcome + ", " + a.Why, Done: e.done, Total: e.total})
	return a, nil
}

func (e *Env) try(ctx context.Context, c Change) (Attempt, error) {
	if err := c.check(); err != nil {
		return Attempt{}, err
	}
	e.step("trying: %s", c.Name)
	a := Attempt{Step: c.Name, Outcome: Rejected, Recipe: e.recipe.clone()}
	next, err := c.take(e.recipe)
	if err != nil {
		a.Why = err.Error()
		return a, nil
	}
	a.Recipe = next
	trial := e.with(a.Recipe)
	before, err := e.planHash()
	if err != nil {
		return a, err
	}
	if a.Plan, err = trial.planHash(); err != nil {
		return e.refused(ctx, c, a, "", err)
	}
	if a.Plan == before {
		a.Outcome, a.Why = Skipped, "the plan is the same with it"
		return a, nil
	}
	gates, err := trial.cheapGates()
	if err != nil {
		return a, err
	}
	for _, g := range gates {
		r, err := trial.run(ctx, g)
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
	if err := e.timed(ctx, trial, &a); err != nil {
		return a, err
	}
	if better, why := a.faster(e.phase); better {
		a.Outcome, a.Why = Kept, why
	} else {
		a.Why = why
	}
	return a, nil
}

// timed takes the speed of the plan and of the changed one. What is behind a prediction is left out: the measurements' own records have it.
func (e *Env) timed(ctx context.Context, trial *Env, a *Attempt) error {
	before, after, err := e.compare(ctx, trial)
	before.Estimate, after.Estimate = nil, nil
	if after.Paired != nil {
		a.Turns, after.Paired = after.Paired.of(e.phase), nil
	}
	a.Before, a.After = &before, &after
	return err
}

// faster decides whether an attempt is one to keep, in words too.
func (a *Attempt) faster(p Phase) (bool, string) {
	switch {
	case a.Before == nil || a.After == nil:
		return false, "it was not measured"
	case a.Turns != nil:
		return a.Turns.Faster(), whatOf(p) + " " + a.Turns.String()
	}
	return faster(p, *a.Before, *a.After)
}

// refused is a change whose plan the array or the device does not take. Skills for such failures are asked about the changed plan, to say why.
func (e *Env) refused(ctx context.Context, c Change, a Attempt, gate string, cause error) (Attempt, error) {
	if ctx.Err() != nil {
		return a, cause
	}
	a.Why = cause.Error()
	s := Symptom{Phase: e.phase, Gate: gate, Err: cause, Error: cause.Error(), Recipe: a.Recipe}
	for _, sk := range e.d.skills {
		if !sk.Trigger(s) {
			continue
		}
		trial := e.with(a.Recipe)
		trial.tried = true
		o, err := e.d.ask(ctx, trial, sk, s)
		if err != nil {
			return a, err
		}
		if o.Cause != "" {
			a.Why += "; " + sk.Name() + ": " + o.Cause + "; " + o.Remedy
			return a, e.Issue(Issue{Symptom: c.Name + ": " + cause.Error(), Cause: o.Cause, Workaround: o.Remedy, Evidence: o.Evidence, Status: "worked around"})
		}
	}
	return a, nil
}
