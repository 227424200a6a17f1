package cpu

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/npukit/npukit/npu/dtype"
)

// Quantised weights keep their quants and scales bit for bit, in another order: grouped. Sixteen rows form a group, and what belongs to the same place
// of all sixteen lies side by side, so that a vector holds one place of sixteen (or eight, or four) rows. Nothing has to be summed across a vector
// then, a scale needs no copying to all of its lanes, and a group is read from its first byte to its last.
//
// A group holds the scales of its blocks, and after them, from a multiple of 64 bytes on, the quants. A lane is a row; [16] is over lanes.
//
// Quants, for every 32 elements, are words of 32 bits, [16] each:
//
//	8 bits  8 words: word j has elements 4j to 4j+3
//	4 bits  4 words: byte r of word j has element 4j+r in its low half and element 16+4j+r in its high half
//	5 bits  as 4 bits, and a fifth word with the fifth bits
//	6 bits  as 4 bits, and two words with bits 4 and 5, the first for words 0 and 1
//
// The higher bits of the element in nibble i of the half h of word j (see place) lie from bit 16h + n(4j+i) of their word on, where n is how many there are,
// j counted from the word's first: one shift brings those of eight or sixteen elements to their nibbles.
//
// Scales are of one of four kinds:
//
//	plain    for every 32 elements d f16[16]                           Q8_0 Q4_0 Q5_0     d * (q - bias)
//	affine   for every 32 elements d f16[16], m f16[16]                Q4_1 Q5_1          d * q + m
//	nested   for every 256 d f16[16], dmin f16[16], and                Q4_K Q5_K          (d * s) * q - dmin * m
//	         for every 32 of them s u8[16], m u8[16]
//	halved   for every 256 d f16[16] and for every 16 of them s i8[16] Q6_K               (d * s) * (q - bias)
//
// All quants are unsigned: those of Q8_0, signed in a file, are 128 more here. Rows that a last group lacks are zeros.

// groupRows is the number of rows in a group: the floats of the widest vector.
const groupRows = 16

// scaleKind is how the scales of a form lie.
type scaleKind uint8

const (
	plainScales scaleKind = iota
	affineScales
	nestedScales
	halvedScales
)

// form is how a block type is grouped. C has the same facts in grouped.h and regroup.c.
type form struct {
	typ    dtype.Type
	words  int // of quants for 32 elements of a row
	high   int // bits of an element beyond the low four; -4 where it is a byte
	scales scaleKind
	bias   int32
}

// forms by code, from typeQ8_0 on.
var forms = [...]form{
	{dtype.Q8_0, 8, -4, plainScales, 128},
	{dtype.Q4_0, 4, 0, plainScales, 8},
	{dtype.Q5_0, 5, 1, plainScales, 16},
	{dtype.Q4_1, 4, 0, affineScales, 0},
	{dtype.Q5_1, 5, 1, affineScales, 0},
	{dtype.Q4_K, 4, 0, nestedScales, 0},
	{dtype.Q5_K, 5, 1, nestedScales, 0},
	{dtype.Q6_K, 6, 2, halvedScales, 32},
}

// groupedCode is the code of a block type, and false for types that are not grouped.
func groupedCode(t dtype.Type) (code int32, ok bool) {
	for i, f := range forms {
		if f.typ == t {
			return typeQ8_0 + int32(i), true
		}
	}
	return 0, false
}

// groupedTypes are the block types that are kept as they are, in another order.
func groupedTypes() []dtype.Type {
	var list []dtype.Type
	for _, f := range forms {
		list = append(list, f.typ)
	}
	return list
}

func formOf(code int32) *form { return &forms[code-typeQ8_0] }

func isGrouped(code int32) bool { return code >= typeQ8_0 }

// scaleBytes is the size of the scales of a group of rows of k elements, with what fills them up to 64 bytes.
func (f *form) scaleBytes(k int64) int64 {
	var n int64
	switch f.scales {
	case plainScales:
		n = k / 32 * 32
	case affineScales:
		n = k / 32 * 64
	case nestedScales:
		n = k / 256 * (64 + 8*32)
	case halvedScales:
		n = k / 256 * (32 + 16*16)
	}
	return (n + 63) &^ 63
}

// groupBytes is the size of a group of rows of k elements.
func (f *form) groupBytes(k int64) int64 { return f.scaleBytes(k) + k/32*int64(f.words)*64 }

// groupedWeight is a matrix of quantised weights in groups. It lies outside the Go heap.
type groupedWeight struct {
	code int32
	rows int64
	cols int64
	mem  memory
}

// newGrouped makes room for a matrix of a block type; rows are whole blocks.
func newGrouped(from *weightStore, t dtype.Type, rows, cols int) (*groupedWeight, error) {
	code, ok := groupedCode(t)
	elems, _ := t.Block()
	if !ok || rows < 1 || cols < 1 || cols%elems != 0 {
		return nil, fmt.Errorf("a %s matrix of %d rows of %d elements makes no groups", t, rows, cols)
	}
	w := &groupedWeight{code: code, rows: int64(rows), cols: int64(cols)}
	groups := (rows + groupRows - 1) / groupRows
	each := int(formOf(code).groupBytes(int64(cols)))
	if groups > maxAlloc/each {
		return nil, fmt.Errorf("%d rows of %d elements are out of range", rows, cols)
	}
	var err error
	w.mem, err = from.alloc(groups * each)
	return w, err
}

