package evaluate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
	"github.com/npukit/npukit/skill/internal/report"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// written checks the files of the workspace, before anything is computed.
type written struct{ *evaluation }

// read reads a file of the workspace.
func (v *evaluation) read(name string) (data []byte, err error) {
	return workspace.ReadFile(filepath.Join(v.dir, filepath.FromSlash(name)))
}

// lacks adds a check that fails because a file is missing or not regular. If this process may not
// read the file, or the system cannot, there is no check: the evaluation has no verdict then,
// unless another check fails.
func (v *written) lacks(check, name string, err error) {
	for _, e := range []error{os.ErrPermission, syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, e) {
			v.unread = cmp.Or(v.unread, err)
			v.step("%s cannot be read: %v", name, err)
			return
		}
	}
	v.hold(check, false, "%s: %v", name, err)
}

// readJournal checks the chain of the journal and folds its records. A line without newline is a
// record that was cut off: such a deployment is not finished.
func (v *written) readJournal() bool {
	data, err := v.read(journal.FileJournal)
	if err != nil {
		v.lacks("journal", journal.FileJournal, err)
		return false
	}
	var whole int64
	v.records, whole, err = journal.Read(filepath.Join(v.dir, journal.FileJournal))
	if err == nil {
		v.state, err = journal.Fold(v.records)
	}
	switch {
	case err != nil:
		v.lacks("journal", journal.FileJournal, err)
		return false
	case v.state.Subject == nil:
		v.hold("journal", false, "it is empty")
		return false
	}
	behind := ""
	if whole != int64(len(data)) {
		behind = ": what is behind them was never completed; deploy into the folder again, which cuts it off " +
			"and goes on"
	}
	v.hold("journal", behind == "", "%d records, each sealed with the one before, of %d bytes; the file has %d%s",
		len(v.records), whole, len(data), behind)
	return true
}

// checkPhases checks that every phase has passed, with every gate that this program has for it.
func (v *written) checkPhases() {
	for _, p := range v.state.Phases[:journal.Evaluation] {
		if p.Status != journal.Passed {
			v.hold("phases", false, "phase %s is %s: there is nothing to evaluate before all of them have passed",
				p.Phase, p.Status)
			return
		}
		names := []string{}
		for _, info := range p.Phase.Info().Gates {
			switch {
			case strings.HasPrefix(info.Name, journal.GateKernel+"/"):
				if p.Phase == journal.KernelValidation && !slices.ContainsFunc(p.Gates,
					func(g journal.GateResult) bool { return journal.IsKernelGate(g.Name) }) {
					names = append(names, info.Name)
				}
			case (info.Name == journal.GateGolden || info.Name == journal.GateOracleGolden) &&
				v.state.Subject.Golden == "":
			default:
				names = append(names, info.Name)
			}
		}
		for _, g := range v.opts.Gates {
			if slices.Contains(g.Phases, p.Phase) {
				names = append(names, g.Name)
			}
		}
		for _, name := range names {
			if !slices.ContainsFunc(p.Gates, func(g journal.GateResult) bool { return g.Name == name && g.OK }) {
				v.hold("phases", false, "phase %s has passed without its gate %s", p.Phase, name)
				return
			}
		}
	}
	v.hold("phases", true, "all phases before this one have passed, each with the gates that belong to it")
}

// checkThresholds compares both copies of the thresholds with this program's.
func (v *written) checkThresholds() {
	want, err := journal.Hash(gates.Thresholds())
	if err != nil {
		v.hold("thresholds", false, "%v", err)
		return
	}
	v.hold("thresholds", v.state.Subject.Thresholds == want,
		"the deployment was judged by thresholds of SHA-256 %.16s, those of this program have %.16s",
		v.state.Subject.Thresholds, want)
	data, err := v.read(workspace.FileThresholds)
	if err != nil {
		v.lacks("thresholds file", workspace.FileThresholds, err)
		return
	}
	text, err := json.MarshalIndent(gates.Thresholds(), "", "  ")
	v.hold("thresholds file", err == nil && bytes.Equal(append(text, '\n'), data),
		"%s has the thresholds of this program, byte by byte", workspace.FileThresholds)
}

