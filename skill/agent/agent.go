// Package agent lets a command outside of the program work on the steps of a deployment: a language
// model with a script, as a rule. [github.com/npukit/npukit/skill/mcp] is the other way around:
// an agent that drives a deployment.
//
// # Protocol
//
// The command reads one JSON object from its standard input, writes one to its standard output, and
// exits. A task has these fields:
//
//	protocol   "npukit-agent/1"
//	task       "propose", "choose" or "approve"
//	workspace  the deployment's folder, to read in; files written there are overwritten or refused
//	phase      the phase, by its name
//	manual     the SKILL.md of the phase
//	recipe     the recipe of the plan; changes apply to it
//	attempts   propose: the changes so far, each with name, outcome and why
//	question   choose: the failure, with directions
//	report     approve: the phase's report
//
// The reply has these fields, and any other field makes it invalid:
//
//	changes    propose: changes, each with a name and a change such as {"chunk": 512}; none ends the phase
//	           choose: one change, instead of a direction
//	direction  choose: the name of one of the directions
//	decision   approve: action ("approve", "redirect" or "stop"), and phase and skill of a redirect
//	note       for the journal
package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/npukit/npukit/skill"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/manual"
)

// Agent is a command that works on steps of a deployment. Its replies are proposals: its
// changes are tried like any other, gates run on the device, and no claim in a reply is believed.
// An agent that hangs, fails or writes no valid reply is skipped, which the journal records; a
// deployment never fails because of it.
//
//	opts := &skill.Options{Dir: "work"}
//	a := &agent.Agent{Command: []string{"./my-agent"}}
//	a.Use(opts)
//	opts.Approve = a.Approve // only if no person approves the phases
//
// An Agent must be used by one deployment at a time.
type Agent struct {
	Command []string      // program and arguments; it runs with this process's rights and environment
	Dir     string        // the command's working directory; default the workspace
	Timeout time.Duration // for one task; default five minutes
	Rounds  int           // how often it may propose in an optimisation phase; default 3

	options *skill.Options // of the deployment
	repair  *change        // that the repair skill makes next
}

// protocol is the version of tasks and replies.
const protocol = "npukit-agent/1"

// The kinds of tasks.
const (
	taskPropose = "propose"
	taskChoose  = "choose"
	taskApprove = "approve"
)

// task is the input of the command. The package comment describes the fields.
type task struct {
	Protocol  string             `json:"protocol"`
	Task      string             `json:"task"`
	Workspace string             `json:"workspace"`
	Phase     skill.Phase        `json:"phase"`
	Manual    string             `json:"manual"`
	Recipe    *skill.Recipe      `json:"recipe,omitempty"`
	Attempts  []tried            `json:"attempts,omitempty"`
	Question  *skill.Question    `json:"question,omitempty"`
	Report    *skill.PhaseReport `json:"report,omitempty"`
}

// tried is the outcome of a change.
type tried struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"` // skill.Kept, Rejected or Skipped
	Why     string `json:"why"`
}

// reply is the output of the command.
type reply struct {
	Changes   []change        `json:"changes"`
	Direction string          `json:"direction"`
	Decision  *skill.Decision `json:"decision"`
	Note      string          `json:"note"`
}

// change is a proposal.
type change struct {
	Name   string          `json:"name"`
	Change json.RawMessage `json:"change"` // for Recipe.With
}

const (
	defaultTimeout = 5 * time.Minute
	defaultRounds  = 3

	// Bounds of one reply.
	maxChanges = 8
	maxText    = 2000 // bytes of a note
	maxName    = 100  // bytes of a change's name
)

// Use makes the agent part of a deployment's options. It answers the questions about failures that
// no skill knows, unless Options.Ask is set, and proposes changes after the built-in ones in the
// optimisation phases. Options.Dir must be set.
func (a *Agent) Use(o *skill.Options) {
	a.options = o
	if o.Ask == nil {
		o.Ask = a.answer
	}
	for _, s := range skill.BuiltIn() {
		for _, p := range []skill.Phase{skill.Prefill, skill.Decode} {
			if phase, ok := s.(skill.Optimiser); ok && s.Name() == p.Info().Skill {
				o.Skills = append(o.Skills, optimiser{phase, a})
			}
		}
	}
	o.Skills = append(o.Skills, repair{a})
}

