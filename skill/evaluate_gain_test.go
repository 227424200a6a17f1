package skill

import (
	"context"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu"
)

// The gain that is claimed is the share of the first plan's time that is left. Who claims a slower start is caught, whatever the machine; an honest deployment on a machine that was
// busy, or is now, is not.
func TestGainBounds(t *testing.T) {
	type times struct{ first, last float64 }
	for name, tc := range map[string]struct {
		claimed, seen times
		same          bool
	}{
		"the same":                              {times{2, 1}, times{2, 1}, true},
		"on a machine that was half as fast":    {times{4, 2}, times{2, 1}, true},
		"evaluated on one that is half as fast": {times{2, 1}, times{4, 2}, true},
		"within what repetitions differ by":     {times{2.4, 1}, times{2, 1}, true},
		"a smaller gain":                        {times{1.1, 1}, times{2, 1}, true},
		"a start that is claimed slower":        {times{3, 1}, times{2, 1}, false},
		"and a machine that was half as fast":   {times{6, 2}, times{2, 1}, false},
		"a start without end":                   {times{math.Inf(1), 1}, times{2, 1}, false},
		"a start that takes ten times as long":  {times{20, 1}, times{2, 1}, false},
	} {
		at := func(s float64) Measurement { return Measurement{TTFT: s, TokensPerSec: 1 / s} }
		began := at(tc.seen.first)
		s := &start{claim: at(tc.claimed.first), took: &began}
		s.add(at(tc.seen.last), at(tc.claimed.last), fasterMost, math.Inf(1))
		if s.first.same() != tc.same || s.token.same() != tc.same || s.same() != tc.same {
			t.Errorf("%s: first token %v, %s; a token %v, %s", name, s.first.same(), s.first.distance(), s.token.same(), s.token.distance())
		}
	}
	if nothing := (*start)(nil); !nothing.same() || !nothing.explained() {
		t.Error("who claims no gain is refused")
	}
}

// gainOf takes the figures of a workspace again, and says what becomes of its gain.
func gainOf(t *testing.T, dir string, dev npu.Device) EvaluationCheck {
	t.Helper()
	v := &evaluation{dir: dir, dev: dev, info: dev.Info(), opts: *loose()}
	if !v.readJournal() || !must(v.openModel(t.TempDir())) {
		t.Fatalf("%+v", v.report.Checks)
	}
	defer v.d.Close()
	if !v.checkPlan() {
		t.Fatalf("%+v", v.report.Checks)
	}
	if v.checkPerformance(); v.refused() {
		t.Fatalf("the attack does not hold together: %+v", v.report.Checks)
	}
	v.report.Checks = nil
	if err := v.measureAgain(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(v.report.Checks) == 0 {
		t.Fatal("nothing was looked at")
	}
	return v.report.Checks[len(v.report.Checks)-1]
}

// gainAttack makes the first figure of a workspace on the virtual array slower, in everything that is written: predictions are held to the last digits.
func gainAttack(t *testing.T, dir, model string, dev npu.Device) {
	t.Helper()
	fresh := func() *victim {
		v := &victim{t, filepath.Join(t.TempDir(), "w"), model}
		copyTo(t, dir, v.dir)
		return v
	}
	v := fresh()
	if c := gainOf(t, v.dir, dev); c.Name != "gain" || !c.OK || !strings.Contains(c.Detail, "predicted again") || !strings.Contains(c.Detail, "every deployment begins") {
		t.Errorf("as it is: %+v", c)
	}
	first := must(ReadState(v.dir)).Measured[0].Value.Plan
	for name, change := range map[string]func(m *Measurement){
		"a first token that takes longer": func(m *Measurement) { m.TTFT *= 1.01 },
		"a token that takes longer":       func(m *Measurement) { m.TokensPerSec /= 1.01 },
	} {
		v := fresh()
		rewrite(v, KindMeasure, func(m *Measurement) {
			if m.Plan == first {
				change(m)
			}
		})
		if c := gainOf(t, v.dir, dev); c.Name != "gain" || c.OK {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// Figures that were measured with other kernels or threads, and are not found again, are no verdict: the error says what is needed.
func TestFiguresOfAnotherDevice(t *testing.T) {
	t.Parallel()
	v, dev := deployed(t)(t), openCPU(t)
	rewrite(v, KindMeasure, func(m *Measurement) { m.TTFT /= 1000; m.Device = "cpu (64 threads, other)" })
	e := &evaluation{dir: v.dir, dev: dev, info: dev.Info(), opts: *loose()}
	e.opts.Model = v.model
	if !e.readJournal() || !must(e.openModel(t.TempDir())) {
		t.Fatalf("%+v", e.report.Checks)
	}
	defer e.d.Close()
	if !e.checkPlan() {
		t.Fatalf("%+v", e.report.Checks)
	}
	err := e.measureAgain(context.Background())
	if err == nil || e.refused() || !strings.Contains(err.Error(), "no verdict") || !strings.Contains(err.Error(), "cpu (64 threads, other)") || !strings.Contains(err.Error(), dev.Info().Name) {
		t.Errorf("%v, %+v", err, e.report.Checks)
	}
}
