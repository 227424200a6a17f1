package skill

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/oracle"
)

// Errors to be tested for with [errors.Is].
var (
	ErrLocked      = errors.New("skill: another process works on this workspace")
	ErrOtherModel  = errors.New("skill: the workspace is about something else")
	ErrOrder       = errors.New("skill: the phase before has not passed")
	ErrStopped     = errors.New("skill: stopped at the checkpoint behind a phase; run again to go on")
	ErrBudget      = errors.New("skill: Options.Budget is used up: deploy into this folder again to go on")
	ErrBusy        = errors.New("skill: other processes work on this machine, and measured figures cannot be judged")
	ErrClosed      = errors.New("skill: the deployment is used after Close: open the folder again with NewDeployment")
	ErrNoEvaluator = errors.New("skill: there is no evaluator, and the plan stays a draft: set Options.Evaluate")
)

// PhaseError is a phase that did not pass.
type PhaseError struct{ Report PhaseReport }

func (e *PhaseError) Error() string {
	return fmt.Sprintf("skill: phase %s did not pass: %s", e.Report.Phase.Title(), e.Report.Reason)
}

// Deployment turns a checkpoint into a plan that is verified and tuned, phase by phase. Its methods must not be called at the same time.
type Deployment struct {
	opts   Options
	dev    npu.Device
	info   npu.Info
	ws     *workspace
	state  *State
	skills []Skill

	foreseen *checkpoint.Config // of a forecast, which has no checkpoint

	ck     *checkpoint.Checkpoint
	ref    *oracle.Model
	known  *remembered  // of ref
	golden *golden.File // nil without one

	plans    map[string]*plannedRecipe // by hash of the recipe
	live     *liveModel                // the last model that was opened
	beside   *liveModel                // another one, while both are timed
	texts    *material
	recorded *recording // of the present round
	closed   bool
}

// NewDeployment opens a workspace for a checkpoint on a device, and takes up what is there of it. The device must outlive the deployment, which must be closed.
//
// A checkpoint that is not supported is refused with the reason, before anything is written. A workspace of another model, device or target is refused
// ([ErrOtherModel]), and so is one that another process works on ([ErrLocked]). A folder that is no workspace and has files where a deployment writes its own is left alone.
func NewDeployment(path string, dev npu.Device, opts *Options) (*Deployment, error) {
	if dev == nil {
		return nil, errors.New("skill: NewDeployment needs a device")
	}
	d := &Deployment{dev: dev, info: dev.Info(), plans: map[string]*plannedRecipe{}}
	if opts != nil {
		d.opts = *opts
	}
	if err := d.open(path); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func (d *Deployment) open(path string) (err error) {
	if err := d.opts.fill(); err != nil {
		return err
	}
	if d.skills, err = skills(d.opts.Skills); err != nil {
		return err
	}
	if d.ck, err = checkpoint.Open(path); err != nil {
		return subjectError{err: fmt.Errorf("skill: phase %s, gate %s: %w", Reference.Title(), GateArchitecture, err)}
	}
	if d.ref, err = oracle.Open(d.ck); err != nil {
		return subjectError{err: err}
	}
	d.known = &remembered{ref: d.ref}
	subject, err := subjectOf(d.ck, d.info, d.opts.SeqLen)
	if err != nil {
		return subjectError{err: err}
	}
	file, err := goldenOf(d.ck.Path(), d.opts.Golden, subject.Weights)
	if err != nil {
		return err
	}
	if d.golden, err = subject.addGolden(d.ck.Config(), file); err != nil {
		return subjectError{golden: true, err: err}
	}
	var records []Record
	if d.ws, records, err = openWorkspace(d.opts.Dir, d.opts.held); err != nil {
		return err
	}
	if d.state, err = StateOf(records); err != nil {
		return err
	}
	return d.begin(subject)
}

// begin writes the first record, or holds the deployment to it.
func (d *Deployment) begin(subject Subject) error {
	if d.state.Subject == nil {
		if err := d.note(KindDeployment, Reference, subject); err != nil {
			return err
		}
		return d.ws.putJSON(FileThresholds, Thresholds())
	}
	if err := subject.same(*d.state.Subject); err != nil {
		return fmt.Errorf("%w: %s: %w; use another folder", ErrOtherModel, d.opts.Dir, err)
	}
	p, more := d.state.Next()
	if !more {
		p = Evaluation
	}
	if err := d.note(KindResume, p, Resume{PID: os.Getpid(), Device: d.info.Name}); err != nil {
		return err
	}
	return d.documents() // a process that was killed may have left them behind the journal
}

// State is what the journal says. Callers must not change it.
func (d *Deployment) State() *State { return d.state }

// Config is the model's architecture.
func (d *Deployment) Config() *checkpoint.Config {
	if d.foreseen != nil {
		return d.foreseen
	}
	return d.ck.Config()
}

// errForeseen is for what a forecast cannot do.
var errForeseen = errors.New("skill: a forecast has no checkpoint and no device, and writes nothing")

// note writes a record and takes it into the state.
func (d *Deployment) note(kind Kind, p Phase, data any) error {
	if d.foreseen != nil {
		return errForeseen
	}
	if d.closed {
		return ErrClosed
	}
	r, err := d.ws.journal.append(d.ws.now(), kind, p, data)
	if err != nil {
		return storageError{err}
	}
	return d.state.add(r)
}

// storageError is an error of the workspace: no skill can mend it.
type storageError struct{ error }

func (e storageError) Unwrap() error { return e.error }

func (d *Deployment) observe(e Event) {
	if d.opts.Observe != nil {
		d.opts.Observe(e)
	}
}

// Run runs all phases that have not passed. It returns nil when all have, or when only the evaluation is left and there is no evaluator; a [*PhaseError] when one
// failed; [ErrStopped] when the user stopped; [ErrBudget] when the time was used up, with the phase left running; what kept the evaluator from a verdict, such as [ErrBusy], which leaves the plan as it was.
func (d *Deployment) Run(ctx context.Context) error {
	if d.opts.Budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, d.opts.Budget, ErrBudget)
		defer cancel()
	}
	err := d.runAll(ctx)
	var failed *PhaseError
	switch {
	case err == nil, !errors.Is(context.Cause(ctx), ErrBudget):
	case errors.As(err, &failed), errors.Is(err, ErrStopped), isStorage(err): // which would have come anyway
	default: // whatever was in progress says that it was cancelled
		err = fmt.Errorf("%w (%w)", ErrBudget, context.DeadlineExceeded)
	}
	return err
}

