package sim

import (
	"math"

	"github.com/npukit/npukit/npu/dtype"
)

// roundDown converts to BF16 toward minus infinity: what the array does unless a kernel has set another rounding mode. Kernels that never
// set one are the element-wise ones, the norms, RoPE and the cast launch of a fused-cast GEMM; their published errors match this and not
// rounding to nearest. (Truncation toward zero would fit the same error magnitudes and differ only in bias, which nobody has published.)
//
// Source: Xilinx/mlir-air e972f2942d41, kernel registry: add 1.9e-3, RoPE 2.8e-3; simulated here.
func roundDown(f float32) dtype.BFloat16 {
	u := math.Float32bits(f)
	if u&0x7fffffff > 0x7f800000 {
		return dtype.BFloat16(u>>16 | 0x40)
	}
	// Dropping the low half lowers the magnitude: right for positive values; negative ones go up to the next magnitude first.
	return dtype.BFloat16((u + uint32(int32(u)>>31)&0xffff) >> 16)
}

// down is roundDown as a number.
func down(f float32) float32 { return roundDown(f).Float32() }

// nearest rounds the result of arithmetic to BF16, ties to even, as a number. (It does without the test for NaN that [dtype.FromFloat32]
// has: a carry out of the dropped half could only change a NaN that has its lowest bits set, and arithmetic on BF16 makes none.)
func nearest(f float32) float32 {
	u := math.Float32bits(f)
	return math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
}
