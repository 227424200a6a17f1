package report

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/lesson"
)

// FuzzJournal reads hostile journals, as they are and with every line sealed again. Reading,
// folding and the pages must not panic, and reading again must return the same.
func FuzzJournal(f *testing.F) {
	data := everyKind(f)
	lines := bytes.SplitAfter(data, []byte("\n"))
	f.Add(data)
	for n := range lines {
		f.Add(bytes.Join(lines[:n], nil))
	}
	f.Add([]byte(`{"seq":1,"kind":"deployment","phase":"reference","data":{"name":"m"}}` + "\n" +
		`{"seq":2,"kind":"decision","phase":"decode","data":{"action":"redirect","phase":"evaluation"}}` + "\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, whole, err := journal.Parse("j", data)
		if err == nil {
			again, length, err := journal.Parse("j", data[:whole])
			if err != nil || length != whole || len(again) != len(records) {
				t.Fatalf("%d records in %d bytes, then %d in %d, %v", len(records), whole, len(again), length, err)
			}
		}
		sealed := sealAnew(data)
		records, whole, err = journal.Parse("j", sealed)
		if err != nil {
			return // a deployment that is not named first
		}
		if whole != int64(len(sealed)) {
			t.Fatalf("%d of %d bytes are read", whole, len(sealed))
		}
		s, err := journal.Fold(records)
		if err != nil || s.Subject == nil {
			return
		}
		again, err := journal.Fold(records)
		if err != nil || !reflect.DeepEqual(s.Phases, again.Phases) || s.Plan != again.Plan {
			t.Fatalf("folded again: %+v, %v", again.Phases, err)
		}
		for _, page := range []func(*journal.State) []byte{Plan, Progress, Issues, Lessons, Trajectory} {
			page(s)
		}
		Timing(s)
		if p, err := PerformanceOf(s); err == nil {
			PerformancePage(p)
		}
		if _, err := lesson.LearnFrom(records); err != nil {
			return
		}
		if p, more := s.Next(); !more && s.Phases[p].Status != journal.Passed {
			t.Errorf("nothing is left, and %s is %s", p, s.Phases[p].Status)
		}
	})
}

// sealAnew returns a journal of the lines that are records, with new numbers and sums.
func sealAnew(data []byte) []byte {
	var out []byte
	sum, seq := "", 0
	for line := range bytes.Lines(data) {
		var r journal.Record
		if json.Unmarshal(line, &r) != nil {
			continue
		}
		r.Seq = seq + 1
		sealed, err := r.Seal(sum)
		if err != nil || (r.Kind == journal.KindDeployment) != (seq == 0) {
			continue
		}
		seq, sum = r.Seq, r.Sum
		out = append(append(out, sealed...), '\n')
	}
	return out
}

// everyKind returns a journal with records of every kind.
func everyKind(tb testing.TB) []byte {
	tb.Helper()
	recipe := journal.Recipe{SeqLen: 40, Chunk: 32}
	gate := journal.GateResult{Name: journal.GatePaper, Subject: "p", OK: true,
		Figures: map[string]float64{"pearson": 1}}
	m := journal.Measurement{Plan: "p", Positions: 24, TTFT: 0.1, TokensPerSec: 10, Clock: "wall", Repetitions: 5}
	symptom := journal.Symptom{Phase: journal.Prefill, Gate: journal.GatePaper, Recipe: recipe}
	finish := journal.Finish{Passed: true, Gates: []string{gate.Key()}}
	type entry struct {
		kind  journal.Kind
		phase journal.Phase
		data  any
	}
	list := []entry{{journal.KindDeployment, journal.Reference, journal.Subject{Name: "m", Device: "cpu", SeqLen: 40}}}
	for _, p := range journal.Phases() {
		list = append(list, entry{journal.KindStart, p, journal.Start{}}, entry{journal.KindGate, p, gate},
			entry{journal.KindFinish, p, finish})
		if p == journal.Reference {
			list = append(list, entry{journal.KindPlan, p, journal.PlanNote{Recipe: recipe, Hash: "p"}})
		}
	}
	list = append(list,
		entry{journal.KindResume, journal.Evaluation, journal.Resume{PID: 1}},
		entry{journal.KindKernel, journal.Prefill, journal.KernelNote{Key: "Add-1", Kind: "Add"}},
		entry{journal.KindMeasure, journal.Prefill, m}, entry{journal.KindMeasure, journal.Finalise, m},
		entry{journal.KindAttempt, journal.Prefill, journal.Attempt{Step: "a", Outcome: journal.Kept, Recipe: recipe,
			Plan: "q", Before: &m, After: &m,
			Turns: &journal.Turns{Count: 5, Gain: 0.5}, Gates: []string{gate.Key()}}},
		entry{journal.KindStart, journal.Prefill, journal.Start{Why: "again"}},
		entry{journal.KindPart, journal.Prefill, journal.PartNote{Gate: gate.Key(), Part: "after 8 ids"}},
		entry{journal.KindTurns, journal.Prefill, journal.TurnsNote{Before: "p", After: "q",
			Turns: []journal.Turn{{}}}},
		entry{journal.KindIssue, journal.Prefill, journal.Issue{Symptom: "s"}},
		entry{journal.KindSkill, journal.Prefill, journal.SkillNote{Skill: "s", Symptom: symptom}},
		entry{journal.KindQuestion, journal.Prefill, journal.Question{Phase: journal.Prefill, Symptom: symptom}},
		entry{journal.KindChoice, journal.Prefill, journal.Choice{Direction: "stop"}},
		entry{journal.KindDecision, journal.Decode, journal.Decision{Action: journal.Redirect, Phase: journal.Prefill}},
		entry{journal.KindEvaluation, journal.Evaluation, journal.EvaluationReport{OK: true, Plan: "q"}})
	var out []byte
	sum := ""
	for i, e := range list {
		data, err := json.Marshal(e.data)
		if err != nil {
			tb.Fatal(err)
		}
		r := journal.Record{Seq: i + 1, Time: time.Unix(int64(i), 0).UTC(), Kind: e.kind, Phase: e.phase, Data: data}
		line, err := r.Seal(sum)
		if err != nil {
			tb.Fatal(err)
		}
		sum = r.Sum
		out = append(append(out, line...), '\n')
	}
	return out
}

// The seed of the fuzz test is a valid journal.
func TestEveryKindIsAJournal(t *testing.T) {
	records, _, err := journal.Parse("j", everyKind(t))
	if err != nil {
		t.Fatal(err)
	}
	s, err := journal.Fold(records)
	if err != nil || s.Phases[journal.Decode].Status != journal.Pending || len(s.TurnsOf(journal.Prefill)) != 1 ||
		s.Plan != "q" {
		t.Errorf("%+v, %v", s, err)
	}
}
