package sim

import (
	"math"

	"github.com/npukit/npukit/npu/dtype"
)

// Block floating point, as the array's matrix unit takes its operands ("BFP16 ebs8"): eight neighbours along K share the exponent of the
// largest and keep an 8-bit two's-complement mantissa each,
//
//	value = m * 2^(e-6)    with 2^e <= max|x| < 2^(e+1), m in [-128, 127]
//
// rounded to nearest even. Nothing of it needs more than eight significant bits, so a quantised operand is a BF16 operand again, and
// products of two are exact in FP32: the fast BF16 kernels of npu/cpu multiply quantised operands as the array does, but for the order of
// summation.
//
// Source: Xilinx/mlir-air e972f2942d41, mm_aie2p.cc and bfp utilities; rounding chosen by the published 9.3e-3 (truncation would give
// 1.4e-2).
const blockSize = 8

// quantize rounds a block of up to eight values in place: what is missing of it counts as zeros.
func quantize(x []dtype.BFloat16) {
	var block [blockSize]dtype.BFloat16
	n := copy(block[:], x)
	quantizeBlock(&block, &block)
	copy(x, block[:n])
}

// scale turns the largest magnitude of a block into the number that rounds to its step and the largest value that a positive mantissa can
// have. It reports false for a block that needs no rounding: zeros, denormals, infinities.
func scale(top dtype.BFloat16) (magic, limit float32, ok bool) {
	e := uint32(top >> 7) // biased
	if e == 0 || e == 0xff {
		return 0, 0, false
	}
	// The step is 2^(e-6), and 1.5 * 2^23 steps have it as their last place: exponent e-6+23. Blocks so large that this is out of range,
	// 2^110 and more, stay as they are, and so do those whose limit would be denormal.
	if e+17 > 0xfe || e <= 6 {
		return 0, 0, false
	}
	return math.Float32frombits((e+17)<<23 | 1<<22), 127 * math.Float32frombits((e-6)<<23), true
}

// quantizeRow quantises a row along itself: an activation's row, or a weight's that is stored transposed.
func quantizeRow(dst, src []dtype.BFloat16) {
	dst = dst[:len(src)]
	for len(src) >= blockSize {
		quantizeBlock((*[blockSize]dtype.BFloat16)(dst), (*[blockSize]dtype.BFloat16)(src))
		dst, src = dst[blockSize:], src[blockSize:]
	}
	copy(dst, src)
	quantize(dst)
}

// quantizeBlock rounds a block. One with an infinity or NaN stays as it is: the sum then says so.
func quantizeBlock(dst, src *[blockSize]dtype.BFloat16) {
	var all dtype.BFloat16 // the exponent of the largest is the largest exponent
	for _, v := range src {
		all = max(all, v&0x7f80)
	}
	magic, limit, ok := scale(all)
	if !ok {
		*dst = *src
		return
	}
	for i, v := range src {
		// Adding a number whose last place is the step rounds to the step; subtracting it is exact.
		q := math.Float32frombits(uint32(v)<<16) + magic - magic
		if q > limit {
			q = limit
		}
		dst[i] = dtype.BFloat16(math.Float32bits(q) >> 16)
	}
}

// quantizeColumns quantises up to eight rows of a weight that is stored [K, N]: each column of them is a block.
func quantizeColumns(dst []dtype.BFloat16, dstStride int, src []dtype.BFloat16, srcStride, rows, width int) {
	for c := range width {
		var block [blockSize]dtype.BFloat16
		for r := range rows {
			block[r] = src[r*srcStride+c]
		}
		quantizeBlock(&block, &block)
		for r := range rows {
			dst[r*dstStride+c] = block[r]
		}
	}
}
