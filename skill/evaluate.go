package skill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/evaluate"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/timing"
)

// ErrBusy is wrapped by errors about measured figures that cannot be judged because other processes
// work on the machine.
var ErrBusy = evaluate.ErrBusy

// EvaluateOptions are the options of an evaluation. The zero value of a field means its default.
type EvaluateOptions struct {
	Model   string      // path of the checkpoint; default the one in the journal
	Golden  string      // path of the reference outputs; default as in the journal
	Gates   []Gate      // more gates, those of the deployment
	Observe func(Event) // receives progress, on the goroutine that runs

	// Notes is a folder of the user's, outside every workspace. The evaluator keeps authenticated
	// notes there of the steps that have passed, so that an evaluation that was killed can be
	// resumed. By default, an evaluation begins anew.
	Notes string

	// Positions and Repetitions are those of the deployment. Defaults: as in [Options].
	Positions   int
	Repetitions int

	tolerance float64 // of measured figures, for tests
	written   bool    // for tests: check only the files
	figures   bool    // for tests: check only the files, and figures
}

// Evaluator evaluates a workspace, in a process of its own. It reads the workspace, which stays
// locked, and writes its report there.
type Evaluator func(ctx context.Context, dir string) (EvaluationReport, error)

// Evaluate re-checks the deployment in dir from scratch. It trusts nothing in the workspace:
// bounds, oracle and gates are those of this program, which is the root of trust.
//
//   - The files must be consistent: the chain of the journal, the gates of every phase, the
//     plan and its status, thresholds, weights and reference outputs by their sums, and figures by
//     the measurement that they come from.
//   - The checkpoint is read again, the oracle computes its references again, and every gate runs
//     again on the plan in plan.json.
//   - Every gate must fail on wrong devices, see [gatetest.Adversaries].
//   - Figures are taken again, and must be those of performance.json within a bound that the report
//     states.
//
// Evaluate writes the report into the workspace, as evaluation_report.md and .json, and changes
// nothing else there; see [Settle]. The report has the findings. Evaluate
// returns an error if there is no verdict, for example because the model or a file cannot be read,
// and nothing else was found to be wrong.
//
// The environment's variables do not change a verdict; see [InNewProcess].
func Evaluate(ctx context.Context, dir string, dev npu.Device, opts *EvaluateOptions) (EvaluationReport, error) {
	var o EvaluateOptions
	if opts != nil {
		o = *opts
	}
	filled := Options{Gates: o.Gates, Positions: o.Positions, Repetitions: o.Repetitions, Observe: o.Observe}
	if err := filled.fill(); err != nil {
		return EvaluationReport{}, err
	}
	e := evaluate.Options{
		Model: o.Model, Golden: o.Golden, Notes: o.Notes, Positions: filled.Positions, Repetitions: filled.Repetitions,
		Tolerance: o.tolerance, Written: o.written, Figures: o.figures,
	}
	if o.Observe != nil {
		e.Observe = func(text string, done, total int) {
			o.Observe(Event{Phase: Evaluation, What: eventStep, Text: text, Done: done, Total: total})
		}
	}
	for _, g := range o.Gates {
		e.Gates = append(e.Gates, evaluate.Gate{Name: g.Name, Phases: g.Phases,
			Check: func(ctx context.Context, bench *gates.Bench, claimed *State) (Verdict, error) {
				env, err := evaluationEnv(&filled, bench, claimed)
				if err != nil {
					return nil, err
				}
				return g.Check(ctx, env)
			}})
	}
	return evaluate.Run(ctx, dir, dev, e)
}

// evaluationEnv returns the environment of a user's gate in an evaluation. It belongs to no deployment
// and records nothing. Its state is the one that the evaluator has read, with the subject and the
// plan that it checks. The timer has a log of its own, so that it takes no turns from the journal.
func evaluationEnv(opts *Options, bench *gates.Bench, claimed *State) (*Env, error) {
	empty, err := journal.Fold(nil)
	if err != nil {
		return nil, err
	}
	d := &Deployment{opts: *opts, log: journal.Discard(claimed), models: bench.Models,
		reference: bench.Reference, ck: bench.Models.Checkpoint, events: reporter{to: opts.Observe, phase: Evaluation}}
	d.timer = &timing.Timer{Models: d.models, Log: journal.Discard(empty), Step: d.events.step,
		Repetitions: opts.Repetitions, IDs: bench.IDs}
	return envOn(d, Evaluation, bench), nil
}

// Main makes a program one that can evaluate its own deployments. It must be the first call in
// main. In a process that [InNewProcess] has started, Main evaluates a workspace with the program's
// own devices and gates, and exits; in any other process it returns at once.
//
//	func main() {
//		skill.Main(openDevice, &skill.EvaluateOptions{Gates: gates})
//		...
//	}
//
// Open opens a device by the text that was passed to InNewProcess, such as "sim" or "cpu
// threads=2". Model, Golden and Notes of the options are those of InNewProcess.
func Main(open func(ctx context.Context, device string) (npu.Device, error), opts *EvaluateOptions) {
	if !slices.Equal(os.Args[1:], []string{evaluate.Argument}) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(ctx)
	err := evaluate.Serve(os.Stdin, os.Stdout, func(q evaluate.Request) (EvaluationReport, error) {
		return evaluateRequest(ctx, q, open, opts)
	}, cancel)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func evaluateRequest(ctx context.Context, q evaluate.Request, open func(context.Context, string) (npu.Device, error),
	opts *EvaluateOptions) (r EvaluationReport, err error) {
	var o EvaluateOptions
	if opts != nil {
		o = *opts
	}
	o.Model, o.Golden, o.Notes = q.Model, q.Golden, q.Notes
	o.Positions, o.Repetitions = cmp.Or(q.Positions, o.Positions), cmp.Or(q.Repetitions, o.Repetitions)
	dev, err := open(ctx, q.Device)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	return Evaluate(ctx, q.Dir, dev, &o)
}

// InNewProcess returns an evaluator that starts this program again; its main must begin with
// [Main]. The process has nothing of this one's memory, and of its environment only variables that
// name files. Variables that change how the program computes, such as LD_PRELOAD, GODEBUG or
// GOMAXPROCS, are left out.
//
// The device is passed to the function that Main opens devices with. The options may set Model,
// Golden, Notes, Positions and Repetitions; the others are those of Main.
func InNewProcess(device string, opts *EvaluateOptions) Evaluator {
	return func(ctx context.Context, dir string) (EvaluationReport, error) {
		q := evaluate.Request{Dir: dir, Device: device}
		if opts != nil {
			q.Model, q.Golden, q.Notes = opts.Model, opts.Golden, opts.Notes
			q.Positions, q.Repetitions = opts.Positions, opts.Repetitions
		}
		return evaluate.InNewProcess(ctx, q)
	}
}
