package agent

import (
	"context"
	"strings"

	"github.com/npukit/npukit/skill"
	"github.com/npukit/npukit/skill/internal/journal"
)

// optimiser is the skill of an optimisation phase, in which an agent proposes changes after the
// built-in ones.
type optimiser struct {
	skill.Optimiser
	agent *Agent
}

func (s optimiser) Run(ctx context.Context, e *skill.Env) (skill.Outcome, error) {
	o, err := s.Optimiser.Run(ctx, e)
	if err != nil {
		return o, err
	}
	rounds := s.agent.Rounds
	if rounds == 0 {
		rounds = defaultRounds
	}
	var list []tried
	for _, a := range e.State.Attempted(e.Phase) {
		if list = append(list, tried{a.Step, a.Outcome, a.Why}); strings.HasPrefix(a.Step, journal.ProposalPrefix) {
			rounds = min(rounds, 1) // a process before this one has asked already
		}
	}
	for range rounds {
		e.Step("asking the agent for changes")
		recipe := e.Recipe()
		r, err := s.agent.ask(ctx, taskPropose, e.Phase, task{Recipe: &recipe, Attempts: list})
		if ctx.Err() != nil {
			return o, ctx.Err()
		}
		if err != nil {
			return o, e.Issue(skill.Issue{Symptom: journal.Clip(err.Error(), maxText),
				Cause: "the external agent gave no answer that can be used", Workaround: "it is left out",
				Status: "worked around"})
		}
		if len(r.Changes) == 0 {
			break
		}
		for _, c := range r.Changes[:min(len(r.Changes), maxChanges)] {
			t, err := try(ctx, e, c)
			if err != nil {
				return o, err
			}
			list = append(list, t)
		}
	}
	return o, nil
}

// try proposes a change, if it is valid.
func try(ctx context.Context, e *skill.Env, c change) (tried, error) {
	name := journal.ProposalPrefix + journal.Clip(c.Name, maxName)
	next, err := e.Recipe().With(c.Change)
	if err != nil {
		return tried{name, skill.Rejected, err.Error()}, nil
	}
	a, err := e.Propose(ctx, skill.Change{Name: name, Take: func(r *skill.Recipe) { *r = next }})
	return tried{a.Step, a.Outcome, a.Why}, err
}

// repair makes the change that an agent has answered a question with. It has no trigger: only an
// answer leads to it.
type repair struct{ agent *Agent }

func (repair) Name() string               { return "external-agent" }
func (repair) Trigger(skill.Symptom) bool { return false }

func (s repair) Run(_ context.Context, e *skill.Env) (skill.Outcome, error) {
	c := s.agent.repair
	s.agent.repair = nil
	if c == nil {
		return skill.Outcome{}, nil // a person has redirected to this skill
	}
	if e.Phase >= skill.Finalise {
		return skill.Outcome{Evidence: "the plan does not change in this phase: redirect to one that tries plans"}, nil
	}
	next, err := e.Recipe().With(c.Change)
	if err != nil {
		return skill.Outcome{Evidence: err.Error()}, nil
	}
	name := journal.Clip(c.Name, maxName)
	switch err := e.SetRecipe(next, journal.ProposalPrefix+name); {
	case journal.IsStorage(err):
		return skill.Outcome{}, err
	case err != nil: // the plan cannot be made
		return skill.Outcome{Evidence: err.Error()}, nil
	}
	remedy := "the plan was changed as it proposed: " + e.Recipe().Describe(e.Symptom.Recipe)
	return skill.Outcome{Cause: "the agent claims: " + name, Remedy: remedy, Fixed: true}, nil
}
