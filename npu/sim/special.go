package sim

import (
	"math"
	"sync"

	"github.com/npukit/npukit/npu/dtype"
)

// The array has tanh and exp2 as instructions with tables that nobody has published. What stands here is fitted to published errors of
// whole kernels. Single values may differ from the chip's; the errors of a tensor are held to the published ones, also in rows that the fit
// did not use (TestTanhStep, TestPublishedAttention).

// tanhStep is the grid that tanh's argument is rounded to. Its value is the one at which SiLU*mul errs as published. The form, an argument on a
// grid, was chosen with the figures of SiLU*mul and of GELU in view, so GELU tests the value and not the form. On the harness's inputs:
//
//	                          here       published
//	SiLU*mul mean relative L1 1.024e-2   1.023e-2 to 1.025e-2
//	GELU mean relative L1     8.5e-3     8.41e-3
//	SiLU*mul max absolute     0.125      0.125 (0.188 in the largest tensors)
//	GELU max absolute         1.56e-2    1.56e-2
//	SiLU*mul max relative     0.11       0.41
//
// Tried and rejected: an exact tanh (half the published error), results in fixed point, linear interpolation between 2 to 16 points a unit.
const tanhStep = 0.0525

// tanh is the hardware's.
func tanh(x float32) float32 {
	return nearest(float32(math.Tanh(math.RoundToEven(float64(x)/tanhStep) * tanhStep)))
}

// exp2 interpolates the mantissa linearly between powers of two: 2^x = 2^floor(x) (1 + x - floor(x)), which is what adding x to the
// exponent field of a number does. It gives the published FlashAttention errors, 3.8e-2 to 5.5e-2, to within 8 %; an exact exp2 gives
// 1.6e-2. Arguments are at most zero here, differences to a maximum, and not NaN.
func exp2(x float32) dtype.BFloat16 {
	// Below -126 there are only denormals, and at -127 zero, whose bits are all zero.
	if x < -127 {
		x = -127
	}
	// 1.5 * 2^23 has 1 as its last place: the sum rounds 128 x to an integer, ties to even, and its low bits are that plus the bits of 1.
	const magic = 3<<22 + 127<<7
	return dtype.BFloat16(math.Float32bits(float32(x*128) + magic))
}

// silu is x * sigmoid(x) as the kernel computes it: sigmoid(x) = (1 + tanh(x/2)) / 2, every arrow rounded down to BF16.
func silu(x float32, tanh func(float32) float32) float32 {
	sigmoid := down(0.5 * down(1+tanh(down(0.5*x))))
	return down(x * sigmoid)
}

// gelu is GELU by its tanh approximation, every operation rounded down to BF16.
func gelu(x float32, tanh func(float32) float32) float32 {
	cubic, scale := nearest(0.044715), nearest(0.79788)
	cube := down(down(x*x) * x)
	inner := down(x + down(cubic*cube))
	return down(down(0.5*x) * down(1+tanh(down(scale*inner))))
}

var (
	siluTable = sync.OnceValue(func() *[1 << 16]float32 { return tabulate(func(x float32) float32 { return silu(x, tanh) }) })
	geluTable = sync.OnceValue(func() *[1 << 16]float32 { return tabulate(func(x float32) float32 { return gelu(x, tanh) }) })
)

// tabulate evaluates a function for every BF16: some milliseconds, once, for one load an element afterwards.
func tabulate(f func(float32) float32) *[1 << 16]float32 {
	var t [1 << 16]float32
	for i := range t {
		t[i] = f(dtype.BFloat16(i).Float32())
	}
	return &t
}
