package kernel

import (
	"unsafe"

	"github.com/npukit/npukit/npu/dtype"
)

// Quantized weights keep their quants and scales bit for bit but are repacked: 16 rows form a
// group, and the values at one place of all 16 rows are adjacent. A vector then holds one place of
// 16 (or 8, or 4) rows, so that kernels need no horizontal sums and no broadcasts of scales, and
// read a group from its first byte to its last.
//
// A group holds the scales of its blocks, then, from a multiple of 64 bytes on, the quants. A lane
// is a row; [16] is over lanes.
//
// Every 32 elements take several words of 32 bits, [16] each:
//
//	8 bits  8 words: word j has elements 4j to 4j+3
//	4 bits  4 words: byte r of word j has element 4j+r in its low half and 16+4j+r in its high half
//	5 bits  as 4 bits, and a fifth word with the fifth bits
//	6 bits  as 4 bits, and two words with bits 4 and 5, the first for words 0 and 1
//
// The high bits of the element in nibble i of half h of word j (see Place) start at bit
// 16h + n(4j+i) of their word, where n is the number of high bits and j counts from the first word
// that this word serves: one shift moves the high bits of eight or sixteen elements to their
// nibbles.
//
// There are four kinds of scales:
//
//	plain    per 32 elements   d f16[16]                              Q8_0 Q4_0 Q5_0  d*(q-bias)
//	affine   per 32 elements   d f16[16], m f16[16]                   Q4_1 Q5_1       d*q + m
//	nested   per 256 elements  d f16[16], dmin f16[16], and for each Q4_K Q5_K      (d*s)*q - dmin*m
//	                           32 of them s u8[16], m u8[16]
//	halved   per 256 elements  d f16[16], and for each 16 of them     Q6_K            (d*s)*(q-bias)
//	                           s i8[16]
//
// All quants are unsigned: those of Q8_0, which are signed in a file, have 128 added. Rows that the
// last group lacks are zeros.

// GroupRows is the number of rows of a group: the floats of the widest vector.
const GroupRows = 16

// Scales is the kind of scales of a form.
type Scales uint8

// Kinds of scales.
const (
	PlainScales Scales = iota
	AffineScales
	NestedScales
	HalvedScales
)

// Form describes how a block type is grouped. C has the same facts in grouped.h and regroup.c.
type Form struct {
	Type   dtype.Type
	Words  int // words of quants per 32 elements of a row
	High   int // bits of a quant above the low four; -4 if it is a byte
	Scales Scales
	Bias   int32
}

// Forms lists the grouped types in the order of their codes, from Q8_0 on.
var Forms = [...]Form{
	{dtype.Q8_0, 8, -4, PlainScales, 128},
	{dtype.Q4_0, 4, 0, PlainScales, 8},
	{dtype.Q5_0, 5, 1, PlainScales, 16},
	{dtype.Q4_1, 4, 0, AffineScales, 0},
	{dtype.Q5_1, 5, 1, AffineScales, 0},
	{dtype.Q4_K, 4, 0, NestedScales, 0},
	{dtype.Q5_K, 5, 1, NestedScales, 0},
	{dtype.Q6_K, 6, 2, HalvedScales, 32},
}

// GroupedCode returns the code of a block type, and false if the type is not grouped.
func GroupedCode(t dtype.Type) (code int32, ok bool) {
	for i, f := range Forms {
		if f.Type == t {
			return Q8_0 + int32(i), true
		}
	}
	return 0, false
}

// FormOf returns the form of a grouped type.
func FormOf(code int32) *Form { return &Forms[code-Q8_0] }

// IsGrouped reports whether code is a grouped type.
func IsGrouped(code int32) bool { return code >= Q8_0 }

// ScaleBytes returns the size of the scales of a group of rows of k elements, padded to 64 bytes.
func (f *Form) ScaleBytes(k int64) int64 {
	var n int64
	switch f.Scales {
	case PlainScales:
		n = k / 32 * 32
	case AffineScales:
		n = k / 32 * 64
	case NestedScales:
		n = k / 256 * (64 + 8*32)
	case HalvedScales:
		n = k / 256 * (32 + 16*16)
	}
	return (n + 63) &^ 63
}

// GroupBytes returns the size of a group of rows of k elements.
func (f *Form) GroupBytes(k int64) int64 { return f.ScaleBytes(k) + k/32*int64(f.Words)*64 }

// Place returns where element e of 32 is: nibble i (0 to 3) of half h (0 or 1) of word j.
func Place(e int) (j, h, i int) {
	return e % 16 / 4, e % 4 / 2, e%2*2 + e/16
}

// Grouped is a matrix of quantized weights in groups. Its memory is outside the Go heap.
type Grouped struct {
	Code       int32
	Rows, Cols int64
	Data       []byte
}

// Bytes returns the size of the matrix in the order of a file.
func (w *Grouped) Bytes() int { return FormOf(w.Code).Type.Bytes(int(w.Rows * w.Cols)) }

// Groups returns the number of groups.
func (w *Grouped) Groups() int { return int((w.Rows + GroupRows - 1) / GroupRows) }

// Ptr returns the address of the first group.
func (w *Grouped) Ptr() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(w.Data)) }

// Words views 4-byte aligned memory as words.
func Words(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
}
