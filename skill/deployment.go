package skill

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
	"github.com/npukit/npukit/skill/internal/report"
	"github.com/npukit/npukit/skill/internal/subject"
	"github.com/npukit/npukit/skill/internal/timing"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// Errors for [errors.Is].
var (
	ErrLocked     = workspace.ErrLocked
	ErrOtherModel = errors.New("skill: the workspace is about something else")
	ErrStopped    = errors.New("skill: stopped at the checkpoint after a phase; run again to go on")
)

var (
	errOrder       = errors.New("skill: the phase before has not passed")
	errBudget      = errors.New("skill: Options.Budget is used up: deploy into this folder again to go on")
	errNoEvaluator = errors.New("skill: there is no evaluator, and the plan stays a draft: set Options.Evaluate")
)

// PhaseError is a phase that did not pass.
type PhaseError struct{ Report PhaseReport }

func (e *PhaseError) Error() string {
	return fmt.Sprintf("skill: phase %s did not pass: %s", e.Report.Phase.Title(), e.Report.Reason)
}

// Deployment turns a checkpoint into a verified and tuned plan, phase by phase. Its methods must
// not be called concurrently.
type Deployment struct {
	opts   Options
	skills []Skill
	ws     *workspace.Workspace

	log       *journal.Log
	models    *models.Models
	reference *gates.Reference
	timer     *timing.Timer

	ck     *checkpoint.Checkpoint
	events reporter
	closed bool
}

// NewDeployment opens a workspace for a checkpoint on a device, and resumes the deployment in it if
// there is one. The device must outlive the deployment, which must be closed.
//
// NewDeployment returns an error with the reason if the checkpoint is not supported, and writes
// nothing then. It returns [ErrOtherModel] if the workspace is about another model, device or
// number of positions, and [ErrLocked] if another process works on it. It does not touch a folder
// that has other files.
func NewDeployment(path string, dev npu.Device, opts *Options) (*Deployment, error) {
	if dev == nil {
		return nil, errors.New("skill: NewDeployment needs a device")
	}
	d := &Deployment{}
	if opts != nil {
		d.opts = *opts
	}
	d.events.to = d.opts.Observe
	if err := d.open(path, dev); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Deployment) open(path string, dev npu.Device) (err error) {
	if err := d.opts.fill(); err != nil {
		return err
	}
	if d.skills, err = skills(d.opts.Skills); err != nil {
		return err
	}
	o, err := subject.Open(path, dev.Info(), d.opts.SeqLen, d.opts.Golden)
	d.ck = o.Checkpoint
	if err != nil {
		return err
	}
	if d.ws, err = workspace.Open(d.opts.Dir, d.opts.held); err != nil {
		return err
	}
	d.log = d.ws.Log
	d.models = models.New(o.Checkpoint, dev, d.events.step)
	d.reference = gates.NewReference(o.Oracle, o.Golden, d.opts.Positions)
	d.timer = &timing.Timer{
		Models: d.models, Log: d.log, Step: d.events.step,
		Repetitions: d.opts.Repetitions, NoteEvery: d.opts.noteEvery(),
		IDs: func(ctx context.Context) ([]int32, error) { return newEnv(d, d.events.phase).bench.IDs(ctx) },
	}
	return d.begin(o.Subject)
}

// begin writes the first record. If there is one, begin returns an error if the deployment is about
// something else.
func (d *Deployment) begin(subject journal.Subject) error {
	if d.log.State.Subject == nil {
		if err := d.log.Append(journal.KindDeployment, Reference, subject); err != nil {
			return err
		}
		return d.ws.PutJSON(workspace.FileThresholds, gates.Thresholds())
	}
	if err := subject.Same(*d.log.State.Subject); err != nil {
		return fmt.Errorf("%w: %s: %w; use another folder", ErrOtherModel, d.opts.Dir, err)
	}
	p, more := d.log.State.Next()
	if !more {
		p = Evaluation
	}
	resume := journal.Resume{PID: os.Getpid(), Device: d.models.Info.Name}
	if err := d.log.Append(journal.KindResume, p, resume); err != nil {
		return err
	}
	return d.writeFiles() // a process that was killed may not have written them
}

// State returns the state of the deployment. Callers must not change it.
func (d *Deployment) State() *State { return d.log.State }

// Run runs all phases that have not passed. It returns nil if all have passed, or if only the
// evaluation is left and there is no evaluator. Otherwise it returns a [*PhaseError] if a phase
// failed, [ErrStopped] if the user stopped it, an error that wraps [context.DeadlineExceeded] if
// Options.Budget was used up, which leaves the phase running, or the reason why there is no verdict,
// such as [ErrBusy], which leaves the plan as it was.
func (d *Deployment) Run(ctx context.Context) error {
	if d.opts.Budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d.opts.Budget, errBudget)
		defer cancel()
	}
	err := d.runAll(ctx)
	var failed *PhaseError
	switch {
	case err == nil, !errors.Is(context.Cause(ctx), errBudget):
	case errors.As(err, &failed), errors.Is(err, ErrStopped), journal.IsStorage(err):
		// These would have come without a budget too.
	default: // the step in progress was cancelled
		err = fmt.Errorf("%w (%w)", errBudget, context.DeadlineExceeded)
	}
	return err
}