// workspace returns the absolute path of the deployment's folder, or "" without a deployment.
func (a *Agent) workspace() (string, error) {
	if a.options == nil || a.options.Dir == "" {
		return "", nil
	}
	return filepath.Abs(a.options.Dir)
}

// ask runs the command on a task about a phase.
func (a *Agent) ask(ctx context.Context, kind string, p skill.Phase, t task) (reply, error) {
	t.Protocol, t.Task, t.Phase = protocol, kind, p
	if m, err := manual.Find(p.Info().Skill); err == nil {
		t.Manual = m.Text
	}
	r, err := a.run(ctx, t)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("agent: %s, task %s: %w", strings.Join(a.Command, " "), kind, err)
	}
	return r, err
}

// answer answers a question. If the reply is not valid, it returns the choice to stop, with the
// reason.
func (a *Agent) answer(ctx context.Context, q skill.Question) (skill.Choice, error) {
	stop := func(why string) (skill.Choice, error) {
		return skill.Choice{Direction: "stop", Note: journal.Clip(why, maxText)}, ctx.Err()
	}
	r, err := a.ask(ctx, taskChoose, q.Phase, task{Question: &q, Recipe: &q.Symptom.Recipe})
	note := journal.Clip("the agent claims: "+r.Note, maxText)
	switch {
	case err != nil:
		return stop(err.Error())
	case len(r.Changes) == 1 && r.Direction == "":
		a.repair = &r.Changes[0]
		return skill.Choice{Direction: repair{}.Name(), Note: note}, nil
	case slices.ContainsFunc(q.Directions, func(d skill.Direction) bool { return d.Name == r.Direction }):
		return skill.Choice{Direction: r.Direction, Note: note}, nil
	}
	return stop(fmt.Sprintf("the agent's reply is neither one of the directions nor one change: direction "+
		"%q, %d changes",
		journal.Clip(r.Direction, maxName), len(r.Changes)))
}

// Approve decides after a phase. It is for Options.Approve, if no person approves the phases. If
// the reply is not valid, Approve returns the decision to stop, with the reason; the deployment can
// be resumed.
func (a *Agent) Approve(ctx context.Context, report skill.PhaseReport) (skill.Decision, error) {
	r, err := a.ask(ctx, taskApprove, report.Phase, task{Report: &report})
	stop := func(why string) (skill.Decision, error) {
		return skill.Decision{Action: skill.Stop, Phase: report.Phase, Note: journal.Clip(why, maxText)}, ctx.Err()
	}
	d := r.Decision
	switch {
	case err != nil:
		return stop(err.Error())
	case d == nil:
		return stop("the agent has not decided")
	case d.Action != skill.Approve && d.Action != skill.Redirect && d.Action != skill.Stop,
		d.Action == skill.Redirect && d.Phase > report.Phase,
		d.Action == skill.Redirect && !a.knows(d.Skill):
		return stop(fmt.Sprintf("the agent's decision is not valid: %q to %s, skill %q",
			journal.Clip(string(d.Action), maxName), d.Phase, journal.Clip(d.Skill, maxName)))
	case d.Action != skill.Redirect:
		d.Skill = "" // which means nothing then
	}
	d.Note = journal.Clip("the agent claims: "+d.Note, maxText)
	return *d, nil
}

// knows reports whether the deployment has a skill of that name, or whether the name is "".
func (a *Agent) knows(name string) bool {
	list := skill.BuiltIn()
	if a.options != nil {
		list = append(list, a.options.Skills...)
	}
	return name == "" || slices.ContainsFunc(list, func(s skill.Skill) bool { return s != nil && s.Name() == name })
}
