package skill

import (
	"errors"
	"fmt"
	"time"

	"github.com/npukit/npukit/internal/atomicfile"
)

// FileEvaluationData is the evaluator's report for programs.
const FileEvaluationData = "evaluation_report.json"

// write puts the report into the workspace. The evaluator trusts nothing there, so that it is no matter what lay in its place.
func (v *evaluation) write() error {
	w := &workspace{dir: v.dir, now: time.Now, write: atomicfile.Write}
	return errors.Join(w.put(FileEvaluation, evaluationPage(&v.report, v.state, v.info.Name)), w.putJSON(FileEvaluationData, v.report))
}

// evaluationPage is the report for people.
func evaluationPage(r *EvaluationReport, s *State, device string) []byte {
	p := &page{}
	word := "accepted"
	if !r.OK {
		word = "not accepted"
	}
	name := "a workspace whose journal cannot be read"
	if s != nil && s.Subject != nil {
		name = s.Subject.Name + " on " + s.Subject.Device
	}
	p.line("# Evaluation: %s: %s\n", name, word)
	p.line("By a process of its own, which believed nothing that was written: %.1f s on %s. Plan: SHA-256 %.16s.\n", r.Seconds, device, r.Plan)
	if r.Reference != "" {
		p.line("%s\n", r.Reference)
	}
	if m := r.Measured; m != nil {
		how := fmt.Sprintf("measured by the evaluator, %d repetitions, spread %.1f and %.1f %%; %s", m.Repetitions, 100*m.TTFTNoise, 100*m.DecodeNoise,
			busyText(m.Others))
		if m.Predicted {
			how = "predicted by clock " + m.Clock + ", not measured"
		}
		began := ""
		if f := r.First; f != nil {
			began = fmt.Sprintf(" The plan with which the trajectory begins: first token %s, %.4g tokens/s.", seconds(f.TTFT), f.TokensPerSec)
		}
		p.line("First token %s, %.4g tokens/s, prompt of %d (%s).%s\n", seconds(m.TTFT), m.TokensPerSec, m.Positions, how, began)
	}
	p.line("| check | verdict | what was seen |\n|---|---|---|")
	for _, pass := range []bool{false, true} { // what is wrong comes first
		for _, c := range r.Checks {
			if c.OK == pass {
				p.line("| %s | %s | %s |", cell(c.Name), verdictWord(c.OK), cell(c.Detail))
			}
		}
	}
	p.line("\nThe root of trust is the program with the thresholds, gates and oracle that are compiled into it. Of the environment only what "+
		"says where files and compiled programs come from is looked at, and every program is judged by what it computes. Pages and pictures "+
		"other than progress.md are for reading and were not looked at: %s is what the deployment did.", FileJournal)
	return p.bytes()
}