func (d *Deployment) runAll(ctx context.Context) error {
	if d.closed {
		return journal.ErrClosed
	}
	if err := d.measureAgain(); err != nil {
		return err
	}
	for {
		if err := d.checkpoint(ctx); err != nil {
			return err
		}
		p, more := d.log.State.Next()
		if !more || p == Evaluation && d.opts.Evaluate == nil {
			return d.writeFiles()
		}
		r, err := d.runPhase(ctx, p)
		if err != nil {
			return err
		}
		if !r.Passed {
			return &PhaseError{r}
		}
	}
}

// measureAgain goes back to the phase that takes the figures if they are all that an evaluator has
// refused: it would refuse the same figures again.
func (d *Deployment) measureAgain() error {
	s := d.log.State
	r := s.Evaluation
	if s.Phases[Evaluation].Status != journal.Failed || r == nil || r.Plan != s.Plan {
		return nil
	}
	figures := false
	for _, c := range r.Checks {
		if !c.OK && c.Name != "figures" && c.Name != "gain" {
			return nil
		}
		figures = figures || !c.OK
	}
	if !figures {
		return nil
	}
	note := "the evaluator did not find the figures again: measure again"
	return d.decide(Evaluation, Decision{Action: Redirect, Phase: Finalise, Note: note})
}

// checkpoint asks the user about the last phase that has passed, once.
func (d *Deployment) checkpoint(ctx context.Context) error {
	s := d.log.State
	p, more := s.Next()
	if !more || p == Reference || s.Phases[p-1].Approved || s.Phases[p].Status == journal.Running {
		return nil
	}
	decision := Decision{Action: Approve, Phase: p - 1, Note: "unattended"}
	if d.opts.Approve != nil {
		var err error
		if decision, err = d.opts.Approve(ctx, d.report(p-1)); err != nil {
			return err
		}
	}
	if err := d.decide(p-1, decision); err != nil {
		return err
	}
	if decision.Action == Stop {
		return errors.Join(ErrStopped, d.writeFiles())
	}
	return nil
}

// RunPhase runs one phase, even if it has passed before; all later phases are then pending. It
// returns an error if the phase before has not passed, and a [*PhaseError] with the report if the
// phase does not pass.
func (d *Deployment) RunPhase(ctx context.Context, p Phase) (PhaseReport, error) {
	if !p.Valid() {
		return PhaseReport{}, fmt.Errorf("skill: there is no phase %d", int(p))
	}
	report, err := d.runPhase(ctx, p)
	if err == nil && !report.Passed {
		err = &PhaseError{report}
	}
	return report, err
}

// report sums up a phase. Its notes are the issues of the last attempt, such as an agent that could
// not be started.
func (d *Deployment) report(p Phase) PhaseReport {
	s := d.log.State.Phases[p]
	r := PhaseReport{Phase: p, Passed: s.Status == journal.Passed, Reason: s.Reason, Gates: s.Gates, Seconds: s.Seconds}
	for _, i := range d.log.State.Issues {
		if i.Phase == p && i.Seq > s.Since {
			r.Notes = append(r.Notes, fmt.Sprintf("%s: %s (%s)", i.Value.Cause, i.Value.Symptom, i.Value.Status))
		}
	}
	return r
}

// writeFiles writes all files of the workspace that are derived from the journal.
func (d *Deployment) writeFiles() error {
	s := d.log.State
	if s.Subject == nil {
		return nil
	}
	return report.Write(d.ws, s, d.models.Info.Array != "", d.opts.plain, d.writePlan())
}

// writePlan writes the plan with its status. It writes nothing if there is no workspace, as in an
// evaluation.
func (d *Deployment) writePlan() error {
	s := d.log.State
	if s.Plan == "" || d.ws == nil {
		return nil
	}
	p, err := d.models.Plan(s.Recipe)
	if err != nil {
		return err
	}
	if p.Hash != s.Plan {
		return fmt.Errorf("%w: the plan of the journal (%.12s) is not what its recipe makes (%.12s): was it made "+
			"by another npukit?", journal.ErrJournal, s.Plan, p.Hash)
	}
	plan := *p.Plan
	plan.Status = s.PlanStatus()
	return d.ws.PutJSON(workspace.FilePlan, &plan)
}

// Performance returns the report of the last measurement of the plan.
func (d *Deployment) Performance() (*Performance, error) { return report.PerformanceOf(d.log.State) }

// Close closes the model and the workspace. Later calls that run or record something return an
// error. Close can be called again.
func (d *Deployment) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	var errs []error
	if d.models != nil {
		errs = append(errs, d.models.Close())
	}
	if d.ws != nil {
		errs = append(errs, d.ws.Close())
	}
	if d.ck != nil {
		errs = append(errs, d.ck.Close())
	}
	return errors.Join(errs...)
}
