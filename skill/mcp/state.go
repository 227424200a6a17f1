package mcp

import (
	"fmt"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/skill"
	"github.com/npukit/npukit/skill/internal/journal"
)

// deploymentView is the result of the tool state.
type deploymentView struct {
	Model      string       `json:"model"`
	Device     string       `json:"device"`
	Workspace  string       `json:"workspace"`
	PlanStatus plan.Status  `json:"plan_status"`
	Reference  string       `json:"reference"` // of the oracle, in a sentence
	Recipe     skill.Recipe `json:"recipe"`    // for propose_plan_change
	Due        string       `json:"due,omitempty"`
	Skill      string       `json:"skill,omitempty"` // of the next phase; a resource skill://NAME
	Waiting    bool         `json:"waiting_for_approval"`
	Phases     []phaseView  `json:"phases"`
	// Gates are those of the last phase in which gates have run.
	Gates    []skill.GateResult `json:"last_gates"`
	Problems []string           `json:"open_problems"`
	Question *skill.Question    `json:"question,omitempty"` // without an answer
	Working  string             `json:"working,omitempty"`  // the call that works
	Next     []nextCall         `json:"next"`
}

// phaseView is the state of a phase.
type phaseView struct {
	Phase    string         `json:"phase"`
	Status   journal.Status `json:"status"`
	Attempts int            `json:"attempts"`
	Seconds  float64        `json:"seconds"`
	Reason   string         `json:"reason,omitempty"`
}

// nextCall is a call that is possible.
type nextCall struct {
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
	Why       string         `json:"why"`
}

// view reads the journal, which is possible while a call works.
func (s *Server) view() (*deploymentView, error) {
	st, err := skill.ReadState(s.dir)
	if err != nil {
		return nil, err
	}
	v := &deploymentView{Model: st.Subject.Name, Device: st.Subject.Device, Workspace: s.dir,
		PlanStatus: st.PlanStatus(), Reference: st.Subject.Reference(), Recipe: st.Recipe, Gates: []skill.GateResult{},
		Problems: []string{}, Next: []nextCall{}}
	for _, p := range st.Phases {
		v.Phases = append(v.Phases, phaseView{p.Phase.String(), p.Status, p.Attempts, p.Seconds, p.Reason})
		if len(p.Gates) > 0 {
			v.Gates = p.Gates
		}
	}
	due, waiting, more := st.Due()
	if more {
		v.Due, v.Skill, v.Waiting = due.String(), due.Info().Skill, waiting
		v.problems(st, due)
	}
	if call, seconds := s.busy(); call != "" {
		v.Working = fmt.Sprintf("%s, for %.0f s", call, seconds)
		return v, nil // no other call is possible now
	}
	v.next(st, due, more, s.evaluate)
	return v, nil
}

// problems adds the open problems of the next phase.
func (v *deploymentView) problems(st *skill.State, due skill.Phase) {
	p := st.Phases[due]
	if p.Status == journal.Failed {
		v.Problems = append(v.Problems, fmt.Sprintf("%s did not pass: %s", due, p.Reason))
		if n := len(st.Questions); n > 0 && st.Questions[n-1].Phase == due {
			v.Question = &st.Questions[n-1].Value
		}
	}
	for _, i := range st.Issues {
		if i.Value.Status == "open" {
			v.Problems = append(v.Problems, fmt.Sprintf("%s: %s: %s", i.Phase, i.Value.Cause, i.Value.Evidence))
		}
	}
}

// next adds the calls that are possible.
func (v *deploymentView) next(st *skill.State, due skill.Phase, more, evaluator bool) {
	add := func(tool, why string, arguments map[string]any) {
		v.Next = append(v.Next, nextCall{tool, arguments, why})
	}
	switch {
	case !more:
		add("read_report", "all phases have passed", map[string]any{"name": "performance.md"})
		return
	case v.Waiting:
		add("approve", fmt.Sprintf("%s has passed; look at its gates, then go on to %s", due-1, due),
			map[string]any{"action": skill.Approve})
		add("approve", "go back, if something is not as it should be", map[string]any{"action": skill.Redirect,
			"phase": due - 1})
		return
	case due == skill.Evaluation && !evaluator:
		add("read_report", "what is left is an evaluation by another process: npukit evaluate, with the folder of "+
			"the workspace", map[string]any{"name": "performance.md"})
		return
	}
	if failed := st.Phases[due].Status == journal.Failed; failed {
		add("diagnose", "find out why, before anything is changed", map[string]any{"phase": due})
		if v.Question != nil {
			for _, d := range v.Question.Directions {
				if d.Name != "stop" {
					add("run_phase", "if asked again: "+d.What, map[string]any{"phase": due, "answer": d.Name})
				}
			}
		}
		if due > skill.Reference {
			add("approve", "go back, if the cause lies there", map[string]any{"action": skill.Redirect,
				"phase": due - 1})
		}
	}
	add("run_phase", due.Info().Purpose, map[string]any{"phase": due})
	if due == skill.Prefill || due == skill.Decode {
		add("propose_plan_change", "try a change of your own; it begins the phase, which run_phase ends",
			map[string]any{"name": "...", "change": map[string]any{}})
	}
}
