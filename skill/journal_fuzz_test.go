package skill

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// FuzzJournal reads hostile journals, once as they are and once with every line sealed anew, as
// somebody does who knows the format: reading, folding and the pages must not panic, and what is read
// must be the same when it is read again.
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
		records, whole, err := parseJournal("j", data)
		if err == nil {
			again, length, err := parseJournal("j", data[:whole])
			if err != nil || length != whole || len(again) != len(records) {
				t.Fatalf("%d records in %d bytes, then %d in %d, %v", len(records), whole, len(again), length, err)
			}
		}
		sealed := sealAnew(data)
		records, whole, err = parseJournal("j", sealed)
		if err != nil {
			return // a deployment that is not named first
		}
		if whole != int64(len(sealed)) {
			t.Fatalf("%d of %d bytes are read", whole, len(sealed))
		}
		s, err := StateOf(records)
		if err != nil || s.Subject == nil {
			return
		}
		again, err := StateOf(records)
		if err != nil || !reflect.DeepEqual(s.Phases, again.Phases) || s.Plan != again.Plan {
			t.Fatalf("folded again: %+v, %v", again.Phases, err)
		}
		for _, page := range []func(*State) []byte{planPage, progressPage, issuesPage, lessonsPage, trajectoryPage} {
			page(s)
		}
		phaseTiming(s)
		if p, err := (&Deployment{state: s}).Performance(); err == nil {
			performancePage(p)
		}
		if _, err := lessonsOf(records); err != nil {
			return
		}
		if p, more := s.Next(); !more && s.Phases[p].Status != Passed {
			t.Errorf("nothing is left, and %s is %s", p, s.Phases[p].Status)
		}
	})
}

// sealAnew makes a journal of the lines that are records, whatever their numbers and sums.
func sealAnew(data []byte) []byte {
	var out []byte
	sum, seq := "", 0
	for line := range bytes.Lines(data) {
		var r Record
		if json.Unmarshal(line, &r) != nil {
			continue
		}
		r.Seq = seq + 1
		sealed, err := r.seal(sum)
		if err != nil || (r.Kind == KindDeployment) != (seq == 0) {
			continue
		}
		seq, sum = r.Seq, r.Sum
		out = append(append(out, sealed...), '\n')
	}
	return out
}

// everyKind is a journal with records of every kind.
func everyKind(tb testing.TB) []byte {
	tb.Helper()
	recipe := Recipe{SeqLen: 40, Chunk: 32}
	gate := GateResult{Name: GatePaper, Subject: "p", OK: true, Figures: map[string]float64{"pearson": 1}}
	m := Measurement{Plan: "p", Positions: 24, TTFT: 0.1, TokensPerSec: 10, Clock: "wall", Repetitions: 5}
	symptom := Symptom{Phase: Prefill, Gate: GatePaper, Recipe: recipe}
	finish := Finish{Passed: true, Gates: []string{gate.Key()}}
	type entry struct {
		kind  Kind
		phase Phase
		data  any
	}
	list := []entry{{KindDeployment, Reference, Subject{Name: "m", Device: "cpu", SeqLen: 40}}}
	for _, p := range Phases() {
		list = append(list, entry{KindStart, p, Start{}}, entry{KindGate, p, gate}, entry{KindFinish, p, finish})
		if p == Reference {
			list = append(list, entry{KindPlan, p, PlanNote{Recipe: recipe, Hash: "p"}})
		}
	}
	list = append(list,
		entry{KindResume, Evaluation, Resume{PID: 1}}, entry{KindKernel, Prefill, KernelNote{Key: "Add-1", Kind: "Add"}},
		entry{KindMeasure, Prefill, m}, entry{KindMeasure, Finalise, m},
		entry{KindAttempt, Prefill, Attempt{Step: "a", Outcome: Kept, Recipe: recipe, Plan: "q", Before: &m, After: &m,
			Turns: &Turns{Count: 5, Gain: 0.5}, Gates: []string{gate.Key()}}},
		entry{KindStart, Prefill, Start{Why: "again"}},
		entry{KindPart, Prefill, PartNote{Gate: gate.Key(), Part: "after 8 ids"}},
		entry{KindTurns, Prefill, TurnsNote{Before: "p", After: "q", Turns: []Turn{{}}}},
		entry{KindIssue, Prefill, Issue{Symptom: "s"}}, entry{KindSkill, Prefill, SkillNote{Skill: "s", Symptom: symptom}},
		entry{KindQuestion, Prefill, Question{Phase: Prefill, Symptom: symptom}},
		entry{KindChoice, Prefill, Choice{Direction: "stop"}},
		entry{KindDecision, Decode, Decision{Action: Redirect, Phase: Prefill}},
		entry{KindEvaluation, Evaluation, EvaluationReport{OK: true, Plan: "q"}})
	var out []byte
	sum := ""
	for i, e := range list {
		data, err := json.Marshal(e.data)
		if err != nil {
			tb.Fatal(err)
		}
		r := Record{Seq: i + 1, Time: time.Unix(int64(i), 0).UTC(), Kind: e.kind, Phase: e.phase, Data: data}
		line, err := r.seal(sum)
		if err != nil {
			tb.Fatal(err)
		}
		sum = r.Sum
		out = append(append(out, line...), '\n')
	}
	return out
}

// The seed of the fuzz test is a journal that is right, so that what is made of it comes far.
func TestEveryKindIsAJournal(t *testing.T) {
	records, _, err := parseJournal("j", everyKind(t))
	if err != nil {
		t.Fatal(err)
	}
	s, err := StateOf(records)
	if err != nil || s.Phases[Decode].Status != Pending || len(s.turnsOf(Prefill)) != 1 || s.Plan != "q" {
		t.Errorf("%+v, %v", s, err)
	}
}
