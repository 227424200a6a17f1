package sim

import (
	"math"

	"github.com/npukit/npukit/npu/dtype"
)

// Block floating point as used by the array's matrix unit ("BFP16 ebs8"): eight neighbors along K
// share the exponent of the largest, and each has an 8-bit two's-complement mantissa,
//
//	value = m * 2^(e-6)    with 2^e <= max|x| < 2^(e+1), m in [-128, 127]
//
// rounded to nearest even. A value needs at most eight significant bits, so a quantized operand is
// exact in BF16 and the product of two is exact in FP32. The BF16 kernels of npu/cpu therefore
// multiply quantized operands as the array does, except for the order of summation.
//
// Source: Xilinx/mlir-air e972f2942d41, mm_aie2p.cc and bfp utilities. Rounding to nearest was
// chosen because it matches the published error of 9.3e-3; truncation would have 1.4e-2.
const blockSize = 8

// quantize rounds a block of at most eight values in place. A short block is padded with zeros.
func quantize(x []dtype.BFloat16) {
	var block [blockSize]dtype.BFloat16
	n := copy(block[:], x)
	quantizeBlock(&block, &block)
	copy(x, block[:n])
}

// scale returns the constants for rounding a block: magic, the number whose last place is the
// block's step, and limit, the largest value of a positive mantissa. top is the block's largest
// exponent. ok is false if the block must be left unchanged, e.g. if it holds only zeros or
// denormals, or an infinity.
func scale(top dtype.BFloat16) (magic, limit float32, ok bool) {
	e := uint32(top >> 7) // biased
	if e == 0 || e == 0xff {
		return 0, 0, false
	}
	// The step is 2^(e-6). 1.5 * 2^23 steps have the step as their last place, with exponent
	// e-6+23. Blocks are left unchanged if that exponent is out of range, which is 2^110 and above,
	// or if limit would be denormal.
	if e+17 > 0xfe || e <= 6 {
		return 0, 0, false
	}
	return math.Float32frombits((e+17)<<23 | 1<<22), 127 * math.Float32frombits((e-6)<<23), true
}

// quantizeRow quantizes a row along itself: a row of an activation or of a transposed weight.
func quantizeRow(dst, src []dtype.BFloat16) {
	dst = dst[:len(src)]
	for len(src) >= blockSize {
		quantizeBlock((*[blockSize]dtype.BFloat16)(dst), (*[blockSize]dtype.BFloat16)(src))
		dst, src = dst[blockSize:], src[blockSize:]
	}
	copy(dst, src)
	quantize(dst)
}

// quantizeBlock rounds a block. A block with an infinity or NaN is copied unchanged so that it
// reaches the sum.
func quantizeBlock(dst, src *[blockSize]dtype.BFloat16) {
	var all dtype.BFloat16 // the largest exponent, as the largest magnitude has it
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

// quantizeColumns quantizes up to eight rows of a weight stored as [K, N]. Each column is one
// block.
func quantizeColumns(dst []dtype.BFloat16, dstStride int, src []dtype.BFloat16, srcStride, rows,
	width int) {
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
