package main

import (
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/bench"
)

// With --turns, every repetition waits for a line and prints one. The results follow one more line.
func TestBenchTurns(t *testing.T) {
	args := []string{"bench", tiny("smollm-mha"), "--pp", "8", "--tg", "4@2", "--reps", "1", "--threads", "1",
		"--turns", "--json"}
	out := succeed(t, "\n\n\n\n\n", args...)
	answers, list, _ := strings.Cut(out, "[")
	if want := "pp8, 0 of 1\npp8, 1 of 1\ntg4@2, 0 of 1\ntg4@2, 1 of 1\n"; answers != want {
		t.Errorf("it printed %q, want %q", answers, want)
	}
	for _, r := range parse[[]bench.Result](t, "["+list) {
		if len(r.Samples) != 1 || len(r.Limits) != 1 || r.BandwidthShare <= 0 || r.PeakShare <= 0 {
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

// Without a meter only the speeds are printed.
func TestBenchPrintsWithoutLimits(t *testing.T) {
	var out strings.Builder
	r := bench.Result{Name: "tg4", Model: "M"}
	r.Device, r.LoadSeconds, r.Samples = "xdna", 1, []float64{3, 5, 4}
	r.Finish()
	if err := printBench(&out, []bench.Result{r}); err != nil ||
		!strings.Contains(out.String(), "tg4") || strings.Contains(out.String(), "measured") {
		t.Errorf("%v in %s", err, out.String())
	}
}
