package stats_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/npukit/npukit/gate/internal/stats"
)

// The statistics agree with gonum's, and NaN is left out.
func TestStats(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := 1; n < 200; n++ {
		kl := make([]float64, n)
		for i := range kl {
			kl[i] = rng.ExpFloat64()
		}
		sorted := slices.Clone(kl)
		slices.Sort(sorted)
		mean, p90, highest, at := stats.KL(kl)
		if want := stat.Mean(kl, nil); math.Abs(mean-want) > 1e-12*want {
			t.Errorf("%d values: mean %v, want %v", n, mean, want)
		}
		if want := stat.Quantile(0.9, stat.Empirical, sorted, nil); p90 != want {
			t.Errorf("%d values: p90 %v, want %v", n, p90, want)
		}
		if highest != sorted[n-1] || kl[at] != highest {
			t.Errorf("%d values: maximum %v at %d", n, highest, at)
		}
		if _, stdErr := stats.Mean(kl); n == 1 && stdErr != 0 {
			t.Errorf("one value has the standard error %v", stdErr)
		} else if n > 1 {
			_, dev := stat.MeanStdDev(kl, nil)
			if want := stat.StdErr(dev, float64(n)); math.Abs(stdErr-want) > 1e-12*want {
				t.Errorf("%d values: standard error %v, want %v", n, stdErr, want)
			}
		}
		withNaN := append([]float64{math.NaN()}, kl...)
		if m, p, h, i := stats.KL(withNaN); m != mean || p != p90 || h != highest || i != at+1 {
			t.Errorf("%d values and NaN: %v %v %v %d", n, m, p, h, i)
		}
	}
	if m, p, h, at := stats.KL([]float64{math.NaN()}); m != 0 || p != 0 || h != 0 || at != 0 {
		t.Errorf("only NaN: %v %v %v %d", m, p, h, at)
	}
}
