package dtype

// The functions in this file dequantize one "K" block (superblock): 256 elements in groups, each
// with a small integer scale that a half-precision number scales. A value is (d*scale)*q -
// (dmin*min) in Q4_K and Q5_K, and (d*scale)*q in Q6_K. As in blocks.go, every product is rounded
// before use.
//
// Source: the GGUF format's block_q4_K, block_q5_K and block_q6_K, verified against blocks from the
// Python package gguf.

// scaleMin unpacks the 6-bit scale and minimum of group j (0 to 7) of a Q4_K or Q5_K block from its
// 12 bytes. The first four groups use the low six bits of bytes j (scale) and j+4 (minimum). For
// the last four, byte j+4 has the low four bits of both, and the top bits of the earlier bytes have
// the high two.
func scaleMin(s []byte, j int) (scale, minimum float32) {
	if j < 4 {
		return float32(s[j] & 63), float32(s[j+4] & 63)
	}
	return float32(s[j+4]&15 | s[j-4]>>6<<4), float32(s[j+4]>>4 | s[j]>>6<<4)
}

// blockQ4K: d, dmin, 12 bytes of scales and minimums, 128 bytes of quants. Quant bytes 32g to
// 32g+31 hold group 2g (32 elements) in their low nibbles and group 2g+1 in their high nibbles.
func blockQ4K(dst []float32, b []byte) {
	d, dmin, scales, qs := half(b), half(b[2:]), b[4:16], b[16:144]
	for g := range 4 {
		s0, m0 := scaleMin(scales, 2*g)
		s1, m1 := scaleMin(scales, 2*g+1)
		d0, d1 := float32(d*s0), float32(d*s1)
		m0, m1 = float32(dmin*m0), float32(dmin*m1)
		lo, hi := dst[64*g:][:32], dst[64*g+32:][:32]
		for i, q := range qs[32*g:][:32] {
			lo[i] = float32(d0*float32(q&15)) - m0
			hi[i] = float32(d1*float32(q>>4)) - m1
		}
	}
}

// blockQ5K: like Q4_K with 32 bytes of fifth bits before the quants; bit j of byte i is for element
// i of group j.
func blockQ5K(dst []float32, b []byte) {
	d, dmin, scales, fifth, qs := half(b), half(b[2:]), b[4:16], b[16:48], b[48:176]
	for g := range 4 {
		s0, m0 := scaleMin(scales, 2*g)
		s1, m1 := scaleMin(scales, 2*g+1)
		d0, d1 := float32(d*s0), float32(d*s1)
		m0, m1 = float32(dmin*m0), float32(dmin*m1)
		lo, hi := dst[64*g:][:32], dst[64*g+32:][:32]
		for i, q := range qs[32*g:][:32] {
			f := fifth[i] >> (2 * g)
			lo[i] = float32(d0*float32(q&15|f&1<<4)) - m0
			hi[i] = float32(d1*float32(q>>4|f>>1&1<<4)) - m1
		}
	}
}

// blockQ6K: 128 bytes of low four bits, 64 bytes of high two bits, 16 signed scales (one per 16
// elements), d; quants are biased by 32. Each half of the block (128 elements) has four rows of 32.
// Of its 64 low bytes, the low nibbles are rows 0 and 1, the high nibbles rows 2 and 3. Bits 2r and
// 2r+1 of high byte i are for element i of row r.
func blockQ6K(dst []float32, b []byte) {
	d := half(b[208:])
	for h := range 2 {
		low, high, scales, out := b[64*h:][:64], b[128+32*h:][:32], b[192+8*h:][:8], dst[128*h:][:128]
		for i, top := range high {
			q0 := low[i]&15 | top&3<<4
			q1 := low[i+32]&15 | top>>2&3<<4
			q2 := low[i]>>4 | top>>4&3<<4
			q3 := low[i+32]>>4 | top>>6<<4
			s := i / 16 // half of the row
			out[i] = float32(d*float32(int8(scales[s]))) * float32(int(q0)-32)
			out[i+32] = float32(d*float32(int8(scales[s+2]))) * float32(int(q1)-32)
			out[i+64] = float32(d*float32(int8(scales[s+4]))) * float32(int(q2)-32)
			out[i+96] = float32(d*float32(int8(scales[s+6]))) * float32(int(q3)-32)
		}
	}
}
