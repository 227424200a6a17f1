package sim

import (
	"math"

	"github.com/npukit/npukit/npu/dtype"
)

// roundDown converts to BF16 toward minus infinity, the array's default rounding mode. The
// element-wise kernels, the norms, RoPE and the cast launch of a fused-cast GEMM never change the
// mode, and their published errors match rounding down and not rounding to nearest. Truncation
// toward zero would have errors of the same magnitude and differ only in bias, for which no figures
// are published.
//
// Source: Xilinx/mlir-air e972f2942d41, kernel registry: add 1.9e-3, RoPE 2.8e-3.
func roundDown(f float32) dtype.BFloat16 {
	u := math.Float32bits(f)
	if u&0x7fffffff > 0x7f800000 {
		return dtype.BFloat16(u>>16 | 0x40)
	}
	// Dropping the low half lowers the magnitude. That is right for positive values; for negative
	// ones the magnitude must be rounded up first.
	return dtype.BFloat16((u + uint32(int32(u)>>31)&0xffff) >> 16)
}

// down returns roundDown(f) as a float32.
func down(f float32) float32 { return roundDown(f).Float32() }

// nearest rounds f to BF16, ties to even, and returns it as a float32. Unlike [dtype.FromFloat32]
// it does not check for NaN: a carry could change only a NaN whose low bits are set, and BF16
// arithmetic produces none.
func nearest(f float32) float32 {
	u := math.Float32bits(f)
	return math.Float32frombits((u + 0x7fff + u>>16&1) &^ 0xffff)
}
