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

// Arguments of the tools. A field that is none of these is refused by the schema: there is no place for a verdict.
type (
	stateArgs struct{}
	phaseArgs struct {
		Phase  skill.Phase `json:"phase" jsonschema:"the phase that is due"`
		Answer string      `json:"answer,omitempty" jsonschema:"the direction to take if the phase puts a question, by its name; it stops there otherwise"`
	}
	gateArgs struct {
		Phase *skill.Phase `json:"phase,omitempty" jsonschema:"the phase that the gate belongs to; the one that is due if left out"`
		Gate  string       `json:"gate" jsonschema:"name of the gate; a wrong one is answered with those that there are"`
	}
	diagnoseArgs struct {
		Phase *skill.Phase `json:"phase,omitempty" jsonschema:"the phase to look at; the one that is due if left out"`
		Gate  string       `json:"gate,omitempty" jsonschema:"name of the gate; the one that has failed if left out"`
	}
	changeArgs struct {
		Name   string         `json:"name" jsonschema:"what the change is, in a few words, for the trajectory"`
		Change map[string]any `json:"change" jsonschema:"the fields of the recipe that become others, as in {\"prefill\": {\"merge_post\": true}}; state shows the recipe"`
	}
	reportArgs struct {
		Name   string `json:"name,omitempty" jsonschema:"file in the workspace; the list of files if left out"`
		Offset int64  `json:"offset,omitempty" jsonschema:"bytes to skip, as the answer before says in next"`
	}
	approveArgs struct {
		Action skill.Action `json:"action" jsonschema:"approve goes on behind a phase that has passed; redirect goes back to a phase, whose gates then run again; stop leaves it"`
		Phase  *skill.Phase `json:"phase,omitempty" jsonschema:"of a redirect: where to go on"`
		Skill  string       `json:"skill,omitempty" jsonschema:"of a redirect: a skill that runs first there"`
		Note   string       `json:"note,omitempty" jsonschema:"why, for the journal"`
	}
)

// maxNote bounds what a client may leave in the journal with one call.
const maxNote = 2000

func (s *Server) addTools() {
	no := false
	reads := &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no}
	works := &sdk.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no}
	decides := &sdk.ToolAnnotations{OpenWorldHint: &no} // destructive: what was passed may have to pass again
	add(s, "state", "Where the deployment stands: phases, last gates, open problems, the question that waits, and the calls that are possible next. nextCall it first.", reads, s.state)
	add(s, "run_phase", "Run the phase that is due, to its verdict: its skill works, its gates decide, and debug skills are asked where one fails. Takes seconds to hours; "+
		"sends progress; a cancelled run goes on when it is run again.", works, s.runPhase)
	add(s, "run_gate", "Look at what a gate says to the plan as it is. Nothing follows from it: only gates that a phase runs itself count for it.", works, s.runGate)
	add(s, "diagnose", "Run a gate and, where it fails, find the first op that is wrong from right inputs, what usually causes that, and which skills know it. Changes nothing.",
		works, s.diagnose)
	add(s, "propose_plan_change", "Try a change to the plan in the optimisation phase that is due: the gates are asked, its speed is taken, and it is kept if they pass and it is "+
		"faster beyond noise. Otherwise it is forgotten, and noted as rejected.", works, s.propose)
	add(s, "read_report", "Read a file of the workspace: pages (progress.md, issues.md, ...), reports of gates, figures, the journal. Without a name it lists them.", reads, s.readReport)
	add(s, "approve", "Decide behind a phase: approve, to go on from one that has passed; redirect, to go back; stop. Ask your user before you call it.", decides, s.approve)
}

// add adds a tool whose arguments are a struct. Phases and actions are names from a list.
func add[In any](s *Server, name, what string, hints *sdk.ToolAnnotations, do func(context.Context, *sdk.CallToolRequest, In) (any, error)) {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		panic(err) // of a type of this file
	}
	var phases []any
	for _, p := range skill.Phases() {
		phases = append(phases, p.String())
	}
	for field, values := range map[string][]any{"phase": phases, "action": {string(skill.Approve), string(skill.Redirect), string(skill.Stop)}} {
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

// Bounds of what is kept for a client that reads slowly: it misses events then, and the work goes on.
const (
	progressQueue = 64
	progressFlush = 100 * time.Millisecond // for the last events, when the work has ended
)

// progress sends events to the client of a call that wants them, until stop.
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
			params := &sdk.ProgressNotificationParams{ProgressToken: token, Progress: sent, Message: fmt.Sprintf("%s: %s", e.Phase, e.Text)}
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

// phaseResult is what run_phase gives.
type phaseResult struct {
	Report   skill.PhaseReport   `json:"report"`
	Attempts []attemptView       `json:"attempts,omitempty"` // changes that were tried in it
	Skills   []journal.SkillNote `json:"skills,omitempty"`   // debug skills that were asked, with their hypotheses
	State    *deploymentView     `json:"state"`
}

// attemptView is a change in a line.
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
			return fmt.Errorf("mcp: %s is due, and not %s: phases run in order; go back with approve, action redirect", due, in.Phase)
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
			return nil // a verdict is a result
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	result.State, err = s.view()
	return result, err
}

// phaseOr is the phase that was asked for, or the one that is due.
func (s *Server) phaseOr(p *skill.Phase) skill.Phase {
	if p != nil {
		return *p
	}
	due, _, more := s.d.State().Due()
	if !more {
		return skill.Finalise // the last one whose gates look at the model
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
		p := s.phaseOr(in.Phase)
		gate := in.Gate
		if gate == "" {
			if gate, err = s.failing(p); err != nil {
				return err
			}
		}
		result, err = s.d.Diagnose(ctx, p, gate)
		return err
	})
	return result, err
}

// failing is the gate of a phase that has failed, or else its last one.
func (s *Server) failing(p skill.Phase) (string, error) {
	for _, g := range s.d.State().Phases[p].Gates {
		if !g.OK {
			return g.Name, nil
		}
	}
	names, err := s.d.GatesOf(p)
	if err != nil {
		return "", err
	}
	return names[len(names)-1], nil
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
		return nil, fmt.Errorf("mcp: note has %d bytes, %d at most are kept", len(in.Note), maxNote)
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

// by says which client decided.
func by(req *sdk.CallToolRequest) string {
	name := "a client"
	if c := req.ClientInfo(); c != nil && c.Name != "" {
		name = fmt.Sprintf("%.60q", c.Name)
	}
	return "over MCP, by " + name + ": "
}
