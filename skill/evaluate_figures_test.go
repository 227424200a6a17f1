package skill

import (
	"math"
	"strings"
	"testing"
)

// A claim is held to the fastest repetition that was seen, which other load disturbs least: a machine that was busy does not make an honest claim false, and nothing makes
// one true that is faster than the machine ever was.
func TestFigureBounds(t *testing.T) {
	type seen struct{ least, median float64 }
	quiet, bursts, loaded := []seen{{1.00, 1.02}}, []seen{{1.9, 2.4}, {1.05, 1.6}}, []seen{{2.1, 2.6}, {2.0, 2.2}}
	for name, tc := range map[string]struct {
		claimed    float64
		seen       []seen
		same, busy bool // busy: other processes may be why it is not
	}{
		"the same":                               {1.02, quiet, true, true},
		"a little faster":                        {0.80, quiet, true, true},
		"taken on a busy machine":                {1.90, quiet, true, true},
		"faster than can be":                     {0.75, quiet, false, true},
		"twice as fast":                          {0.50, quiet, false, true},
		"much slower":                            {45, quiet, true, true},
		"without end":                            {math.Inf(1), quiet, false, false},
		"honest, and bursts of load now":         {1.02, bursts, true, true},
		"forged, and bursts of load now":         {0.70, bursts, false, true},
		"honest, and load all the time":          {1.02, loaded, false, true},
		"forged, and load all the time":          {0.10, loaded, false, false},
		"ten times as fast as can be, and quiet": {0.10, quiet, false, false},
		"nothing":                                {0, quiet, false, false},
	} {
		var f figure
		for _, s := range tc.seen {
			f.add(s.least, s.median, tc.claimed, fasterMost, math.Inf(1))
		}
		if f.same() != tc.same || f.explained() != tc.busy {
			t.Errorf("%s: same %v, within what load explains %v; %s, %s", name, f.same(), f.explained(), f, f.distance())
		}
	}
}

// Where no verdict can be given the error names what was not found again, and nothing else; and a claim that was measured beside other work says so.
func TestNotFound(t *testing.T) {
	seen := func(least, most, claimed float64) (f figure) {
		f.add(least, most, claimed, fasterMost, math.Inf(1))
		return f
	}
	was := Measurement{TTFT: 1e-3, TokensPerSec: 1e4}
	right, wrong := seen(1e-3, 1.1e-3, 1e-3), seen(2e-3, 3e-3, 1e-3)
	gain := &start{claim: Measurement{TTFT: 1e-2, TokensPerSec: 1e4}, first: seen(0.2, 0.5, 0.1), token: seen(1, 1, 1)}
	for name, tc := range map[string]struct {
		first, token figure
		began        *start
		want         string
	}{
		"first token": {wrong, right, nil, "first token 2 ms to 3 ms, and performance.json has 1 ms"},
		"both":        {wrong, wrong, nil, "first token 2 ms to 3 ms, and performance.json has 1 ms; a token 2 ms to 3 ms, and performance.json has 100 us"},
		"the gain": {right, right, gain, "20 to 50 % of the first plan's time to the first token are left, and 100 % of its time of a token; " +
			"performance.json claims 10 % and 100 %"},
	} {
		if got := notFound(tc.first, tc.token, tc.began, was); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if quiet := was.disturbed(); quiet != "" {
		t.Errorf("a quiet machine: %q", quiet)
	}
	share := 0.96
	was.Others = &share
	if busy := was.disturbed(); !strings.Contains(busy, "other processes took 96 % of the machine") {
		t.Errorf("a busy one: %q", busy)
	}
}

// What others take is a share, and is not known at once.
func TestOthersShare(t *testing.T) {
	w := watchOthers()
	if _, ok := w.share(); ok {
		t.Error("known at once")
	}
	if !w.known {
		t.Skip("it cannot be known on this system")
	}
	if !w.disturb() {
		t.Error("taken for quiet before anything was seen")
	}
	w.before.own -= 10 // seconds that this process has worked, and nobody else
	w.started = w.started.Add(-leastWatched)
	w.before.all -= 20
	w.before.busy -= 10
	if s, ok := w.share(); !ok || s > 0.02 {
		t.Errorf("own work is taken for that of others: %v, %v", s, ok)
	}
	w.before.busy -= 10
	if s, ok := w.share(); !ok || s < 0.45 || s > 0.55 || !w.disturb() {
		t.Errorf("half of the machine was taken: %v, %v", s, ok)
	}
}
