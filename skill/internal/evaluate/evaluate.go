// Package evaluate re-checks a deployment from scratch. It trusts nothing in the workspace: bounds,
// oracle and gates are those of this program.
package evaluate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	goldenfile "github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
	"github.com/npukit/npukit/skill/internal/report"
	"github.com/npukit/npukit/skill/internal/subject"
	"github.com/npukit/npukit/skill/internal/timing"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// Options are the options of an evaluation, with all defaults filled in.
type Options struct {
	Model       string // path of the checkpoint; "" for the one in the journal
	Golden      string // path of the reference outputs; "" for those in the journal
	Notes       string // folder of the evaluator's notes; "" for none
	Positions   int
	Repetitions int
	Gates       []Gate                             // the user's
	Observe     func(text string, done, total int) // receives progress; may be nil

	Tolerance float64 // of measured figures, for tests; 0 for the bounds of this package
	Written   bool    // for tests: check only the files; the report then does not accept
	Figures   bool    // for tests: check only the files and figures; the report then does not accept
}

// Gate is a gate of the user. Check gets the state that the evaluator has read from the journal,
// and must not change it.
type Gate struct {
	Name   string
	Phases []journal.Phase
	Check  func(ctx context.Context, bench *gates.Bench, claimed *journal.State) (gates.Verdict, error)
}

// undecided begins the errors of an evaluation without a verdict.
const undecided = "skill: evaluation: no verdict: "

// evaluation is an evaluation in progress.
type evaluation struct {
	findings
	dir  string
	dev  npu.Device
	info npu.Info
	opts Options

	records []journal.Record
	state   *journal.State // claimed by the journal

	// Of the checkpoint, which is opened anew.
	opened subject.Opened
	bench  *gates.Bench // on the plan in the workspace
	timer  *timing.Timer
}

// Run evaluates the deployment in dir and writes the report there. Its error has another cause than
// the deployment, such as a file that cannot be read: there is no verdict then.
func Run(ctx context.Context, dir string, dev npu.Device, opts Options) (journal.EvaluationReport, error) {
	started := time.Now()
	v := &evaluation{dir: dir, dev: dev, info: dev.Info(), opts: opts, findings: findings{observe: opts.Observe}}
	if _, err := os.Stat(filepath.Join(dir, journal.FileJournal)); err != nil {
		return journal.EvaluationReport{}, workspace.NoWorkspace(dir, err)
	}
	err := v.run(ctx)
	if ctx.Err() != nil {
		return journal.EvaluationReport{}, ctx.Err()
	}
	if err == nil && v.unread != nil {
		err = fmt.Errorf(undecided+"%w", v.unread)
	}
	if err != nil {
		if !v.refused() {
			return journal.EvaluationReport{}, err
		}
		// A refusal stands, even if the evaluator could not check the rest.
		v.hold("evaluation", false, "not everything could be looked at: %s", strings.TrimPrefix(err.Error(), undecided))
	}
	v.report.Seconds = time.Since(started).Seconds()
	v.report.OK = len(v.report.Checks) > 0 && !v.refused()
	return v.report, v.write()
}

// FileData is the evaluator's report for programs.
const FileData = "evaluation_report.json"

// write writes the report into the workspace, and replaces an older one.
func (v *evaluation) write() error {
	w := workspace.Files(v.dir)
	return errors.Join(w.Put(workspace.FileEvaluation, report.Evaluation(&v.report, v.state, v.info.Name)),
		w.PutJSON(FileData, v.report))
}

// run starts with the cheap checks. Without a journal that can be read there is nothing to check.
func (v *evaluation) run(ctx context.Context) (err error) {
	w := &written{evaluation: v}
	if !w.readJournal() {
		return nil
	}
	v.report.Plan = v.state.Plan
	w.checkPhases()
	w.checkThresholds()
	w.checkPages()
	w.checkPerformance()
	if opened, err := v.openModel(); !opened || err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.close()) }()
	if !w.checkPlan() {
		return nil
	}
	if v.opts.Written {
		if v.unread == nil {
			v.hold("computed", false, "nothing was computed")
		}
		return nil
	}
	if v.opts.Figures {
		if err := (&figures{v}).check(ctx); err != nil {
			return err
		}
		v.hold("computed", false, "only the figures were computed")
		return nil
	}
	v.startNotes()
	defer func() {
		if v.notes != nil {
			err = errors.Join(err, v.notes.close(err == nil && ctx.Err() == nil))
		}
	}()
	if err := v.runGates(ctx); err != nil {
		return err
	}
	// Neither controls nor figures change a refusal, and a busy machine must not hide it.
	if v.refused() || v.unread != nil {
		return nil
	}
	if err := (&controls{v}).run(ctx); err != nil {
		return err
	}
	if v.refused() {
		return nil
	}
	return (&figures{v}).check(ctx)
}

func (v *evaluation) close() error {
	var errs []error
	if v.bench != nil {
		errs = append(errs, v.bench.Models.Close())
	}
	return errors.Join(append(errs, v.opened.Checkpoint.Close())...)
}

