package gokernel

import (
	"encoding/binary"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"
	"github.com/npukit/npukit/npu/dtype"
)

// Regroup fills groups first to last-1 of a weight from the matrix in the order of its file.
func (e *Engine) Regroup(w *kernel.Grouped, data []byte, first, last int) {
	for g := first; g < last; g++ {
		fill(w, g, data)
	}
}

// fill fills group g from the matrix in the order of its file.
func fill(w *kernel.Grouped, g int, data []byte) {
	f := kernel.FormOf(w.Code)
	k := int(w.Cols)
	each, scales := int(f.GroupBytes(w.Cols)), int(f.ScaleBytes(w.Cols))
	dst := w.Data[g*each:][:each]
	quants := kernel.Words(dst[scales:])
	elems, size := f.Type.Block()
	rowBytes := k / elems * size
	for lane := range min(kernel.GroupRows, int(w.Rows)-g*kernel.GroupRows) {
		row := data[(g*kernel.GroupRows+lane)*rowBytes:][:rowBytes]
		for b := 0; len(row) > 0; b, row = b+1, row[size:] {
			fillBlock(f, dst, quants, row[:size], b, lane)
		}
	}
}

// fillBlock stores block b of a row in its lane.
func fillBlock(f *kernel.Form, scales []byte, quants []uint32, block []byte, b, lane int) {
	le := binary.LittleEndian
	quants = quants[lane:]
	switch f.Type {
	case dtype.Q8_0:
		copy(scales[32*b+2*lane:][:2], block)
		q := quants[b*8*kernel.GroupRows:][:7*kernel.GroupRows+1]
		for j := range 8 {
			q[j*kernel.GroupRows] = le.Uint32(block[2+4*j:]) ^ 0x80808080
		}
	case dtype.Q4_0, dtype.Q5_0:
		copy(scales[32*b+2*lane:][:2], block)
		fillNibbles(f, quants[b*f.Words*kernel.GroupRows:], block[2:])
	case dtype.Q4_1, dtype.Q5_1:
		copy(scales[64*b+2*lane:][:2], block)
		copy(scales[64*b+32+2*lane:][:2], block[2:])
		fillNibbles(f, quants[b*f.Words*kernel.GroupRows:], block[4:])
	case dtype.Q4_K, dtype.Q5_K:
		fillNested(f, scales[320*b:][:320], quants[b*8*f.Words*kernel.GroupRows:], block, lane)
	case dtype.Q6_K:
		fillHalved(scales[288*b:][:288], quants[b*8*6*kernel.GroupRows:], block, lane)
	}
}

// highBit is the bit of the word of fifth bits that belongs to element e.
var highBit = func() (list [32]uint8) {
	for e := range list {
		j, h, i := kernel.Place(e)
		list[e] = uint8(16*h + 4*j + i)
	}
	return list
}()

// fillNibbles stores 32 elements of a type whose halves are in the order of a group, and their
// fifth bits, which come first.
func fillNibbles(f *kernel.Form, q []uint32, from []byte) {
	le := binary.LittleEndian
	if f.High == 1 {
		fifth, to := le.Uint32(from), uint32(0)
		for e, at := range highBit {
			to |= fifth >> e & 1 << at
		}
		q[4*kernel.GroupRows] = to
		from = from[4:]
	}
	for j := range 4 {
		q[j*kernel.GroupRows] = le.Uint32(from[4*j:])
	}
}

// fillNested stores a Q4_K or Q5_K block. In its file two groups of 32 elements share bytes, one in
// the low halves, one in the high ones.
func fillNested(f *kernel.Form, scales []byte, q []uint32, block []byte, lane int) {
	le := binary.LittleEndian
	copy(scales[2*lane:][:2], block)
	copy(scales[32+2*lane:][:2], block[2:])
	small, fifth, qs := block[4:16], block[16:48], block[len(block)-128:]
	for g := range 8 {
		s, m := small[g%4]&63, small[g%4+4]&63
		if g >= 4 {
			s, m = small[g+4]&15|small[g-4]>>6<<4, small[g+4]>>4|small[g]>>6<<4
		}
		scales[64+32*g+lane], scales[64+32*g+16+lane] = s, m
		from := qs[32*(g/2):][:32]
		for j := range 4 {
			lo, hi := le.Uint32(from[4*j:]), le.Uint32(from[16+4*j:])
			if g%2 == 0 {
				hi <<= 4
			} else {
				lo >>= 4
			}
			q[j*kernel.GroupRows] = lo&0x0f0f0f0f | hi&0xf0f0f0f0
		}
		if f.High == 1 {
			to := uint32(0)
			for e, at := range highBit {
				to |= uint32(fifth[e]>>g&1) << at
			}
			q[4*kernel.GroupRows] = to
		}
		if g < 7 {
			q = q[f.Words*kernel.GroupRows:]
		}
	}
}

// fillHalved stores a Q6_K block. In its file each half is four rows of 32 elements, rows 0 and 1
// in low halves of bytes, 2 and 3 in high ones.
func fillHalved(scales []byte, q []uint32, block []byte, lane int) {
	le := binary.LittleEndian
	copy(scales[2*lane:][:2], block[208:])
	for s, v := range block[192:208] {
		scales[32+16*s+lane] = v
	}
	for g := range 8 {
		half, row := g/4, g%4
		low, high := block[64*half+32*(row%2):][:32], block[128+32*half:][:32]
		for j := range 4 {
			lo, hi := le.Uint32(low[4*j:]), le.Uint32(low[16+4*j:])
			if row < 2 {
				hi <<= 4
			} else {
				lo >>= 4
			}
			q[j*kernel.GroupRows] = lo&0x0f0f0f0f | hi&0xf0f0f0f0
		}
		var to [2]uint32
		for e, at := range highBit {
			// Two bits for each of eight nibbles of two words: half of highBit's positions, twice
			// as wide.
			w := at % 16 / 8
			to[w] |= uint32(high[e]>>(2*row)&3) << (at/16*16 + at%8*2)
		}
		q[4*kernel.GroupRows], q[5*kernel.GroupRows] = to[0], to[1]
		if g < 7 {
			q = q[6*kernel.GroupRows:]
		}
	}
}
