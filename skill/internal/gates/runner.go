package gates

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/plot"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// Runner runs gates and records their results.
type Runner struct {
	Log       *journal.Log
	Reports   string                           // the folder of the gates' reports; "" writes none
	Plain     bool                             // reports have no plots
	PartsFrom time.Duration                    // how long a part of a gate takes to be recorded
	Step      func(format string, args ...any) // reports the next step
	Done      func(journal.GateResult)         // receives every new result
}

// Key returns the result that a gate's verdict is recorded as, without the verdict.
func (g Gate) Key(bench *Bench) (journal.GateResult, error) {
	subject := g.Subject
	if subject == "" {
		var err error
		if subject, err = bench.PlanHash(); err != nil {
			return journal.GateResult{}, err
		}
	}
	return journal.GateResult{Name: g.Name, Subject: subject}, nil
}

// Run runs a gate in a phase and records its result. A gate that has passed in this attempt at the
// phase is not run again.
func (r *Runner) Run(ctx context.Context, p journal.Phase, g Gate, bench *Bench) (journal.GateResult, error) {
	result, err := g.Key(bench)
	if err != nil {
		return result, err
	}
	if old, ok := r.Log.State.Passed(p, result.Name, result.Subject); ok {
		return old, nil
	}
	r.Step("gate %s", g.Name)
	started := time.Now()
	recorded := *bench
	recorded.parts = &parts{runner: r, phase: p, gate: result.Key()}
	v, err := g.Check(ctx, &recorded)
	if err != nil {
		return result, fmt.Errorf("skill: gate %s: %w", g.Name, err)
	}
	result.Seconds = time.Since(started).Seconds()
	Judge(&result, v)
	if r.Reports != "" {
		if result.Report, err = r.save(p, result, v); err != nil {
			return result, err
		}
	}
	if err := r.Log.Append(journal.KindGate, p, result); err != nil {
		return result, err
	}
	r.Done(result)
	return result, nil
}

// save writes a gate's report for people.
func (r *Runner) save(p journal.Phase, result journal.GateResult, v Verdict) (string, error) {
	file := fmt.Sprintf("%d-%s", int(p), strings.ReplaceAll(result.Name, "/", "-"))
	if !journal.IsKernelGate(result.Name) { // whose name has the subject already
		file += fmt.Sprintf("-%.8s", result.Subject)
	}
	report := fmt.Stringer(v)
	if !r.Plain {
		report = plot.With(v)
	}
	if err := gate.Save(r.Reports, file, report); err != nil && !errors.Is(err, plot.ErrEmpty) {
		return "", journal.StorageError{Err: fmt.Errorf("skill: workspace: %w", err)}
	}
	return workspace.FolderReports + "/" + file, nil
}

// Judge fills in a result from a verdict.
func Judge(r *journal.GateResult, v Verdict) {
	r.OK = v.OK()
	r.Summary, r.Figures, r.Bounds = Describe(v)
	if r.Reasons = Reasons(v); !r.OK && len(r.Reasons) == 0 {
		r.Reasons = []gate.Reason{{Metric: r.Name, Text: v.Err().Error()}}
	}
}