// openModel opens the checkpoint and compares it with the journal's subject. A checkpoint that
// cannot be read where the journal has it was changed. One that does not exist, or that was named
// wrongly, is an error, since it is no evidence about the deployment.
func (v *evaluation) openModel() (bool, error) {
	was := v.state.Subject
	path, golden := subject.Paths(*was, v.opts.Model, v.opts.Golden)
	v.step("reading %s", path)
	o, err := subject.Open(path, v.info, was.SeqLen, golden)
	if err != nil {
		if o.Checkpoint != nil {
			err = errors.Join(err, o.Checkpoint.Close())
		}
		return false, v.cannotOpen(err, path, golden)
	}
	v.opened = o
	s := o.Subject
	v.report.Reference = s.Reference()
	if s.Config != was.Config && v.opts.Model != "" {
		err := fmt.Errorf(undecided+"%s is %s, and the deployment is about %s: name that model", path, s.Shape(),
			was.Shape())
		return false, errors.Join(err, v.close())
	}
	v.hold("model", s.Config == was.Config && s.SeqLen == was.SeqLen, "%s is what the journal is about: %+v", path,
		was.Config)
	v.hold("weights", s.Weights == was.Weights, "SHA-256 of all tensors is %.16s, the journal's %.16s", s.Weights,
		was.Weights)
	v.hold("device", s.Device == was.Device && s.Array == was.Array, "it runs on %s, the deployment was for %s",
		s.Device, was.Device)
	if s.Golden == "" && was.Golden == "" {
		v.hold("golden", true, "%s", s.Reference())
	} else {
		v.hold("golden", s.GoldenSum == was.GoldenSum, "SHA-256 of %q is %.16s, the journal's of %q %.16s",
			s.Golden, s.GoldenSum, was.Golden, was.GoldenSum)
	}
	m := models.New(o.Checkpoint, v.dev, v.step)
	v.bench = &gates.Bench{Reference: gates.NewReference(o.Oracle, o.Golden, v.opts.Positions), Models: m,
		Recipe: v.state.Recipe.Clone()}
	nothing, err := journal.Fold(nil)
	if err != nil {
		return false, err
	}
	v.timer = &timing.Timer{
		Models: m, Log: journal.Discard(nothing), Step: v.step, Repetitions: v.opts.Repetitions,
		NoteEvery: timing.NoteEvery,
		IDs:       func(ctx context.Context) ([]int32, error) { return v.bench.IDs(ctx) },
	}
	return true, nil
}

// cannotOpen adds a check that fails because the checkpoint or its golden file cannot be opened, or
// returns an error if that is no evidence about the deployment.
func (v *evaluation) cannotOpen(err error, path, golden string) error {
	was := v.state.Subject
	var bad subject.Error
	named := v.opts.Model
	if errors.As(err, &bad) && bad.Golden {
		path, named = golden, v.opts.Golden
		if g, unread := goldenfile.Read(golden); unread == nil { // a golden file, and not of this model
			v.hold("golden", false, "%v; its SHA-256 is %.16s, the journal's of %q %.16s", err, g.Sum, was.Golden,
				was.GoldenSum)
			return nil
		}
	}
	switch {
	case bad.Err == nil:
		return fmt.Errorf(undecided+"%w", err)
	case named != "" || cannotWork(err):
		return fmt.Errorf(undecided+"%w; name the model and its golden file where they are now", err)
	}
	v.hold("model", false, "%s cannot be read: %v", path, err)
	return nil
}

// runGates runs every gate again: those of the model and of the reference, those of the plan's
// kernels, and those of the plan.
func (v *evaluation) runGates(ctx context.Context) error {
	kernels, err := gates.OfKernels(v.bench)
	if err != nil {
		v.hold("gates", false, "those of phase %s cannot be made: %v", journal.KernelValidation, err)
		return nil
	}
	list := gates.OfReference(v.bench)
	for _, g := range v.opts.Gates {
		list = append(list, gates.Gate{Name: g.Name,
			Run: func(ctx context.Context, bench *gates.Bench) (gates.Verdict, error) {
				return g.Check(ctx, bench, v.state)
			}})
	}
	list = slices.Concat(list, gates.OfBlock(), kernels, gates.OfModel(v.bench))
	for i, g := range list {
		run := func() (int, error) { return 0, v.runGate(ctx, g, i, len(list)) }
		if _, err := v.once("gate "+g.Name+" "+g.Subject, run); err != nil {
			return err
		}
	}
	return nil
}

// runGate runs a gate, the i-th of n.
func (v *evaluation) runGate(ctx context.Context, g gates.Gate, i, n int) error {
	v.step("gate %s", g.Name)
	v.done, v.total = i, n
	verdict, err := g.Check(ctx, v.bench)
	v.done, v.total = 0, 0
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return v.cannot(err, "gate "+g.Name, "it cannot be run")
	}
	r := journal.GateResult{Name: g.Name}
	gates.Judge(&r, verdict)
	text := r.Summary
	for _, why := range r.Reasons {
		text += "; " + why.Text
	}
	v.hold("gate "+g.Name, r.OK, "%s", text)
	if !journal.IsKernelGate(g.Name) {
		v.compareResult(r)
	}
	return nil
}

// resultFactor is by which factor two runs of the same gate may differ in how far the device is
// off. Kernels that sum in another order change that by some percent, another machine by more.
const resultFactor = 2

// compareResult compares a gate's result with the one that the journal has of it.
func (v *evaluation) compareResult(r journal.GateResult) {
	for _, p := range v.state.Phases[:journal.Evaluation] {
		for _, old := range p.Gates {
			if old.Name != r.Name || old.Subject != v.state.Plan {
				continue
			}
			for _, name := range []string{"kl_mean", "mean_rel_l1", "max_abs"} {
				was, there := old.Figures[name]
				is, here := r.Figures[name]
				// Below a billionth both are rounding of the reference itself.
				if there && here && max(was, is) > 1e-9 && max(was, is) > resultFactor*min(was, is) {
					v.hold("result "+r.Name, false, "phase %s has written %s %.4g, it is %.4g", p.Phase, name, was, is)
					return
				}
			}
		}
	}
}
