package dtype

import "math"

// BFloat16 is the upper half of an IEEE single: 1 sign bit, 8 exponent bits, 7 fraction bits. It
// has the range of FP32 and about 2.4 decimal digits. Its value is the bit pattern.
type BFloat16 uint16

// FromFloat32 rounds f to the nearest BFloat16, ties to even, like NPUs, CPUs and PyTorch. Values
// that round past the largest finite BFloat16 become infinite. NaN becomes quiet, so that dropping
// fraction bits cannot turn it into infinity.
func FromFloat32(f float32) BFloat16 {
	u := math.Float32bits(f)
	if u&0x7fffffff > 0x7f800000 {
		return BFloat16(u>>16 | 0x40)
	}
	// Add just under half a unit in the last place, plus the last bit, so that ties carry only into
	// odd values. A carry out of the fraction correctly increments the exponent.
	return BFloat16((u + 0x7fff + u>>16&1) >> 16)
}

// Float32 returns the value in single precision. The conversion is exact.
func (b BFloat16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// BF16ToF32 converts src exactly into dst, which must be at least as long.
func BF16ToF32(dst []float32, src []BFloat16) {
	dst = dst[:len(src)]
	for i, b := range src {
		dst[i] = math.Float32frombits(uint32(b) << 16)
	}
}

// F32ToBF16 rounds src into dst with [FromFloat32]. Dst must be at least as long as src.
func F32ToBF16(dst []BFloat16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = FromFloat32(f)
	}
}
