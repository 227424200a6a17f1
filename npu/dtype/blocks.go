package dtype

import "encoding/binary"

// The functions in this file dequantize one block of 32 elements. A value is d*q (types ending in
// _0, q signed) or d*q + m (types ending in _1, q unsigned). The half-precision numbers d and m are
// at the start of the block. A byte packs two four-bit quants: element i in the low nibble of byte
// i, element i+16 in the high nibble. Q5 types store the fifth bits in a little-endian word, bit i
// for element i.
//
// Every product is rounded to FP32 before the addition, as in ggml's reference; the conversions
// float32(d*q) prevent fusing the two.
//
// Source: the GGUF format's block_q* structures, verified against blocks from the Python package
// gguf (testdata/make_golden.py).

// half reads the half-precision number at b.
func half(b []byte) float32 { return Float16(binary.LittleEndian.Uint16(b)).Float32() }

// blockQ8_0: d, then 32 signed bytes.
func blockQ8_0(dst []float32, b []byte) {
	d, qs := half(b), b[2:34]
	for i, q := range qs {
		dst[i] = d * float32(int8(q))
	}
}

// blockQ4_0: d, then 16 bytes of quants biased by 8.
func blockQ4_0(dst []float32, b []byte) {
	d, qs := half(b), b[2:18]
	lo, hi := dst[:16], dst[16:32]
	for i, q := range qs {
		lo[i] = d * float32(int(q&15)-8)
		hi[i] = d * float32(int(q>>4)-8)
	}
}

// blockQ4_1: d, m, then 16 bytes of quants.
func blockQ4_1(dst []float32, b []byte) {
	d, m, qs := half(b), half(b[2:]), b[4:20]
	lo, hi := dst[:16], dst[16:32]
	for i, q := range qs {
		lo[i] = float32(d*float32(q&15)) + m
		hi[i] = float32(d*float32(q>>4)) + m
	}
}

// blockQ5_0: d, the word of fifth bits, then 16 bytes of quants; biased by 16.
func blockQ5_0(dst []float32, b []byte) {
	d, fifth, qs := half(b), binary.LittleEndian.Uint32(b[2:]), b[6:22]
	lo, hi := dst[:16], dst[16:32]
	for i, q := range qs {
		lo[i] = d * float32(int(uint32(q&15)|fifth>>i&1<<4)-16)
		hi[i] = d * float32(int(uint32(q>>4)|fifth>>(i+16)&1<<4)-16)
	}
}

// blockQ5_1: d, m, the word of fifth bits, then 16 bytes of quants.
func blockQ5_1(dst []float32, b []byte) {
	d, m, fifth, qs := half(b), half(b[2:]), binary.LittleEndian.Uint32(b[4:]), b[8:24]
	lo, hi := dst[:16], dst[16:32]
	for i, q := range qs {
		lo[i] = float32(d*float32(uint32(q&15)|fifth>>i&1<<4)) + m
		hi[i] = float32(d*float32(uint32(q>>4)|fifth>>(i+16)&1<<4)) + m
	}
}
