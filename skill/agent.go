package skill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Agent is a command outside of this program, a language model behind a script as a rule, that works on steps of a deployment. It gets an [AgentTask] as JSON on its
// stdin, answers with an [AgentReply] on its stdout, and exits. What it says is a proposal: changes to the plan are tried like any other, gates ask the device, and
// nothing in a reply is believed. An agent that hangs, fails or answers nonsense is left out, which the journal says; a deployment never fails by it.
//
//	opts := &skill.Options{Dir: "work"}
//	agent := &skill.Agent{Command: []string{"./my-agent"}}
//	agent.Use(opts)
//	opts.Approve = agent.Approve // only if nobody wants to look behind each phase
//
// An Agent serves one deployment at a time.
type Agent struct {
	Command []string      // program and arguments; a relative path is one from here; it runs with this process's rights and environment
	Dir     string        // that it runs in; default the workspace
	Timeout time.Duration // for one task; default five minutes
	Rounds  int           // how often it may propose in an optimisation phase; default 3

	options *Options     // of the deployment
	repair  *AgentChange // that the repair skill is to take
}

// AgentProtocol is the version of tasks and replies.
const AgentProtocol = "npukit-agent/1"

// What an agent is asked to do.
const (
	TaskPropose = "propose" // changes to the plan in an optimisation phase: reply with Changes, or with none to end it
	TaskChoose  = "choose"  // a way on from a failure that no skill knows: reply with Direction, or with one of Changes
	TaskApprove = "approve" // what to do behind a phase that has passed: reply with Decision
)

// AgentTask is what an agent gets.
type AgentTask struct {
	Protocol  string       `json:"protocol"`
	Task      string       `json:"task"`
	Workspace string       `json:"workspace"` // to read in, an absolute path; what is written there is overwritten or refused
	Phase     Phase        `json:"phase"`
	Manual    string       `json:"manual"`             // SKILL.md of the phase
	Recipe    *Recipe      `json:"recipe,omitempty"`   // that changes apply to
	Attempts  []AgentTried `json:"attempts,omitempty"` // in this phase so far
	Question  *Question    `json:"question,omitempty"`
	Report    *PhaseReport `json:"report,omitempty"`
}

// AgentTried is what came of a change.
type AgentTried struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"` // Kept, Rejected or Skipped
	Why     string `json:"why"`
}

// AgentReply is what an agent answers. A field that is none of these makes the reply invalid: there is no place for results.
type AgentReply struct {
	Changes   []AgentChange `json:"changes"`
	Direction string        `json:"direction"`
	Decision  *Decision     `json:"decision"`
	Note      string        `json:"note"` // for the journal, as a claim
}

// AgentChange is a proposal.
type AgentChange struct {
	Name   string          `json:"name"`
	Change json.RawMessage `json:"change"` // as Recipe.With takes it
}

// Bounds of what an agent can make a deployment do, and write.
const (
	agentTimeout = 5 * time.Minute
	agentRounds  = 3
	agentChanges = 8    // of one reply
	agentText    = 2000 // bytes of a note that are kept
	agentName    = 100  // bytes of a change's name
)

// Use makes the agent part of a deployment's options: it is asked about failures that no skill knows, unless somebody else is, and proposes changes when the built-in steps of
// an optimisation phase have been tried. Options.Dir must be set.
func (a *Agent) Use(o *Options) {
	a.options = o
	if o.Ask == nil {
		o.Ask = a.Ask
	}
	o.Skills = append(o.Skills, agentOptimiser{phaseSkill{Prefill}, a}, agentOptimiser{phaseSkill{Decode}, a}, agentRepair{a})
}

// workspace is the deployment's folder, as one finds it from anywhere; "" for an agent that serves none.
func (a *Agent) workspace() (string, error) {
	if a.options == nil || a.options.Dir == "" {
		return "", nil
	}
	return filepath.Abs(a.options.Dir)
}

// task runs the command on a task about a phase.
func (a *Agent) task(ctx context.Context, kind string, p Phase, t AgentTask) (AgentReply, error) {
	t.Protocol, t.Task, t.Phase = AgentProtocol, kind, p
	if m, err := BuiltInManual(p.Info().Skill); err == nil {
		t.Manual = m.Text
	}
	reply, err := a.run(ctx, t)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("skill: agent %s, task %s: %w", strings.Join(a.Command, " "), kind, err)
	}
	return reply, err
}

// Ask lets the agent answer a question. It is an [AskFunc]. Without a usable answer the deployment stops at the failure.
func (a *Agent) Ask(ctx context.Context, q Question) (Choice, error) {
	stop := func(why string) (Choice, error) {
		return Choice{Direction: "stop", Note: clip(why, agentText)}, ctx.Err()
	}
	reply, err := a.task(ctx, TaskChoose, q.Phase, AgentTask{Question: &q, Recipe: &q.Symptom.Recipe})
	note := clip("the agent claims: "+reply.Note, agentText)
	switch {
	case err != nil:
		return stop(err.Error())
	case len(reply.Changes) == 1 && reply.Direction == "":
		a.repair = &reply.Changes[0]
		return Choice{Direction: agentRepair{}.Name(), Note: note}, nil
	case slices.ContainsFunc(q.Directions, func(d Direction) bool { return d.Name == reply.Direction }):
		return Choice{Direction: reply.Direction, Note: note}, nil
	}
	return stop(fmt.Sprintf("the agent's answer is neither one of the directions nor one change: direction %q, %d changes", clip(reply.Direction, agentName), len(reply.Changes)))
}

