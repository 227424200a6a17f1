package sim

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/xdna2"
)

// tanhStep minimizes the deviation from the published error of SiLU*mul: steps that are a fifth
// smaller or larger fit worse. TestPublishedErrors tests the value with GELU; the form was chosen
// with both kernels in view.
func TestTanhStep(t *testing.T) {
	published := 0.0
	rows := registryRows(xdna2.SiLUMul)
	for _, r := range rows {
		published += max(r.MeanRelL1, r.MeanRelL1Max) / float64(len(rows))
	}
	deviates := func(step float64) float64 {
		on := func(x float32) float32 {
			return nearest(float32(math.Tanh(math.RoundToEven(float64(x)/step) * step)))
		}
		r := rand.New(rand.NewPCG(9, 9))
		var d deviation
		for range 1 << 18 {
			x, u := nearest(float32(r.NormFloat64())), nearest(float32(r.NormFloat64()))
			d.add(down(silu(x, on)*u), nearest(float32(float64(x)/(1+math.Exp(-float64(x)))*float64(u))))
		}
		return math.Abs(d.meanRelL1()/published - 1)
	}
	best := deviates(tanhStep)
	if best > 0.04 {
		t.Errorf("error of SiLU*mul is %.1f %% off the published %.3e", 100*best, published)
	}
	for _, other := range []float64{0.8 * tanhStep, 1.2 * tanhStep} {
		if e := deviates(other); e < 2*best {
			t.Errorf("step %.4f is %.1f %% off, step %.4f %.1f %%: tanhStep is not the best fit",
				other, 100*e, tanhStep, 100*best)
		}
	}
}

// exp2 is exact at integers, never below 2^x, and at most 6.15 % above it, the largest distance
// between 2^x and its chord.
func TestExp2(t *testing.T) {
	for i := range 125 {
		if got, want := exp2(-float32(i)).Float32(), float32(math.Ldexp(1, -i)); got != want {
			t.Errorf("2^-%d is %g, want %g", i, got, want)
		}
	}
	for x := float32(0); x > -100; x -= 0.0137 {
		got, want := float64(exp2(x).Float32()), math.Exp2(float64(x))
		if e := got/want - 1; e < -1.0/256 || e > 0.0615+1.0/256 {
			t.Errorf("2^%g is %g, off by %.2f %%", x, got, 100*e)
		}
	}
	for _, x := range []float32{-127, -128, -1e30, float32(math.Inf(-1)), -math.MaxFloat32} {
		if got := exp2(x); got != 0 {
			t.Errorf("2^%g is %g, want 0", x, got.Float32())
		}
	}
}

// The tables match the functions.
func TestTables(t *testing.T) {
	for _, x := range []float32{0, 1, -1, 2.5, -4, 30, -30} {
		i := dtype.FromFloat32(x)
		if got, want := siluTable()[i], silu(x, tanh); got != want {
			t.Errorf("silu(%g) = %g, want %g", x, got, want)
		}
		if got, want := geluTable()[i], gelu(x, tanh); got != want {
			t.Errorf("gelu(%g) = %g, want %g", x, got, want)
		}
	}
}
