package evaluate

import (
	"math"
	"strings"
	"testing"

	"github.com/npukit/npukit/skill/internal/journal"
)

// A claim is compared with the fastest repetition, which load disturbs least. A busy machine does
// not make an honest claim fail, and no claim passes that is faster than the machine.
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
			t.Errorf("%s: same %v, within what load explains %v; %s, %s", name, f.same(), f.explained(), f,
				f.distance())
		}
	}
}

// Without a verdict, the error names the claims that were not reproduced, and no others. It also
// tells if a claim was measured on a busy machine.
func TestNotFound(t *testing.T) {
	seen := func(least, most, claimed float64) (f figure) {
		f.add(least, most, claimed, fasterMost, math.Inf(1))
		return f
	}
	was := journal.Measurement{TTFT: 1e-3, TokensPerSec: 1e4}
	right, wrong := seen(1e-3, 1.1e-3, 1e-3), seen(2e-3, 3e-3, 1e-3)
	gain := &start{claim: journal.Measurement{TTFT: 1e-2, TokensPerSec: 1e4}, first: seen(0.2, 0.5, 0.1),
		token: seen(1, 1, 1)}
	for name, tc := range map[string]struct {
		first, token figure
		began        *start
		want         string
	}{
		"first token": {wrong, right, nil, "first token 2 ms to 3 ms, and performance.json has 1 ms"},
		"both": {wrong, wrong, nil, "first token 2 ms to 3 ms, and performance.json has 1 ms; a token 2 ms " +
			"to 3 ms, and performance.json has 100 us"},
		"the gain": {right, right, gain, "20 to 50 % of the first plan's time to the first token are left, and 100 " +
			"% of its time of a token; " +
			"performance.json claims 10 % and 100 %"},
	} {
		if got := notFound(tc.first, tc.token, tc.began, was); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if quiet := disturbed(was); quiet != "" {
		t.Errorf("a quiet machine: %q", quiet)
	}
	share := 0.96
	was.Others = &share
	if busy := disturbed(was); !strings.Contains(busy, "other processes took 96 % of the machine") {
		t.Errorf("a busy one: %q", busy)
	}
}

// The claimed gain is the share of the first plan's time that is left. A first plan that is claimed
// slower than it is fails on any machine; an honest deployment on a busy machine passes.
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
		at := func(s float64) journal.Measurement { return journal.Measurement{TTFT: s, TokensPerSec: 1 / s} }
		began := at(tc.seen.first)
		s := &start{claim: at(tc.claimed.first), took: &began}
		s.add(at(tc.seen.last), at(tc.claimed.last), fasterMost, math.Inf(1))
		if s.first.same() != tc.same || s.token.same() != tc.same || s.same() != tc.same {
			t.Errorf("%s: first token %v, %s; a token %v, %s", name, s.first.same(), s.first.distance(),
				s.token.same(), s.token.distance())
		}
	}
	if nothing := (*start)(nil); !nothing.same() || !nothing.explained() {
		t.Error("who claims no gain is refused")
	}
}
