package main

import (
	"bufio"
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/npu/cpu"
)

// In turns every repetition waits for its line and answers with one; the results come behind one
// more.
func TestBenchTurns(t *testing.T) {
	args := []string{"bench", tiny("smollm-mha"), "--pp", "8", "--tg", "4@2", "--reps", "1", "--threads", "1",
		"--turns", "--json"}
	out := succeed(t, "\n\n\n\n\n", args...)
	answers, list, _ := strings.Cut(out, "[")
	if want := "pp8, 0 of 1\npp8, 1 of 1\ntg4@2, 0 of 1\ntg4@2, 1 of 1\n"; answers != want {
		t.Errorf("it answers %q, want %q", answers, want)
	}
	for _, r := range parse[[]benchResult](t, "["+list) {
		if len(r.Samples) != 1 || len(r.Beside) != 1 || r.BandwidthShare <= 0 || r.PeakShare <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if r := command("\n", args...); r.code == 0 || !strings.Contains(r.stderr, "stdin ended before pp8, 1 of 1") {
		t.Errorf("without the second line: exit code %d, %q", r.code, r.stderr)
	}
	for _, more := range [][]string{{"--sessions", "2"}, {"--device", "sim"}} {
		if r := command("", append(args, more...)...); r.code != 2 ||
			!strings.Contains(r.stderr, "--turns needs --device cpu") {
			t.Errorf("with %v: exit code %d, %q", more, r.code, r.stderr)
		}
	}
}

// A turn that counts goes on until it has lasted long enough, and leaves out the first repetition;
// one that warms up does not, and neither does one without turns.
func TestBenchTurnLasts(t *testing.T) {
	for _, tc := range []struct {
		turns, counts bool
		more          bool
	}{{true, true, true}, {true, false, false}, {false, true, false}} {
		b := &bencher{app: &app{out: &strings.Builder{}, err: &strings.Builder{}}, turn: 20 * time.Millisecond}
		if tc.turns {
			b.next = bufio.NewReader(strings.NewReader("\n"))
		}
		r, done := benchResult{Tokens: 8}, 0
		err := b.repeat(context.Background(), "pp8, 1 of 1", &r, tc.counts, func() (time.Duration, error) {
			done++
			time.Sleep(time.Millisecond)
			if done == 1 {
				return 8 * time.Second, nil // cold
			}
			return time.Duration(done%2+1) * time.Second, nil
		})
		if err != nil || (done > 1) != tc.more {
			t.Errorf("%+v: %d repetitions, %v", tc, done, err)
		}
		if !tc.counts {
			if len(r.Samples) != 0 {
				t.Errorf("%+v: %v tokens/s count", tc, r.Samples)
			}
			continue
		}
		want := 1.0
		if tc.more { // 1, 2, 1, 2 ... seconds
			n := done - 1
			want = 8 * float64(n) / float64(n+n/2)
		}
		if len(r.Samples) != 1 || math.Abs(r.Samples[0]-want) > 1e-6 {
			t.Errorf("%+v: %v tokens/s in %d repetitions, want %v", tc, r.Samples, done, want)
		}
	}
}

// Every speed is held against what the machine could do on both its sides: the share is that of the
// middle one, not that of the middle speed and the middle limit.
func TestBenchShares(t *testing.T) {
	r := benchResult{BytesPerToken: 10, FLOPsPerToken: 20}
	for _, sample := range []struct{ speed, before, behind float64 }{{5, 100, 100}, {10, 200, 200}, {20, 50, 150}} {
		r.Samples = append(r.Samples, sample.speed)
		r.Beside = append(r.Beside, beside{
			Before: cpu.Limits{ReadBandwidth: sample.before, PeakFLOPS: 4 * sample.before},
			Behind: cpu.Limits{ReadBandwidth: sample.behind, PeakFLOPS: 4 * sample.behind},
		})
	}
	r.fill(1 << 20)
	if math.Abs(r.BandwidthShare-0.5) > 1e-12 || math.Abs(r.PeakShare-0.25) > 1e-12 || r.ReadBandwidth != 100 ||
		r.PeakFLOPsPerS != 400 || r.TokensPerS != 10 || r.PeakRSS != 1<<20 {
		t.Errorf("%+v", r)
	}
}

// A device that nothing measures has its speeds alone.
func TestBenchPrintsWithoutLimits(t *testing.T) {
	var out strings.Builder
	b := &bencher{app: &app{out: &out}}
	r := benchResult{Test: "tg4", Samples: []float64{3, 5, 4}}
	r.fill(0)
	if err := b.print(benchResult{Device: "xdna", Model: "M", LoadSeconds: 1}, []benchResult{r}, nil); err != nil ||
		!strings.Contains(out.String(), "tg4") || strings.Contains(out.String(), "measured") {
		t.Errorf("%v in %s", err, out.String())
	}
}
