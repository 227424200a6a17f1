package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/npukit/npukit/skill"
	"github.com/npukit/npukit/skill/internal/journal"
)

// Arguments of the tools. The schema refuses other fields, so there is no place for a verdict.
type (
	stateArgs struct{}
	phaseArgs struct {
		Phase  skill.Phase `json:"phase" jsonschema:"the next phase"`
		Answer string      `json:"answer,omitempty" jsonschema:"direction to take if the phase asks; else it stops"`
	}
	gateArgs struct {
		Phase *skill.Phase `json:"phase,omitempty" jsonschema:"the gate's phase; default the next phase"`
		Gate  string       `json:"gate" jsonschema:"name of the gate; an unknown name returns the list of gates"`
	}
	diagnoseArgs struct {
		Phase *skill.Phase `json:"phase,omitempty" jsonschema:"the phase to look at; default the next phase"`
		Gate  string       `json:"gate,omitempty" jsonschema:"name of the gate; default the one that has failed"`
	}
	changeArgs struct {
		Name   string         `json:"name" jsonschema:"a short name of the change, for the trajectory"`
		Change map[string]any `json:"change" jsonschema:"fields of the recipe: {\"prefill\": {\"lm_rows\": \"last\"}}"`
	}
	reportArgs struct {
		Name   string `json:"name,omitempty" jsonschema:"file in the workspace; default the list of files"`
		Offset int64  `json:"offset,omitempty" jsonschema:"bytes to skip: next of the previous result"`
	}
	approveArgs struct {
		Action skill.Action `json:"action" jsonschema:"approve the phase, redirect to an earlier phase, or stop"`
		Phase  *skill.Phase `json:"phase,omitempty" jsonschema:"the phase of a redirect"`
		Skill  string       `json:"skill,omitempty" jsonschema:"a skill that a redirect runs first"`
		Note   string       `json:"note,omitempty" jsonschema:"why, for the journal"`
	}
)

// maxNote bounds the text that a call can add to the journal.
const maxNote = 2000

func (s *Server) addTools() {
	no := false
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no}
	works := &sdk.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no}
	decides := &sdk.ToolAnnotations{OpenWorldHint: &no} // destructive: phases may have to pass again
	add(s, "state", "Return the state of the deployment: phases, last gates, open problems, an open question, and the "+
		"calls that are possible next. Call it first.", reads, s.state)
	add(s, "run_phase", "Run the next phase to its verdict: its skill works, its gates decide, and debug "+
		"skills look for "+
		"the cause if one fails. Takes seconds to hours and sends progress; if cancelled, the phase resumes "+
		"when it is "+
		"run again.", works, s.runPhase)
	add(s, "run_gate", "Run a gate on the current plan. Nothing is recorded: a phase counts only the gates "+
		"that it runs "+
		"itself.", works, s.runGate)
	add(s, "diagnose", "Run a gate. If it fails, find the first op that is wrong although its inputs are "+
		"right, the usual "+
		"cause, and the skills that know it. Changes nothing.", works, s.diagnose)
	add(s, "propose_plan_change", "Try a change to the plan in the next phase, if it is an optimisation phase. "+
		"The change "+
		"is kept if the gates pass and the plan is faster beyond noise; otherwise it is recorded as rejected.", works,
		s.propose)
	add(s, "read_report", "Read a file of the workspace: pages (progress.md, issues.md, ...), reports of "+
		"gates, figures, "+
		"the journal. Without a name, list the files.", reads, s.readReport)
	add(s, "approve", "Answer the report of a phase: approve it if it has passed, redirect to an earlier "+
		"phase, or stop. "+
		"Ask your user before you call it.", decides, s.approve)
}

// add adds a tool whose arguments are a struct. Phases and actions are enumerations.
func add[In any](s *Server, name, what string, hints *sdk.ToolAnnotations,
	do func(context.Context, *sdk.CallToolRequest, In) (any, error)) {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		panic(err) // the types are in this file
	}
	var phases []any
	for _, p := range skill.Phases() {
		phases = append(phases, p.String())
	}
	for field, values := range map[string][]any{"phase": phases, "action": {string(skill.Approve),
		string(skill.Redirect), string(skill.Stop)}} {
		if p := schema.Properties[field]; p != nil {
			*p = jsonschema.Schema{Type: "string", Enum: values, Description: p.Description}
		}
	}
	sdk.AddTool(s.mcp, &sdk.Tool{Name: name, Description: what, Annotations: hints, InputSchema: schema},
		func(ctx context.Context, req *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
			out, err := do(ctx, req, in)
			return nil, out, err
		})
}

// Bounds for clients that read progress slowly. They miss events.
const (
	progressQueue = 64
	progressFlush = 100 * time.Millisecond // for the last events
)

// progress returns a function that sends events to a client that asked for progress, until stop.
func progress(ctx context.Context, req *sdk.CallToolRequest) (watch func(skill.Event), stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return nil, func() {}
	}
	events, flushed := make(chan skill.Event, progressQueue), make(chan struct{})
	go func() {
		defer close(flushed)
		sent := 0.0
		for e := range events {
			sent++
			params := &sdk.ProgressNotificationParams{ProgressToken: token, Progress: sent,
				Message: fmt.Sprintf("%s: %s", e.Phase, e.Text)}
			if req.Session.NotifyProgress(ctx, params) != nil {
				return // the client is gone, or has cancelled
			}
		}
	}()
	watch = func(e skill.Event) {
		select {
		case events <- e:
		default:
		}
	}
	return watch, func() {
		close(events)
		select {
		case <-flushed:
		case <-time.After(progressFlush):
		}
	}
}

