package main

import (
	"math"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu/cpu"
)

// In turns every repetition waits for its line and answers with one; the results come behind the last.
func TestBenchTurns(t *testing.T) {
	args := []string{"bench", tiny("smollm-mha"), "--pp", "8", "--tg", "4", "--reps", "1", "--threads", "1", "--turns", "--json"}
	out := succeed(t, "\n\n\n\n", args...)
	answers, list, _ := strings.Cut(out, "[")
	if want := "pp8, 0 of 1\npp8, 1 of 1\ntg4, 0 of 1\ntg4, 1 of 1\n"; answers != want {
		t.Errorf("it answers %q, want %q", answers, want)
	}
	for _, r := range parse[[]benchResult](t, "["+list) {
		if len(r.Samples) != 1 || len(r.Beside) != 1 || r.BandwidthShare <= 0 || r.PeakShare <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if r := command("\n\n\n", args...); r.code == 0 || !strings.Contains(r.stderr, "stdin ended before tg4, 1 of 1") {
		t.Errorf("without the last line: exit code %d, %q", r.code, r.stderr)
	}
}

// Every speed is held against what the machine could do beside it: one that is half of the limit stays half when the limit doubles with it.
func TestBenchShares(t *testing.T) {
	r := benchResult{BytesPerToken: 10, FLOPsPerToken: 20}
	for _, sample := range []struct{ speed, before, behind float64 }{{5, 100, 100}, {10, 200, 200}, {10, 100, 300}} {
		r.Samples = append(r.Samples, sample.speed)
		r.Beside = append(r.Beside, beside{
			Before: cpu.Limits{ReadBandwidth: sample.before, PeakFLOPS: 4 * sample.before},
			Behind: cpu.Limits{ReadBandwidth: sample.behind, PeakFLOPS: 4 * sample.behind},
		})
	}
	r.fill(1 << 20)
	if math.Abs(r.BandwidthShare-0.5) > 1e-12 || math.Abs(r.PeakShare-0.25) > 1e-12 || r.ReadBandwidth != 200 || r.PeakFLOPsPerS != 800 || r.TokensPerS != 10 || r.PeakRSS != 1<<20 {
		t.Errorf("%+v", r)
	}
}
