package evaluate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/npukit/npukit/internal/childproc"
	"github.com/npukit/npukit/skill/internal/journal"
)

// Argument is the first argument of a process that evaluates a workspace.
const Argument = "npukit-evaluate-workspace"

// ErrBusy is wrapped by errors about measured figures that cannot be judged because of other
// processes.
var ErrBusy = errors.New("skill: other processes work on this machine, and measured figures cannot be judged")

// Request is the input of an evaluating process.
type Request struct {
	Dir    string `json:"dir"`
	Device string `json:"device"`
	Model  string `json:"model,omitempty"`
	Golden string `json:"golden,omitempty"`
	Notes  string `json:"notes,omitempty"`

	Positions   int `json:"positions,omitempty"`
	Repetitions int `json:"repetitions,omitempty"`
}

// reply is its output.
type reply struct {
	Report journal.EvaluationReport `json:"report"`
	Error  string                   `json:"error,omitempty"`
	Busy   bool                     `json:"busy,omitempty"` // Error is [ErrBusy]
}

// Serve reads a request, evaluates, and writes the reply. Its error is about the reply only. The
// parent process keeps in open: if in ends, Serve calls stop and the process exits.
func Serve(in io.Reader, out io.Writer, evaluate func(Request) (journal.EvaluationReport, error), stop func()) error {
	var q Request
	var a reply
	err := json.NewDecoder(in).Decode(&q)
	if err == nil {
		childproc.ExitWithParent(in, stop, cancelledFor)
		a.Report, err = evaluate(q)
	}
	if err != nil {
		a.Error, a.Busy = err.Error(), errors.Is(err, ErrBusy)
	}
	return json.NewEncoder(out).Encode(a)
}

// InNewProcess starts this program again, to evaluate as q asks. The process has nothing of this
// one's memory, and of its environment only variables that name files.
func InNewProcess(ctx context.Context, q Request) (journal.EvaluationReport, error) {
	var none journal.EvaluationReport
	request, err := json.Marshal(q)
	if err != nil {
		return none, fmt.Errorf("skill: evaluation: %w", err)
	}
	program, err := os.Executable()
	if err != nil {
		return none, fmt.Errorf("skill: evaluation: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, Argument)
	cmd.Env = keptEnvironment(os.Environ())
	in, err := cmd.StdinPipe() // stays open until the evaluator has ended, see Serve
	if err != nil {
		return none, fmt.Errorf("skill: evaluation: %w", err)
	}
	cmd.Cancel = func() error {
		if err := cmd.Process.Signal(os.Interrupt); err == nil || errors.Is(err, os.ErrProcessDone) {
			return err
		}
		return cmd.Process.Kill() // Windows has no interrupts
	}
	cmd.WaitDelay = cancelledFor
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err = cmd.Start(); err == nil {
		_, asked := in.Write(append(request, '\n'))
		if err = cmd.Wait(); err == nil {
			err = asked
		}
	}
	if ctx.Err() != nil {
		return none, ctx.Err()
	}
	var a reply
	if err == nil {
		err = strict(out.Bytes(), &a)
	}
	switch {
	case err != nil:
		return none, fmt.Errorf("skill: evaluation: %s gave no answer: %w: %.500s (its main must begin with "+
			"skill.Main)",
			program, err, strings.TrimSpace(stderr.String()))
	case a.Busy:
		return a.Report, fmt.Errorf("%w%s", ErrBusy, strings.TrimPrefix(a.Error, ErrBusy.Error()))
	case a.Error != "":
		text := strings.TrimPrefix(strings.TrimPrefix(a.Error, "skill: "), "evaluation: ")
		return a.Report, fmt.Errorf("skill: evaluation: %s", text)
	}
	return a.Report, nil
}

// cancelledFor is how long an evaluator that was interrupted may take to end before it is killed.
// It checks its context between launches, and its device closes in less than a second.
const cancelledFor = 5 * time.Second

// keptEnvironment returns the variables that an evaluator gets: those that name files. Variables
// that change how the process computes, such as LD_PRELOAD, GODEBUG or GOMAXPROCS, are left out.
func keptEnvironment(all []string) []string {
	kept := []string{"HOME", "PATH", "TMPDIR", "TEMP", "TMP", "USERPROFILE", "SYSTEMROOT", "XDG_CACHE_HOME"}
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return !slices.Contains(kept, strings.ToUpper(name))
	})
}