// strict parses JSON without unknown fields or trailing data.
func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("trailing data after the JSON value")
	}
	return nil
}

// checkPlan reads plan.json and makes it the plan of all later checks. It also makes the journal's
// plan again from its recipe.
func (v *written) checkPlan() bool {
	made, err := v.bench.Models.Plan(v.bench.Recipe)
	if err != nil {
		v.hold("plan", false, "the journal's recipe makes no plan: %v", err)
		return false
	}
	v.hold("recipe", made.Hash == v.state.Plan, "the journal's recipe makes a plan of SHA-256 %.16s, the "+
		"journal says %.16s", made.Hash, v.state.Plan)
	path := filepath.Join(v.dir, workspace.FilePlan)
	var file *plan.Plan
	if _, err = v.read(workspace.FilePlan); err == nil {
		file, err = plan.Read(path)
	}
	if err == nil {
		err = file.Check(v.bench.Models.Config, v.info)
	}
	var hash string
	if err == nil {
		hash, err = models.PlanHash(file)
	}
	if err != nil {
		v.lacks("plan", workspace.FilePlan, err)
		return false
	}
	v.hold("plan", hash == v.state.Plan, "%s has SHA-256 %.16s, the plan that was decided %.16s", workspace.FilePlan,
		hash, v.state.Plan)
	v.checkStatus(file)
	// A swapped plan is judged too, so that the report has its failures.
	if err := v.bench.Models.SetPlan(v.bench.Recipe, file, hash); err != nil {
		v.hold("plan", false, "%v", err)
		return false
	}
	return true
}

// checkStatus compares the plan's status with the journal's. While the evaluation runs as a phase,
// the file has the status from before it.
func (v *written) checkStatus(p *plan.Plan) {
	claims := []plan.Status{v.state.PlanStatus()}
	if phase := v.state.Phases[journal.Evaluation]; phase.Status == journal.Running {
		if before, err := journal.Fold(v.records[:phase.Since-1]); err == nil {
			claims = append(claims, before.PlanStatus())
		}
	}
	// An evaluator itself writes the status failed, and it does no harm.
	v.hold("status", slices.Contains(claims, p.Status) || p.Status == plan.Failed, "%s says %q, the journal %q",
		workspace.FilePlan, p.Status, claims[0])
}

// checkPages compares progress.md with the journal. It may have been written at any record since
// the last phase ended.
func (v *written) checkPages() {
	last := 0
	for i, r := range v.records {
		if r.Kind == journal.KindFinish {
			last = i + 1
		}
	}
	data, err := v.read("progress.md")
	if err != nil {
		v.lacks("pages", "progress.md", err)
		return
	}
	for n := len(v.records); n >= last; n-- {
		s, err := journal.Fold(v.records[:n])
		if err != nil {
			break
		}
		if bytes.Equal(report.Progress(s), data) {
			v.hold("pages", true, "progress.md is what the journal makes of it")
			return
		}
	}
	v.hold("pages", false, "progress.md is not what the journal makes of it: one of them was changed, or cut")
}

// checkPerformance compares the figures with the journal's measurement.
func (v *written) checkPerformance() {
	var got report.Performance
	data, err := v.read(workspace.FilePerformance)
	if err == nil {
		err = strict(data, &got)
	}
	if err != nil {
		v.lacks("figures file", workspace.FilePerformance, err)
		return
	}
	want, err := report.PerformanceOf(v.state)
	if err != nil {
		v.hold("figures file", false, "%s: %v", workspace.FilePerformance, err)
		return
	}
	if err := want.Check(); err != nil {
		v.hold("figures file", false, "%s: %v", workspace.FilePerformance, err)
		return
	}
	text, err := json.MarshalIndent(want, "", "  ")
	v.hold("figures file", err == nil && bytes.Equal(append(text, '\n'), data),
		"%s is what the journal's last measurement of the plan makes of it: first token %s, %.4g tokens/s",
		workspace.FilePerformance, journal.Seconds(want.TTFT), want.TokensPerSec)
}