// runAll runs what is left.
func (d *Deployment) runAll(ctx context.Context) error {
	if d.closed {
		return ErrClosed
	}
	if err := d.measureFirst(); err != nil {
		return err
	}
	for {
		if err := d.checkpoint(ctx); err != nil {
			return err
		}
		p, more := d.state.Next()
		if !more || p == Evaluation && d.opts.Evaluate == nil {
			return d.documents()
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

// measureFirst goes back to where figures are taken, when they are all that an evaluator has refused: it would refuse the same ones again.
func (d *Deployment) measureFirst() error {
	r := d.state.Evaluation
	if d.state.Phases[Evaluation].Status != Failed || r == nil || r.Plan != d.state.Plan {
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
	return d.decide(Evaluation, Decision{Action: Redirect, Phase: Finalise, Note: "the evaluator did not find the figures again: measure again"})
}

// checkpoint asks the user about the last phase that has passed, once.
func (d *Deployment) checkpoint(ctx context.Context) error {
	p, more := d.state.Next()
	if !more || p == Reference || d.state.Phases[p-1].approved || d.state.Phases[p].Status == Running {
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
		return errors.Join(ErrStopped, d.documents())
	}
	return nil
}

// PhaseRun is one phase of a deployment.
type PhaseRun struct {
	d *Deployment
	p Phase
}

// Phase is a phase, to be run by itself.
func (d *Deployment) Phase(p Phase) PhaseRun { return PhaseRun{d, p} }

// Run runs the phase, again if it has passed before; every phase behind it then counts no more. The phase before must have passed ([ErrOrder]). A phase that does not pass
// is a [*PhaseError] beside its report.
func (r PhaseRun) Run(ctx context.Context) (PhaseReport, error) {
	if !r.p.valid() {
		return PhaseReport{}, fmt.Errorf("skill: there is no phase %d", int(r.p))
	}
	report, err := r.d.runPhase(ctx, r.p)
	if err == nil && !report.Passed {
		err = &PhaseError{report}
	}
	return report, err
}

// report sums up a phase. Its notes are the issues of the present attempt, such as an agent that could not be started.
func (d *Deployment) report(p Phase) PhaseReport {
	s := d.state.Phases[p]
	r := PhaseReport{Phase: p, Passed: s.Status == Passed, Reason: s.Reason, Gates: s.Gates, Seconds: s.Seconds}
	for _, i := range d.state.Issues {
		if i.Phase == p && i.Seq > s.since {
			r.Notes = append(r.Notes, fmt.Sprintf("%s: %s (%s)", i.Value.Cause, i.Value.Symptom, i.Value.Status))
		}
	}
	return r
}

// skill finds a skill by name, or is nil.
func (d *Deployment) skill(name string) Skill {
	for _, s := range d.skills {
		if s.Name() == name {
			return s
		}
	}
	return nil
}

// Close gives up the workspace: what is asked to run or to be noted from then on gives [ErrClosed]. Closing again does nothing.
func (d *Deployment) Close() error {
	if d.closed {
		return nil
	}
	d.closed = true
	var errs []error
	errs = append(errs, (&Env{d: d}).closeModel())
	if d.ws != nil {
		errs = append(errs, d.ws.close())
	}
	if d.ck != nil {
		errs = append(errs, d.ck.Close())
	}
	return errors.Join(errs...)
}

// plannedRecipe is a recipe's plan.
type plannedRecipe struct {
	plan *plan.Plan
	hash string
	err  error
}
