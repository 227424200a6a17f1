package report

import (
	"fmt"

	"github.com/npukit/npukit/internal/markdown"
	"github.com/npukit/npukit/skill/internal/journal"
)

// Evaluation returns the evaluator's report for people.
func Evaluation(r *journal.EvaluationReport, s *journal.State, device string) []byte {
	p := &markdown.Page{}
	word := "accepted"
	if !r.OK {
		word = "not accepted"
	}
	name := "a workspace whose journal cannot be read"
	if s != nil && s.Subject != nil {
		name = s.Subject.Name + " on " + s.Subject.Device
	}
	p.Linef("# Evaluation: %s: %s\n", name, word)
	p.Linef("By a process of its own, which believed nothing that was written: %.1f s on %s. Plan: SHA-256 %.16s.\n",
		r.Seconds, device, r.Plan)
	if r.Reference != "" {
		p.Linef("%s\n", r.Reference)
	}
	if m := r.Measured; m != nil {
		how := fmt.Sprintf("measured by the evaluator, %d repetitions, spread %.1f and %.1f %%; %s", m.Repetitions,
			100*m.TTFTNoise, 100*m.DecodeNoise,
			journal.Busy(m.Others))
		if m.Predicted {
			how = "predicted by clock " + m.Clock + ", not measured"
		}
		began := ""
		if f := r.First; f != nil {
			began = fmt.Sprintf(" The plan with which the trajectory begins: first token %s, %.4g tokens/s.",
				journal.Seconds(f.TTFT), f.TokensPerSec)
		}
		p.Linef("First token %s, %.4g tokens/s, prompt of %d (%s).%s\n", journal.Seconds(m.TTFT), m.TokensPerSec,
			m.Positions, how, began)
	}
	p.Linef("| check | verdict | what was seen |\n|---|---|---|")
	for _, pass := range []bool{false, true} { // failed checks come first
		for _, c := range r.Checks {
			if c.OK == pass {
				p.Linef("| %s | %s | %s |", markdown.Cell(c.Name), verdictWord(c.OK), markdown.Cell(c.Detail))
			}
		}
	}
	p.Linef("\nThe root of trust is the program with the thresholds, gates and oracle that are compiled into it. "+
		"Of the environment only what "+
		"says where files and compiled programs come from is looked at, and every program is judged by what it "+
		"computes. Pages and pictures "+
		"other than progress.md are for reading and were not looked at: %s is what the deployment did.",
		journal.FileJournal)
	return p.Bytes()
}
