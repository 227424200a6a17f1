package skill

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	goldenfile "github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/internal/atomicfile"
	"github.com/npukit/npukit/npu"
)

// EvaluateOptions are the choices of an evaluation. The zero value of a field means its default.
type EvaluateOptions struct {
	Model   string      // path of the checkpoint; default the one that the journal names
	Golden  string      // reference outputs of another implementation; default those that the journal names, or where these have moved golden.safetensors beside the model
	Gates   []Gate      // more gates, those of the deployment
	Observe func(Event) // sees progress, on the goroutine that runs; default nobody

	// Notes is a folder of the user's, outside every workspace, where the evaluator keeps authenticated notes of what held so far, so that an evaluation that was killed goes on where it
	// was. Default none: the evaluation begins anew.
	Notes string

	// Positions and Repetitions are those of the deployment. Defaults: as in [Options].
	Positions   int
	Repetitions int

	tolerance float64 // of measured figures; 0 means the bounds of evaluate_figures.go
	written   bool    // look only at what is written, for tests of that: the report is then never an acceptance
}

// Evaluate judges the deployment in a folder as somebody who has never seen it: it believes nothing that is written there. Bounds, oracle and gates are those of this
// program, which is the root of trust.
//
//   - What is written must hold together: the chain of the journal, the gates behind every phase, the plan and its status, thresholds, weights and reference outputs by
//     their sums, figures by the measurement that they come from.
//   - The checkpoint is read again, the oracle computes its references again, and every gate runs again on the plan as it lies in plan.json.
//   - Every gate must fail on wrong devices ([gatetest.Adversaries]), or its word is worth nothing.
//   - Figures are taken again, and must be those of performance.json within a bound that the report states.
//
// The report is written into the folder, as evaluation_report.md and .json. What is wrong with the deployment is in the report; an error is that of something else,
// such as a folder that has no journal, a model that is not where it was, or a file that cannot be read: there is no verdict then, unless something else is found
// wrong, which decides. Nothing else in the folder is changed: see [Settle].
//
// No variable of the environment changes a verdict; see [InNewProcess] for a process that sees only those that say where files are.
func Evaluate(ctx context.Context, dir string, dev npu.Device, opts *EvaluateOptions) (EvaluationReport, error) {
	v := &evaluation{dir: dir, dev: dev, info: dev.Info(), started: time.Now()}
	if opts != nil {
		v.opts = *opts
	}
	if _, err := os.Stat(filepath.Join(dir, FileJournal)); err != nil {
		return EvaluationReport{}, noWorkspace(dir, err)
	}
	err := v.run(ctx)
	if ctx.Err() != nil {
		return EvaluationReport{}, ctx.Err()
	}
	if err == nil && v.unread != nil {
		err = fmt.Errorf(undecided+"%w", v.unread)
	}
	if err != nil {
		if !v.refused() {
			return EvaluationReport{}, err
		}
		// What has been found wrong stays so, whatever kept the evaluator from looking at the rest.
		v.hold("evaluation", false, "not everything could be looked at: %s", strings.TrimPrefix(err.Error(), undecided))
	}
	v.report.Seconds = time.Since(v.started).Seconds()
	v.report.OK = len(v.report.Checks) > 0 && !v.refused()
	return v.report, v.write()
}

// undecided begins the errors of an evaluation that leave it without a verdict.
const undecided = "skill: evaluation: no verdict: "

// evaluation is one execution of Evaluate.
type evaluation struct {
	dir     string
	dev     npu.Device
	info    npu.Info
	opts    EvaluateOptions
	started time.Time
	report  EvaluationReport

	records []Record
	unread  error            // of the first file that is there and could not be read
	state   *State           // what the journal claims
	notes   *evaluationNotes // nil where none are kept
	d       *Deployment
	env     *Env // on the plan as it lies in the workspace
}

// hold notes what a check found. Only the first words of a long story are kept.
func (v *evaluation) hold(name string, ok bool, format string, args ...any) {
	detail := fmt.Sprintf(format, args...)
	if r := []rune(detail); len(r) > longestDetail {
		detail = string(r[:longestDetail]) + " ..."
	}
	v.report.Checks = append(v.report.Checks, EvaluationCheck{name, ok, detail})
	word := "holds: "
	if !ok {
		word = "does not hold: "
	}
	v.step("%s %s%s", name, word, detail)
}

// refused reports whether a check does not hold.
func (v *evaluation) refused() bool {
	return slices.ContainsFunc(v.report.Checks, func(c EvaluationCheck) bool { return !c.OK })
}

// longestDetail is enough for the reasons of a gate, and too little for every op of a model.
const longestDetail = 1200

func (v *evaluation) step(format string, args ...any) {
	if v.opts.Observe != nil {
		v.opts.Observe(Event{Phase: Evaluation, What: EventStep, Text: fmt.Sprintf(format, args...)})
	}
}

// run goes from what is cheap to what takes time. Without a journal that can be read there is nothing to compare with.
func (v *evaluation) run(ctx context.Context) (err error) {
	if !v.readJournal() {
		return nil
	}
	v.report.Plan = v.state.Plan
	v.checkPhases()
	v.checkThresholds()
	v.checkPages()
	v.checkPerformance()
	// The evaluator works in a folder of its own, so that nothing that lies in the workspace can come into its way.
	if err := atomicfile.Sweep(os.TempDir()); err != nil {
		return fmt.Errorf("skill: evaluation: %w", err)
	}
	tmp, err := atomicfile.MkdirTemp("")
	if err != nil {
		return fmt.Errorf("skill: evaluation: %w", err)
	}
	defer func() { err = errors.Join(err, tmp.Close()) }()
	if opened, err := v.openModel(tmp.Path); !opened || err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.d.Close()) }()
	if !v.checkPlan() {
		return nil
	}
	if v.opts.written {
		if v.unread == nil {
			v.hold("computed", false, "nothing was computed")
		}
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
	if v.refused() || v.unread != nil { // neither controls nor figures change that, and a machine that is busy must not hide a refusal
		return nil
	}
	if err := v.runControls(ctx); err != nil {
		return err
	}
	if v.refused() {
		return nil
	}
	return v.measureAgain(ctx)
}

