package sim

import (
	"math"
	"sync"

	"github.com/npukit/npukit/npu/dtype"
)

// The array has tanh and exp2 instructions whose tables are not published. The functions below are
// fitted to published errors of whole kernels. Single values may differ from the hardware. Tests
// compare tensor errors with the published ones, including rows that the fit did not use
// (TestTanhStep, TestPublishedAttention).

// tanhStep is the grid that the argument of tanh is rounded to. The value is fitted to the
// published error of SiLU*mul. The form, an argument on a grid, was chosen with the figures of
// SiLU*mul and of GELU in view, so GELU tests the value and not the form. On the harness's inputs:
//
//	                          here       published
//	SiLU*mul mean relative L1 1.024e-2   1.023e-2 to 1.025e-2
//	GELU mean relative L1     8.5e-3     8.41e-3
//	SiLU*mul max absolute     0.125      0.125 (0.188 in the largest tensors)
//	GELU max absolute         1.56e-2    1.56e-2
//	SiLU*mul max relative     0.11       0.41
//
// An exact tanh has half the published error. Fixed-point results and linear interpolation between
// 2 to 16 points per unit do not fit either.
const tanhStep = 0.0525

// tanh approximates the hardware's tanh.
func tanh(x float32) float32 {
	return nearest(float32(math.Tanh(math.RoundToEven(float64(x)/tanhStep) * tanhStep)))
}

// exp2 interpolates the mantissa linearly between powers of two, 2^x = 2^floor(x) (1 + x -
// floor(x)), which is the result of adding x to the exponent field. It reproduces the published
// FlashAttention errors, 3.8e-2 to 5.5e-2, within 8 %; an exact exp2 has 1.6e-2. x must be at most
// zero and must not be NaN.
func exp2(x float32) dtype.BFloat16 {
	// Results below -126 are denormal. At -127 the result is zero, whose bits are all zero.
	if x < -127 {
		x = -127
	}
	// The last place of 1.5 * 2^23 is 1, so the sum rounds 128 x to an integer, ties to even. Its
	// low bits are that integer plus the bits of 1.
	const magic = 3<<22 + 127<<7
	return dtype.BFloat16(math.Float32bits(float32(x*128) + magic))
}

// silu computes x * sigmoid(x) as the kernel does: sigmoid(x) = (1 + tanh(x/2)) / 2, every
// operation rounded down to BF16.
func silu(x float32, tanh func(float32) float32) float32 {
	sigmoid := down(0.5 * down(1+tanh(down(0.5*x))))
	return down(x * sigmoid)
}

// gelu computes the tanh approximation of GELU, every operation rounded down to BF16.
func gelu(x float32, tanh func(float32) float32) float32 {
	cubic, scale := nearest(0.044715), nearest(0.79788)
	cube := down(down(x*x) * x)
	inner := down(x + down(cubic*cube))
	return down(down(0.5*x) * down(1+tanh(down(scale*inner))))
}

var (
	siluTable = sync.OnceValue(func() *[1 << 16]float32 {
		return tabulate(func(x float32) float32 { return silu(x, tanh) })
	})
	geluTable = sync.OnceValue(func() *[1 << 16]float32 {
		return tabulate(func(x float32) float32 { return gelu(x, tanh) })
	})
)

// tabulate returns f for every BF16 value. It takes a few milliseconds.
func tabulate(f func(float32) float32) *[1 << 16]float32 {
	var t [1 << 16]float32
	for i := range t {
		t[i] = f(dtype.BFloat16(i).Float32())
	}
	return &t
}
