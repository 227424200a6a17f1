package gatetest_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/npu/op"
)

// A suite that is limited to ops runs these alone.
func TestConformanceOfSomeOps(t *testing.T) {
	s := gatetest.Conformance(t, open(t, "go"), &gatetest.ConformanceOptions{Ops: []string{"Add",
		"Cast"}})
	seen := map[string]int{}
	for _, r := range s.Results {
		seen[r.Op.Kind()]++
	}
	if len(seen) != 2 || seen["Add"] < 10 || seen["Cast"] < 10 {
		t.Errorf("cases by op: %v, want those of Add and Cast", seen)
	}
}

// Wrong results come first, then refusals that are not allowed, then those that are, by op.
func TestSummaryOrder(t *testing.T) {
	mul, add, pick := op.MatMul{M: 1, K: 2, N: 3}, op.Add{Rows: 1, Width: 2}, op.Pick{Picks: 1,
		Rows: 2, Width: 3}
	refused := func(name string, o op.Op, why string) gatetest.CaseResult {
		err := &gatetest.RefusedError{Op: o, Err: errors.New("no kernel for " + name)}
		return gatetest.CaseResult{Case: gatetest.Case{Name: name, Op: o}, Refused: err, Allowed: why}
	}
	done := func(name string, o op.Op, reasons ...gate.Reason) gatetest.CaseResult {
		r := gate.Report{Verdict: gate.Verdict{Name: name, Reasons: reasons, Judged: 1}}
		return gatetest.CaseResult{Case: gatetest.Case{Name: name, Op: o}, Report: r}
	}
	s := gatetest.Summary{Device: "dev", LeftOut: 4, Results: []gatetest.CaseResult{
		refused("pick 1", pick, "not needed"), refused("mul 1", mul, ""), done("mul 2",
			mul), refused("mul 3", mul, ""),
		refused("add 1", add, ""), done("add 2", add,
			gate.Reason{Metric: "max abs", Text: "max abs is 7"}),
		{Case: gatetest.Case{Name: "mul 4", Op: mul}, Err: errors.New("device lost")},
	}}
	want := `dev: 5 cases failed, 1 passed, 1 refused as allowed, 4 of several sessions not run
  wrong: add 2: max abs is 7
  wrong: mul 4: device lost
  MatMul: 2 of 4 cases refused, and not allowed to, first mul 1: no kernel for mul 1
  Add: 1 of 2 cases refused, and not allowed to, first add 1: no kernel for add 1
  Pick: 1 of 1 cases refused as allowed (not needed), first pick 1: no kernel for pick 1`
	if got := s.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if err := s.Err(); !errors.Is(err, gate.ErrFailed) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("error %v", err)
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`"ok":false,"passed":1,"refused":1,"failed":5,"left_out":4,"wrong":[{"case":"add 2","op":"Add","reason":"max ` +
			`abs is 7"}`,
		`"refusals":[{"op":"MatMul","cases":2,"of":4,"allowed":"","first":"mul 1","reason":"no kernel for mul 1"}`,
	} {
		if !strings.Contains(string(data), part) {
			t.Errorf("JSON %s has no %s", data, part)
		}
	}
}

// A long list of wrong results is cut, and the number of the others stated.
func TestSummaryIsBounded(t *testing.T) {
	s := gatetest.Summary{}
	for range 25 {
		c := gatetest.Case{Name: "add", Op: op.Add{Rows: 1, Width: 1}}
		s.Results = append(s.Results, gatetest.CaseResult{Case: c, Err: errors.New("lost")})
	}
	if text := s.String(); strings.Count(text, "wrong: ") != 20 ||
		!strings.Contains(text, "and 5 more wrong results") {
		t.Errorf("got:\n%s", text)
	}
	if empty := (gatetest.Summary{}); empty.Err() == nil ||
		!strings.Contains(empty.Err().Error(), "nothing was compared") {
		t.Errorf("an empty summary: %v", empty.Err())
	}
}