func (s *Server) state(context.Context, *sdk.CallToolRequest, stateArgs) (any, error) {
	return s.view()
}

// phaseResult is the result of run_phase.
type phaseResult struct {
	Report   skill.PhaseReport   `json:"report"`
	Attempts []attemptView       `json:"attempts,omitempty"` // changes that were tried in it
	Skills   []journal.SkillNote `json:"skills,omitempty"`   // outcomes of debug skills
	State    *deploymentView     `json:"state"`
}

// attemptView is a change that was tried.
type attemptView struct {
	Step    string `json:"step"`
	Outcome string `json:"outcome"`
	Why     string `json:"why"`
}

func (s *Server) runPhase(ctx context.Context, req *sdk.CallToolRequest, in phaseArgs) (any, error) {
	watch, stop := progress(ctx, req)
	defer stop()
	var result phaseResult
	err := s.do(ctx, "run_phase "+in.Phase.String(), watch, func(ctx context.Context) error {
		due, waiting, more := s.d.State().Due()
		switch {
		case !more:
			return errors.New("mcp: all phases have passed; redirect to one to run it again")
		case in.Phase != due:
			return fmt.Errorf("mcp: the next phase is %s, not %s: to go back, call approve with action redirect",
				due, in.Phase)
		case waiting:
			return fmt.Errorf("mcp: %s waits for approval: call approve first", due-1)
		}
		s.answer = in.Answer
		before := s.d.State().Records
		var err error
		result.Report, err = s.d.RunPhase(ctx, due)
		for _, a := range s.d.State().Attempts {
			if a.Seq > before {
				result.Attempts = append(result.Attempts, attemptView{a.Value.Step, a.Value.Outcome, a.Value.Why})
			}
		}
		for _, n := range s.d.State().Skills {
			if n.Seq > before {
				result.Skills = append(result.Skills, n.Value)
			}
		}
		var failed *skill.PhaseError
		if errors.As(err, &failed) {
			return nil // the verdict is in the result
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	result.State, err = s.view()
	return result, err
}

// phaseOr returns the phase that was asked for, or the next one.
func (s *Server) phaseOr(p *skill.Phase) skill.Phase {
	if p != nil {
		return *p
	}
	due, _, more := s.d.State().Due()
	if !more {
		return skill.Finalise // the last phase with gates of the model
	}
	return due
}

func (s *Server) runGate(ctx context.Context, req *sdk.CallToolRequest, in gateArgs) (any, error) {
	watch, stop := progress(ctx, req)
	defer stop()
	var result skill.GateResult
	err := s.do(ctx, "run_gate "+in.Gate, watch, func(ctx context.Context) (err error) {
		result, err = s.d.Look(ctx, s.phaseOr(in.Phase), in.Gate)
		return err
	})
	return result, err
}

func (s *Server) diagnose(ctx context.Context, req *sdk.CallToolRequest, in diagnoseArgs) (any, error) {
	watch, stop := progress(ctx, req)
	defer stop()
	var result skill.Diagnosis
	err := s.do(ctx, "diagnose", watch, func(ctx context.Context) (err error) {
		result, err = s.d.Diagnose(ctx, s.phaseOr(in.Phase), in.Gate)
		return err
	})
	return result, err
}

func (s *Server) propose(ctx context.Context, req *sdk.CallToolRequest, in changeArgs) (any, error) {
	if in.Name == "" || len(in.Name) > maxNote {
		return nil, fmt.Errorf("mcp: name has %d characters, want 1 to %d", len(in.Name), maxNote)
	}
	patch, err := json.Marshal(in.Change)
	if err != nil {
		return nil, err
	}
	watch, stop := progress(ctx, req)
	defer stop()
	var result skill.Attempt
	err = s.do(ctx, "propose_plan_change "+in.Name, watch, func(ctx context.Context) (err error) {
		if due, waiting, _ := s.d.State().Due(); waiting {
			return fmt.Errorf("mcp: %s waits for approval: call approve first", due-1)
		}
		result, err = s.d.Propose(ctx, in.Name, patch)
		return err
	})
	return result, err
}

func (s *Server) approve(ctx context.Context, req *sdk.CallToolRequest, in approveArgs) (any, error) {
	if len(in.Note) > maxNote {
		return nil, fmt.Errorf("mcp: note has %d bytes, at most %d are allowed", len(in.Note), maxNote)
	}
	if in.Action == skill.Redirect && in.Phase == nil {
		return nil, errors.New("mcp: a redirect needs a phase")
	}
	decision := skill.Decision{Action: in.Action, Skill: in.Skill, Note: by(req) + in.Note}
	if in.Phase != nil {
		decision.Phase = *in.Phase
	}
	err := s.do(ctx, "approve", nil, func(context.Context) error { return s.d.Decide(decision) })
	if err != nil {
		return nil, err
	}
	return s.view()
}

// by returns the name of the client that decided.
func by(req *sdk.CallToolRequest) string {
	name := "a client"
	if c := req.ClientInfo(); c != nil && c.Name != "" {
		name = fmt.Sprintf("%.60q", c.Name)
	}
	return "over MCP, by " + name + ": "
}
