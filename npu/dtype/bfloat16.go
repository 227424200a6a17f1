package dtype

import "math"

// BFloat16 is the upper half of an IEEE single: 1 sign bit, 8 exponent bits, 7 bits of fraction. It has the range of FP32 and about 2.4
// decimal digits. The value is its bit pattern.
type BFloat16 uint16

// FromFloat32 rounds f to the nearest BFloat16, ties to even, as NPU, CPU and PyTorch conversions do. Values that round past the largest
// finite BFloat16 become infinite; NaN stays NaN, made quiet so that dropping the low fraction bits cannot turn it into an infinity.
func FromFloat32(f float32) BFloat16 {
	u := math.Float32bits(f)
	if u&0x7fffffff > 0x7f800000 {
		return BFloat16(u>>16 | 0x40)
	}
	// Just under half a unit of the last kept place, plus that place's own bit: a tie carries only into odd values. A carry out of the
	// fraction is the next exponent, which is the right result.
	return BFloat16((u + 0x7fff + u>>16&1) >> 16)
}

// Float32 is the same value in single precision; the conversion is exact.
func (b BFloat16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// BF16ToF32 converts src into dst, which must be at least as long. It is exact.
func BF16ToF32(dst []float32, src []BFloat16) {
	dst = dst[:len(src)]
	for i, b := range src {
		dst[i] = math.Float32frombits(uint32(b) << 16)
	}
}

// F32ToBF16 rounds src into dst, which must be at least as long: [FromFloat32] on every element.
func F32ToBF16(dst []BFloat16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = FromFloat32(f)
	}
}
