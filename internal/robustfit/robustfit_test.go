package robustfit

import (
	"math"
	"testing"
)

// Minimize recovers two parameters although one measurement in five is off by half.
func TestMinimizeIgnoresOddMeasurements(t *testing.T) {
	const start, rate = 80.0, 34.0
	var xs, ys []float64
	for i := range 25 {
		x := float64(i+1) * 1000
		y := start + x/rate
		if i%5 == 2 {
			y *= 1.5
		}
		xs, ys = append(xs, x), append(ys, y)
	}
	a, b := 20.0, 100.0 // a prior that is far off
	Minimize([]*float64{&a, &b}, len(xs), func(dst []float64) {
		for i := range dst {
			dst[i] = math.Log((a + xs[i]/b) / ys[i])
		}
	})
	if math.Abs(a/start-1) > 0.05 || math.Abs(b/rate-1) > 0.05 {
		t.Errorf("found %.1f and %.1f, want %.0f and %.0f within 5 %%", a, b, start, rate)
	}
}
