package dtype

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Dequantize converts len(dst) consecutive elements of type t, little-endian on any host, to FP32.
// F64 and integers round to nearest even, F16 and BF16 are exact, Bool becomes 0 or 1. Block types
// match ggml's reference dequantization bit for bit.
//
// It returns an error if len(dst) is not a whole number of blocks or src does not have exactly the
// matching size.
func Dequantize(dst []float32, t Type, src []byte) error {
	if !t.Valid() {
		return fmt.Errorf("dtype: cannot dequantize %v", t)
	}
	elems, bytes := t.Block()
	if len(dst)%elems != 0 {
		return fmt.Errorf("dtype: %d elements are not a whole number of %v blocks of %d", len(dst), t, elems)
	}
	if len(dst) > math.MaxInt/bytes || len(src) != len(dst)/elems*bytes {
		return fmt.Errorf("dtype: %d elements of %v take %d bytes, not %d", len(dst), t, t.Bytes(len(dst)), len(src))
	}
	le := binary.LittleEndian
	switch t {
	case F32:
		copy(dst, Float32s(src))
	case BF16:
		BF16ToF32(dst, BFloat16s(src))
	case F16:
		F16ToF32(dst, Float16s(src))
	case F64:
		each(dst, src, 8, func(b []byte) float32 { return float32(math.Float64frombits(le.Uint64(b))) })
	case I64:
		each(dst, src, 8, func(b []byte) float32 { return float32(int64(le.Uint64(b))) })
	case I32:
		each(dst, src, 4, func(b []byte) float32 { return float32(int32(le.Uint32(b))) })
	case I16:
		each(dst, src, 2, func(b []byte) float32 { return float32(int16(le.Uint16(b))) })
	case I8:
		each(dst, src, 1, func(b []byte) float32 { return float32(int8(b[0])) })
	case U8:
		each(dst, src, 1, func(b []byte) float32 { return float32(b[0]) })
	case Bool:
		each(dst, src, 1, func(b []byte) float32 { return float32(min(b[0], 1)) })
	default:
		block := dequantizers[t]
		for len(src) > 0 {
			block(dst[:elems], src[:bytes])
			dst, src = dst[elems:], src[bytes:]
		}
	}
	return nil
}

// each converts elements of size bytes with value.
func each(dst []float32, src []byte, size int, value func([]byte) float32) {
	for i := range dst {
		dst[i] = value(src[i*size:])
	}
}

// dequantizers maps every block type to the function that dequantizes one block.
var dequantizers = [...]func(dst []float32, block []byte){
	Q8_0: blockQ8_0,
	Q4_0: blockQ4_0,
	Q4_1: blockQ4_1,
	Q5_0: blockQ5_0,
	Q5_1: blockQ5_1,
	Q4_K: blockQ4K,
	Q5_K: blockQ5K,
	Q6_K: blockQ6K,
}
