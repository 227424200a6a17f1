package timing_test

import (
	"strings"
	"testing"

	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/timing"
)

// A predicted change is kept if it gains more than the clock's error. One to the published form is
// kept if it costs nothing, and none may slow the other phase.
func TestPredictedFaster(t *testing.T) {
	const e = timing.ClockError
	for _, tc := range []struct {
		name         string
		first, token float64 // times after the change, of 1 before
		published    bool
		kept         bool
	}{
		{"beyond the error", 1 - 1.1*e, 1, false, true},
		{"within the error", 1 - 0.9*e, 1, false, false},
		{"within the error, published", 1 - 0.9*e, 1, true, true},
		{"the same", 1, 1, false, false},
		{"the same, published", 1, 1, true, true},
		{"slower by less than a thousandth, published", 1.0005, 1, true, true},
		{"slower by a hundredth, published", 1.01, 1, true, false},
		{"faster, but slows the other phase", 0.5, 1.01, true, false},
		{"faster in both", 0.5, 0.5, false, true},
	} {
		for _, p := range []journal.Phase{journal.Prefill, journal.Decode} {
			first, token := tc.first, tc.token
			if p == journal.Decode {
				first, token = token, first
			}
			a := &journal.Attempt{Published: tc.published,
				Before: &journal.Measurement{Predicted: true, TTFT: 1, TokensPerSec: 1},
				After:  &journal.Measurement{Predicted: true, TTFT: first, TokensPerSec: 1 / token}}
			if kept, why := timing.Faster(a, p); kept != tc.kept || !strings.Contains(why, "predicted") {
				t.Errorf("%s, %v: kept %v, %q", tc.name, p, kept, why)
			}
		}
	}
}