// bytes is the size of the matrix as it lies in a file.
func (w *groupedWeight) bytes() int { return formOf(w.code).typ.Bytes(int(w.rows * w.cols)) }

func (w *groupedWeight) groups() int { return int((w.rows + groupRows - 1) / groupRows) }

// words views bytes outside the Go heap, 4-byte aligned, as words.
func words(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}

// fill fills group g from the matrix as it lies in a file.
func (w *groupedWeight) fill(g int, data []byte) {
	f := formOf(w.code)
	k := int(w.cols)
	each, scales := int(f.groupBytes(w.cols)), int(f.scaleBytes(w.cols))
	dst := w.mem.m[g*each:][:each]
	quants := words(dst[scales:])
	elems, size := f.typ.Block()
	rowBytes := k / elems * size
	for lane := range min(groupRows, int(w.rows)-g*groupRows) {
		row := data[(g*groupRows+lane)*rowBytes:][:rowBytes]
		for b := 0; len(row) > 0; b, row = b+1, row[size:] {
			fillBlock(f, dst, quants, row[:size], b, lane)
		}
	}
}

// fillBlock puts the b-th block of a row in its lane.
func fillBlock(f *form, scales []byte, quants []uint32, block []byte, b, lane int) {
	le := binary.LittleEndian
	quants = quants[lane:]
	switch f.typ {
	case dtype.Q8_0:
		copy(scales[32*b+2*lane:][:2], block)
		q := quants[b*8*groupRows:][:7*groupRows+1]
		for j := range 8 {
			q[j*groupRows] = le.Uint32(block[2+4*j:]) ^ 0x80808080
		}
	case dtype.Q4_0, dtype.Q5_0:
		copy(scales[32*b+2*lane:][:2], block)
		fillNibbles(f, quants[b*f.words*groupRows:], block[2:])
	case dtype.Q4_1, dtype.Q5_1:
		copy(scales[64*b+2*lane:][:2], block)
		copy(scales[64*b+32+2*lane:][:2], block[2:])
		fillNibbles(f, quants[b*f.words*groupRows:], block[4:])
	case dtype.Q4_K, dtype.Q5_K:
		fillNested(f, scales[320*b:][:320], quants[b*8*f.words*groupRows:], block, lane)
	case dtype.Q6_K:
		fillHalved(scales[288*b:][:288], quants[b*8*6*groupRows:], block, lane)
	}
}

// place is where element e of 32 lies: the half h (0 or 1) and the nibble i (0 to 3) of that half of word j.
func place(e int) (j, h, i int) {
	return e % 16 / 4, e % 4 / 2, e%2*2 + e/16
}

// highBit is the bit of the word of fifth bits where that of element e lies.
var highBit = func() (list [32]uint8) {
	for e := range list {
		j, h, i := place(e)
		list[e] = uint8(16*h + 4*j + i)
	}
	return list
}()

// fillNibbles fills in 32 elements of a type whose halves lie as in a group, and their fifth bits, which come first.
func fillNibbles(f *form, q []uint32, from []byte) {
	le := binary.LittleEndian
	if f.high == 1 {
		fifth, to := le.Uint32(from), uint32(0)
		for e, at := range highBit {
			to |= fifth >> e & 1 << at
		}
		q[4*groupRows] = to
		from = from[4:]
	}
	for j := range 4 {
		q[j*groupRows] = le.Uint32(from[4*j:])
	}
}

// fillNested fills in a Q4_K or Q5_K block: in its file two groups of 32 share bytes, one in the low halves, one in the high.
func fillNested(f *form, scales []byte, q []uint32, block []byte, lane int) {
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
			q[j*groupRows] = lo&0x0f0f0f0f | hi&0xf0f0f0f0
		}
		if f.high == 1 {
			to := uint32(0)
			for e, at := range highBit {
				to |= uint32(fifth[e]>>g&1) << at
			}
			q[4*groupRows] = to
		}
		if g < 7 {
			q = q[f.words*groupRows:]
		}
	}
}

// fillHalved fills in a Q6_K block: in its file each half is four rows of 32, rows 0 and 1 in low halves of bytes, 2 and 3 in high ones.
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
			q[j*groupRows] = lo&0x0f0f0f0f | hi&0xf0f0f0f0
		}
		var to [2]uint32
		for e, at := range highBit {
			// Two bits for each of eight nibbles of two words: half of highBit's places, twice as wide.
			w := at % 16 / 8
			to[w] |= uint32(high[e]>>(2*row)&3) << (at/16*16 + at%8*2)
		}
		q[4*groupRows], q[5*groupRows] = to[0], to[1]
		if g < 7 {
			q = q[6*groupRows:]
		}
	}
}