// Approve lets the agent decide behind a phase. It is an [ApproveFunc]: set Options.Approve to it where no person looks. Without a usable decision the deployment stops there,
// and can go on.
func (a *Agent) Approve(ctx context.Context, r PhaseReport) (Decision, error) {
	reply, err := a.task(ctx, TaskApprove, r.Phase, AgentTask{Report: &r})
	stop := func(why string) (Decision, error) {
		return Decision{Action: Stop, Phase: r.Phase, Note: clip(why, agentText)}, ctx.Err()
	}
	d := reply.Decision
	switch {
	case err != nil:
		return stop(err.Error())
	case d == nil:
		return stop("the agent has not decided")
	case d.Action != Approve && d.Action != Redirect && d.Action != Stop, d.Action == Redirect && d.Phase > r.Phase, d.Action == Redirect && !a.knows(d.Skill):
		return stop(fmt.Sprintf("the agent's decision cannot be taken: %q to %s, skill %q", clip(string(d.Action), agentName), d.Phase, clip(d.Skill, agentName)))
	case d.Action != Redirect:
		d.Skill = "" // which means nothing there
	}
	d.Note = clip("the agent claims: "+d.Note, agentText)
	return *d, nil
}

// knows reports whether the deployment has a skill of a name; "" names none.
func (a *Agent) knows(name string) bool {
	var more []Skill
	if a.options != nil {
		more = a.options.Skills
	}
	list, err := skills(more)
	return name == "" || err == nil && slices.ContainsFunc(list, func(s Skill) bool { return s.Name() == name })
}

// agentOptimiser is an optimisation phase in which an agent proposes when the built-in steps are done.
type agentOptimiser struct {
	phaseSkill
	agent *Agent
}

func (s agentOptimiser) Run(ctx context.Context, e *Env) (Outcome, error) {
	o, err := s.phaseSkill.Run(ctx, e)
	if err != nil {
		return o, err
	}
	rounds := s.agent.Rounds
	if rounds == 0 {
		rounds = agentRounds
	}
	var tried []AgentTried
	for _, a := range e.State().attempted(e.phase) {
		if tried = append(tried, AgentTried{a.Step, a.Outcome, a.Why}); strings.HasPrefix(a.Step, proposalPrefix) {
			rounds = min(rounds, 1) // a process before this one has asked already
		}
	}
	for range rounds {
		e.step("asking the agent for changes")
		recipe := e.Recipe()
		reply, err := s.agent.task(ctx, TaskPropose, e.phase, AgentTask{Recipe: &recipe, Attempts: tried})
		if ctx.Err() != nil {
			return o, ctx.Err()
		}
		if err != nil {
			return o, e.Issue(Issue{Symptom: clip(err.Error(), agentText), Cause: "the external agent gave no answer that can be used", Workaround: "it is left out", Status: "worked around"})
		}
		if len(reply.Changes) == 0 {
			break
		}
		for _, c := range reply.Changes[:min(len(reply.Changes), agentChanges)] {
			t, err := s.try(ctx, e, c)
			if err != nil {
				return o, err
			}
			tried = append(tried, t)
		}
	}
	return o, nil
}

// try makes a proposal an attempt, where it is one at all.
func (s agentOptimiser) try(ctx context.Context, e *Env, c AgentChange) (AgentTried, error) {
	name := proposalPrefix + clip(c.Name, agentName)
	next, err := e.recipe.With(c.Change)
	if err != nil {
		return AgentTried{name, Rejected, err.Error()}, nil
	}
	a, err := e.Propose(ctx, Change{Name: name, Take: func(r *Recipe) { *r = next }})
	return AgentTried{a.Step, a.Outcome, a.Why}, err
}

// agentRepair takes the change that an agent has answered a question with. It triggers on nothing: only an answer leads here.
type agentRepair struct{ agent *Agent }

func (agentRepair) Name() string         { return "external-agent" }
func (agentRepair) Trigger(Symptom) bool { return false }

func (s agentRepair) Run(_ context.Context, e *Env) (Outcome, error) {
	c := s.agent.repair
	s.agent.repair = nil
	if c == nil {
		return Outcome{}, nil // a redirect of a person: there is nothing to take
	}
	if e.phase >= Finalise {
		return Outcome{Evidence: "the plan does not change in this phase: redirect to one that tries plans"}, nil
	}
	next, err := e.recipe.With(c.Change)
	if err != nil {
		return Outcome{Evidence: err.Error()}, nil
	}
	name := clip(c.Name, agentName)
	switch err := e.SetRecipe(next, proposalPrefix+name); {
	case isStorage(err):
		return Outcome{}, err
	case err != nil: // the plan cannot be made
		return Outcome{Evidence: err.Error()}, nil
	}
	return Outcome{Cause: "the agent claims: " + name, Remedy: "the plan was changed as it proposed: " + e.recipe.Describe(e.symptom.Recipe), Fixed: true}, nil
}

// clip bounds a text of the agent's by bytes, between characters.
func clip(s string, most int) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= most {
		return s
	}
	for most > 0 && s[most]&0xc0 == 0x80 {
		most--
	}
	return s[:most] + "..."
}

// isStorage reports an error of the workspace.
func isStorage(err error) bool {
	var storage storageError
	return errors.As(err, &storage)
}
