package dtype

import "github.com/x448/float16"

// Float16 is IEEE 754 half precision. Its value is the bit pattern. For single values use the
// functions and methods of github.com/x448/float16, which round to nearest even.
type Float16 = float16.Float16

// F16ToF32 converts src exactly into dst, which must be at least as long.
func F16ToF32(dst []float32, src []Float16) {
	dst = dst[:len(src)]
	for i, h := range src {
		dst[i] = h.Float32()
	}
}

// F32ToF16 rounds src into dst, which must be at least as long: ties to even, NaN to quiet NaN,
// overflow to infinity.
func F32ToF16(dst []Float16, src []float32) {
	dst = dst[:len(src)]
	for i, f := range src {
		dst[i] = float16.Fromfloat32(f)
	}
}
