package skill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu"
)

// Settle evaluates a finished workspace and gives its plan the status that follows: accepted, or failed. The evaluation is recorded as phase 7 of the deployment, by the
// same path as [Deployment.Run] takes, when what is written holds together. Where it does not, the plan is marked as failed where it lies, and everything else is left
// as it was found, for people to look at.
//
// The report tells how it went; the error is that of something else. The workspace is locked meanwhile: one that another process works on is
// refused ([ErrLocked]). Open opens the device of the deployment, once the evaluator has given it back.
func Settle(ctx context.Context, dir string, open func(ctx context.Context) (npu.Device, error), evaluate Evaluator, opts *EvaluateOptions) (report EvaluationReport, err error) {
	if _, err := os.Stat(filepath.Join(dir, FileJournal)); err != nil {
		return report, fmt.Errorf("skill: %s is no workspace: %w", dir, err)
	}
	lock, err := lockWorkspace(dir)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	report, err = evaluate(ctx, dir)
	if err != nil {
		return report, err
	}
	if slices.ContainsFunc(report.Checks, func(c EvaluationCheck) bool { return !c.OK && isWritten(c.Name) }) {
		return report, markFailed(filepath.Join(dir, FilePlan))
	}
	state, err := ReadState(dir)
	if err != nil {
		return report, err
	}
	var o EvaluateOptions
	if opts != nil {
		o = *opts
	}
	path, golden := state.Subject.Model, state.Subject.Golden
	if o.Model != "" {
		path = o.Model
	}
	if o.Golden != "" {
		golden = o.Golden
	}
	dev, err := open(ctx)
	if err != nil {
		return report, err
	}
	d, err := NewDeployment(path, dev, &Options{Dir: dir, SeqLen: state.Subject.SeqLen, Golden: golden, Gates: o.Gates, Observe: o.Observe,
		Positions: o.Positions, Repetitions: o.Repetitions, held: lock,
		Evaluate: func(context.Context, string) (EvaluationReport, error) { return report, nil }})
	if err != nil {
		return report, errors.Join(err, dev.Close())
	}
	_, err = d.Phase(Evaluation).Run(ctx)
	var refused *PhaseError
	if errors.As(err, &refused) {
		if report.OK { // what was judged is no more what the journal has: somebody wrote in between
			report.OK = false
			report.Checks = append(report.Checks, EvaluationCheck{"recording", false, refused.Report.Reason})
		}
		err = nil
	}
	return report, errors.Join(err, d.Close(), dev.Close())
}

// isWritten reports a check of what is written, as against what is computed.
func isWritten(name string) bool {
	return slices.Contains([]string{"journal", "phases", "thresholds", "thresholds file", "model", "weights", "device", "golden", "recipe", "plan", "status", "pages",
		"figures file"}, name)
}

// markFailed makes a plan one that nothing runs by. One that cannot be read cannot be run either, and is left alone.
func markFailed(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("skill: %w", err)
	}
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil
	}
	if fields["status"], err = json.Marshal(model.PlanFailed); err != nil {
		return err
	}
	if data, err = json.MarshalIndent(fields, "", "  "); err != nil {
		return err
	}
	return writeFile(path, append(data, '\n'))
}
