package skill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/npukit/npukit/internal/atomicfile"
	"github.com/npukit/npukit/internal/readfile"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	pages "github.com/npukit/npukit/skill/internal/report"
	"github.com/npukit/npukit/skill/internal/subject"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// Settle evaluates a finished workspace and sets the status of its plan to accepted or failed. If
// the files are consistent, the evaluation is recorded as phase 7, as by [Deployment.Run]. If not,
// Settle marks the plan as failed; it records the refusal only if the journal is sound, so that the
// next deployment is evaluated again, and changes nothing else.
//
// The verdict is in the report; the error has another cause. Settle locks the workspace and returns
// [ErrLocked] if another process works on it. It calls open for the deployment's device after the
// evaluator has closed its own.
func Settle(ctx context.Context, dir string, open func(ctx context.Context) (npu.Device, error), evaluate Evaluator,
	opts *EvaluateOptions) (report EvaluationReport, err error) {
	if _, err := os.Stat(filepath.Join(dir, journal.FileJournal)); err != nil {
		return report, workspace.NoWorkspace(dir, err)
	}
	lock, err := workspace.Lock(dir)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	report, err = evaluate(ctx, dir)
	if err != nil {
		return report, err
	}
	if slices.ContainsFunc(report.Checks, func(c journal.EvaluationCheck) bool { return !c.OK && isWritten(c.Name) }) {
		return report, errors.Join(recordRefusal(dir, lock, report), markFailed(filepath.Join(dir, workspace.FilePlan)))
	}
	state, err := ReadState(dir)
	if err != nil {
		return report, err
	}
	var o EvaluateOptions
	if opts != nil {
		o = *opts
	}
	path, golden := subject.Paths(*state.Subject, o.Model, o.Golden)
	dev, err := open(ctx)
	if err != nil {
		return report, err
	}
	d, err := NewDeployment(path, dev, &Options{
		Dir: dir, SeqLen: state.Subject.SeqLen, Golden: golden, Gates: o.Gates, Observe: o.Observe,
		Positions: o.Positions, Repetitions: o.Repetitions, held: lock,
		Evaluate: func(context.Context, string) (EvaluationReport, error) { return report, nil },
	})
	if err != nil {
		return report, errors.Join(err, dev.Close())
	}
	_, err = d.RunPhase(ctx, Evaluation)
	var refused *PhaseError
	if errors.As(err, &refused) {
		if report.OK { // the journal has changed since the evaluation
			report.OK = false
			check := journal.EvaluationCheck{Name: "recording", Detail: refused.Report.Reason}
			report.Checks = append(report.Checks, check)
		}
		err = nil
	}
	return report, errors.Join(err, d.Close(), dev.Close())
}

// isWritten reports whether a check is about the workspace's files, and not about results.
func isWritten(name string) bool {
	return slices.Contains([]string{"journal", "phases", "thresholds", "thresholds file", "model", "weights", "device",
		"golden", "recipe", "plan", "status", "pages", "figures file"}, name)
}

// recordRefusal records as phase 7 an evaluation that failed because of the workspace's files. It
// records nothing if the journal is not sound, or if an earlier phase has not passed, since the
// evaluation is still to come then. Of the pages it writes only progress.md, if that was right.
func recordRefusal(dir string, lock io.Closer, report EvaluationReport) (err error) {
	held := func(name string) bool {
		i := slices.IndexFunc(report.Checks, func(c journal.EvaluationCheck) bool { return c.Name == name })
		return i >= 0 && report.Checks[i].OK
	}
	if !held("journal") {
		return nil
	}
	ws, err := workspace.Open(dir, lock)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ws.Close()) }()
	state := ws.Log.State
	if state.Phases[Finalise].Status != journal.Passed {
		return nil
	}
	note := func(kind journal.Kind, data any) {
		if err == nil {
			err = ws.Log.Append(kind, Evaluation, data)
		}
	}
	if state.Phases[Evaluation].Status != journal.Running {
		note(journal.KindStart, journal.Start{Why: "evaluated alone"})
	}
	note(journal.KindEvaluation, report)
	if err != nil {
		return err
	}
	verdict, err := checkEvaluation(state)
	if err != nil {
		return err
	}
	gate := GateResult{Name: journal.GateEvaluation, Subject: state.Plan}
	gates.Judge(&gate, verdict)
	note(journal.KindGate, gate)
	note(journal.KindFinish, journal.Finish{Gates: []string{gate.Key()}, Reason: gate.Summary})
	if err != nil || !held("pages") {
		return err
	}
	return ws.Put("progress.md", pages.Progress(state))
}

// markFailed sets the status of a plan to failed. A plan that cannot be read cannot be run, and is
// not changed.
func markFailed(path string) error {
	data, err := workspace.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, readfile.ErrNotRegular) ||
		errors.Is(err, readfile.ErrTooLarge) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("skill: %w", err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil
	}
	if fields["status"], err = json.Marshal(plan.Failed); err != nil {
		return err
	}
	if data, err = json.MarshalIndent(fields, "", "  "); err != nil {
		return err
	}
	return atomicfile.Write(path, append(data, '\n'))
}
