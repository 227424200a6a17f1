package skill

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/npukit/npukit/internal/childproc"
	"github.com/npukit/npukit/npu"
)

// evaluateArgument is the first argument of a process that [InNewProcess] has started.
const evaluateArgument = "npukit-evaluate-workspace"

// request is what such a process is asked for, on its standard input.
type request struct {
	Dir    string `json:"dir"`
	Device string `json:"device"`
	Model  string `json:"model,omitempty"`
	Golden string `json:"golden,omitempty"`
	Notes  string `json:"notes,omitempty"`

	Positions   int `json:"positions,omitempty"`
	Repetitions int `json:"repetitions,omitempty"`
}

// reply is its answer, on its standard output.
type reply struct {
	Report EvaluationReport `json:"report"`
	Error  string           `json:"error,omitempty"`
	Busy   bool             `json:"busy,omitempty"` // the error is [ErrBusy]
}

// Main makes a program one that can evaluate its own deployments: it must be the first call in main. In a process that [InNewProcess] has started it
// evaluates a workspace, with the program's own devices and gates, and does not return; everywhere else it returns at once.
//
//	func main() {
//		skill.Main(openDevice, &skill.EvaluateOptions{Gates: gates})
//		...
//	}
//
// Open opens a device by its kind and what the caller of InNewProcess has written behind it, such as "sim" or "cpu threads=2". Golden and Model of the options are the caller's, where it names some.
func Main(open func(ctx context.Context, device string) (npu.Device, error), opts *EvaluateOptions) {
	if !slices.Equal(os.Args[1:], []string{evaluateArgument}) {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithCancel(ctx)
	err := serveEvaluation(ctx, os.Stdin, os.Stdout, open, opts, cancel)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// serveEvaluation reads a request, evaluates, and answers. Its error is only that of the answer
// itself. The process that asks keeps in open: when that ends, so does this one.
func serveEvaluation(ctx context.Context, in io.Reader, out io.Writer,
	open func(context.Context, string) (npu.Device, error), opts *EvaluateOptions, stop func()) error {
	var q request
	var a reply
	err := json.NewDecoder(in).Decode(&q)
	if err == nil {
		childproc.ExitWithParent(in, stop, cancelledFor)
		a.Report, err = evaluateAsked(ctx, q, open, opts)
	}
	if err != nil {
		a.Error, a.Busy = err.Error(), errors.Is(err, ErrBusy)
	}
	return json.NewEncoder(out).Encode(a)
}

func evaluateAsked(ctx context.Context, q request, open func(context.Context, string) (npu.Device, error), opts *EvaluateOptions) (r EvaluationReport, err error) {
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

// InNewProcess is an evaluator that starts this very program again, whose main must begin with [Main]. The process gets none of this one's memory, and of its
// environment only what says where files are: what could change how the program computes, such as LD_PRELOAD, GODEBUG, GOMAXPROCS or a variable of npukit, is left out.
// The device is passed to the function that Main opens devices with. Opts may name another Model or Golden, a folder for Notes, and the deployment's
// Positions and Repetitions; its other fields are those of Main.
func InNewProcess(device string, opts *EvaluateOptions) Evaluator {
	return func(ctx context.Context, dir string) (EvaluationReport, error) {
		q := request{Dir: dir, Device: device}
		if opts != nil {
			q.Model, q.Golden, q.Notes = opts.Model, opts.Golden, opts.Notes
			q.Positions, q.Repetitions = opts.Positions, opts.Repetitions
		}
		question, err := json.Marshal(q)
		if err != nil {
			return EvaluationReport{}, fmt.Errorf("skill: evaluation: %w", err)
		}
		program, err := os.Executable()
		if err != nil {
			return EvaluationReport{}, fmt.Errorf("skill: evaluation: %w", err)
		}
		cmd := exec.CommandContext(ctx, program, evaluateArgument)
		cmd.Env = keptEnvironment(os.Environ())
		in, err := cmd.StdinPipe() // stays open until the evaluator has ended: see serveEvaluation
		if err != nil {
			return EvaluationReport{}, fmt.Errorf("skill: evaluation: %w", err)
		}
		cmd.Cancel = func() error {
			if err := cmd.Process.Signal(os.Interrupt); err == nil || errors.Is(err, os.ErrProcessDone) {
				return err
			}
			return cmd.Process.Kill() // Windows sends no interrupts
		}
		cmd.WaitDelay = cancelledFor
		var out, said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &said
		if err = cmd.Start(); err == nil {
			_, asked := in.Write(append(question, '\n'))
			if err = cmd.Wait(); err == nil {
				err = asked
			}
		}
		if ctx.Err() != nil {
			return EvaluationReport{}, ctx.Err()
		}
		var a reply
		if err == nil {
			err = strict(out.Bytes(), &a)
		}
		if err != nil {
			return EvaluationReport{}, fmt.Errorf("skill: evaluation: %s gave no answer: %w: %.500s (its main must begin with skill.Main)", program, err,
				strings.TrimSpace(said.String()))
		}
		if a.Busy {
			return a.Report, fmt.Errorf("%w%s", ErrBusy, strings.TrimPrefix(a.Error, ErrBusy.Error()))
		}
		if a.Error != "" {
			return a.Report, fmt.Errorf("skill: evaluation: %s", strings.TrimPrefix(strings.TrimPrefix(a.Error, "skill: "), "evaluation: "))
		}
		return a.Report, nil
	}
}

// cancelledFor is how long an evaluator that was interrupted may take to end before it is killed: it looks at its context between launches, and its device closes in less than
// a second.
const cancelledFor = 5 * time.Second

// keptEnvironment is what an evaluator sees of an environment: where a process finds files, and nothing about what it computes.
func keptEnvironment(all []string) []string {
	kept := []string{"HOME", "PATH", "TMPDIR", "TEMP", "TMP", "USERPROFILE", "SYSTEMROOT", "XDG_CACHE_HOME"}
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return !slices.Contains(kept, strings.ToUpper(name))
	})
}
