package bench

import (
	"bufio"
	"context"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/npu/cpu"
)

// A turn that counts repeats until MinTurn has passed and ignores the first call. A warm-up turn and
// a repetition without turns call do once.
func TestTurnLasts(t *testing.T) {
	for _, tc := range []struct {
		turns, counts bool
		more          bool
	}{{true, true, true}, {true, false, false}, {false, true, false}} {
		b := &Bench{Out: io.Discard, MinTurn: 20 * time.Millisecond, Progress: func(string) func() { return func() {} }}
		if tc.turns {
			b.Turns = bufio.NewReader(strings.NewReader("\n"))
		}
		r, done := Result{Speed: Speed{Tokens: 8}}, 0
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

// Each sample is divided by the limits around it. The share is the median of these quotients, not
// the quotient of the medians.
func TestShares(t *testing.T) {
	r := Result{Roofline: Roofline{BytesPerToken: 10, FLOPsPerToken: 20}}
	for _, sample := range []struct{ speed, before, after float64 }{{5, 100, 100}, {10, 200, 200}, {20, 50, 150}} {
		r.Samples = append(r.Samples, sample.speed)
		r.Limits = append(r.Limits, Limits{
			Before: cpu.Limits{ReadBandwidth: sample.before, PeakFLOPS: 4 * sample.before},
			After:  cpu.Limits{ReadBandwidth: sample.after, PeakFLOPS: 4 * sample.after},
		})
	}
	r.Finish()
	if math.Abs(r.BandwidthShare-0.5) > 1e-12 || math.Abs(r.PeakShare-0.25) > 1e-12 || r.ReadBandwidth != 100 ||
		r.PeakFLOPsPerS != 400 || r.TokensPerS != 10 {
		t.Errorf("%+v", r)
	}
}
