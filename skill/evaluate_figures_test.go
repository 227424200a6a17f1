package skill

import (
	"math"
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

// Of many repetitions the fastest are kept, and of few all.
func TestFastest(t *testing.T) {
	if got := fastest([]float64{5, 1, 4, 2, 3}, 3); len(got) != 3 || got[0] != 1 || got[2] != 3 {
		t.Errorf("%v", got)
	}
	if got := fastest([]float64{2, 1}, 3); len(got) != 2 {
		t.Errorf("%v", got)
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
