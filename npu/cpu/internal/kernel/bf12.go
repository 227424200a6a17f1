package kernel

import "unsafe"

// Block sizes of BF12, as in npk.h, which describes the two layouts.
const (
	Block4Rows     = 4
	Block4Columns  = 32 // of a unit
	Block16Rows    = 16
	Block16Columns = 8
	BF12Unit       = 192 // bytes of a unit

	Block4Bases  = 4 // offset of the bases in the header of a 4-row block
	Block16Bases = 8 // and in that of a 16-row block
)

// BF12 is a matrix of BF16 weights in BF12. Its memory is outside the Go heap.
type BF12 struct {
	Code       int32 // BF12x4 or BF12x16
	Group      int   // rows of a block
	Rows, Cols int64
	Head       *BF12Head
}

// BF12Head mirrors npk_bf12. B of a command points to it.
type BF12Head struct {
	Codes, Heads, Escapes unsafe.Pointer
	Zeros                 int64
}

// Blocks returns the number of blocks.
func (w *BF12) Blocks() int { return (int(w.Rows) + w.Group - 1) / w.Group }

// BlockBytes returns the size of the codes of a block, including the header of a 16-row block.
func (w *BF12) BlockBytes() int {
	return w.HeaderBytes() + int(w.Cols)*w.Group/(Block4Rows*Block4Columns)*BF12Unit
}

// HeaderBytes returns the size of the header in front of a 16-row block. It is 0 for 4-row blocks,
// whose headers are stored separately.
func (w *BF12) HeaderBytes() int {
	if w.Code != BF12x16 {
		return 0
	}
	return 64 * (1 + int(w.Cols)/4096)
}

// FirstEscape returns the field of block i that holds the index of its first escape.
func (w *BF12) FirstEscape(i int) *uint32 {
	if w.Code == BF12x16 {
		return (*uint32)(unsafe.Add(w.Head.Codes, i*w.BlockBytes()))
	}
	return (*uint32)(unsafe.Add(w.Head.Heads, i*(Block4Bases+Block4Rows)))
}