// openModel opens the checkpoint as a deployment of its own, and compares what is deployed with what the journal is about. A checkpoint that cannot be read where the journal has it
// is one that was changed; one that is not there, or that somebody named wrongly, says nothing of the deployment, and is an error.
func (v *evaluation) openModel(tmp string) (bool, error) {
	was := v.state.Subject
	path, golden := was.paths(v.opts.Model, v.opts.Golden)
	v.step("reading %s", path)
	d, err := NewDeployment(path, v.dev, &Options{Dir: tmp, SeqLen: was.SeqLen, Golden: golden, Gates: v.opts.Gates, Positions: v.opts.Positions,
		Repetitions: v.opts.Repetitions, Observe: v.opts.Observe})
	if err != nil {
		var bad subjectError
		named := v.opts.Model
		if errors.As(err, &bad) && bad.golden {
			path, named = golden, v.opts.Golden
		}
		if bad.golden {
			if g, unread := goldenfile.Read(golden); unread == nil { // it is a golden file, and not this model's
				v.hold("golden", false, "%v; its SHA-256 is %.16s, the journal's of %q %.16s", err, g.Sum, was.Golden, was.GoldenSum)
				return false, nil
			}
		}
		switch {
		case bad.err == nil:
			return false, fmt.Errorf(undecided+"%w", err)
		case named != "" || cannotWork(err):
			return false, fmt.Errorf(undecided+"%w; name the model and its golden file where they are now", err)
		}
		v.hold("model", false, "%s cannot be read: %v", path, err)
		return false, nil
	}
	v.d = d
	s := d.state.Subject
	v.report.Reference = s.Reference()
	if s.Config != was.Config && v.opts.Model != "" {
		return false, errors.Join(fmt.Errorf(undecided+"%s is %s, and the deployment is about %s: name that model", path, s.shape(),
			was.shape()), d.Close())
	}
	v.hold("model", s.Config == was.Config && s.SeqLen == was.SeqLen, "%s is what the journal is about: %+v", path, was.Config)
	v.hold("weights", s.Weights == was.Weights, "SHA-256 of all tensors is %.16s, the journal's %.16s", s.Weights, was.Weights)
	v.hold("device", s.Device == was.Device && s.Array == was.Array, "it runs on %s, the deployment was for %s", s.Device, was.Device)
	switch {
	case s.Golden == "" && was.Golden == "":
		v.hold("golden", true, "%s", s.Reference())
	default:
		v.hold("golden", s.GoldenSum == was.GoldenSum, "SHA-256 of %q is %.16s, the journal's of %q %.16s", s.Golden, s.GoldenSum, was.Golden, was.GoldenSum)
	}
	return true, nil
}

// cannotWork reports an error of the evaluator's own work, which says nothing of what is judged: files that cannot be reached, a workspace that cannot be written, a device that other
// processes have taken.
func cannotWork(err error) bool {
	var path *fs.PathError
	var link *os.LinkError
	var errno syscall.Errno
	return errors.As(err, &path) || errors.As(err, &link) || errors.As(err, &errno) || isStorage(err) || errors.Is(err, npu.ErrMemory) || errors.Is(err, npu.ErrNoContext)
}

// cannot notes that something could not be done, or is the error where that says nothing of the deployment.
func (v *evaluation) cannot(err error, name, format string, args ...any) error {
	if cannotWork(err) {
		return fmt.Errorf(undecided+"%s: %w", name, err)
	}
	v.hold(name, false, format+": %v", append(args, err)...)
	return nil
}

// runGates asks every gate again: those of the model and of the reference, those of the kernels that the plan has now, and those of the plan.
func (v *evaluation) runGates(ctx context.Context) error {
	var list []Gate
	for _, p := range []Phase{Reference, SingleBlock, KernelValidation, Finalise} {
		gates, err := v.env.with(v.env.recipe).gatesOf(p)
		if err != nil {
			v.hold("gates", false, "those of phase %s cannot be made: %v", p, err)
			return nil
		}
		for _, g := range slices.Concat(gates, v.opts.Gates) {
			again := slices.ContainsFunc(list, func(old Gate) bool { return old.Name == g.Name && old.subject == g.subject })
			if !again && g.Name != GatePlanFile { // that is of the workspace, which is looked at elsewhere
				list = append(list, g)
			}
		}
	}
	for i, g := range list {
		if _, err := v.once("gate "+g.Name+" "+g.subject, func() (int, error) { return 0, v.runGate(ctx, g, i, len(list)) }); err != nil {
			return err
		}
	}
	return nil
}

// runGate asks a gate, the i-th of n.
func (v *evaluation) runGate(ctx context.Context, g Gate, i, n int) error {
	e := v.env.with(v.env.recipe)
	e.phase, e.done, e.total = Evaluation, i, n
	v.step("gate %s", g.Name)
	verdict, err := g.check(ctx, e)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return v.cannot(err, "gate "+g.Name, "it cannot be run")
	}
	r := GateResult{Name: g.Name}
	r.judged(verdict)
	text := r.Summary
	for _, why := range r.Reasons {
		text += "; " + why.Text
	}
	v.hold("gate "+g.Name, r.OK, "%s", text)
	if !isKernelGate(g.Name) {
		v.compareResult(r)
	}
	return nil
}
