//go:build cgo && !windows && (amd64 || arm64)

package ckernel

// #include "bf12_pack.h"
import "C"

import (
	"unsafe"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"
)

const (
	escapeRate = 64 // rows with more than one escape in so many weights stay BF16
	fewEscapes = 64 // which any number of rows may have
)

// BF12Code returns the layout of BF12 that the kernels read.
func (e *Engine) BF12Code() int32 {
	if e.set.tiles != 0 {
		return kernel.BF12x16
	}
	return kernel.BF12x4
}

// UseBF12 prepares the engine for weights in BF12. It reports whether the kernels are faster with
// them; if not, nothing changes. On arm64 nobody has measured.
func (e *Engine) UseBF12() bool {
	e.blocks16 = e.set.tiles != 0
	return e.blocks16 || e.set.base == C.NPK_AVX2 || e.set.base == C.NPK_AVX512
}

// ToBF12 fills blocks first to last-1 of w from the matrix in the order of its file. It returns
// their escapes, which the headers index, and false if there are too many. Calls may overlap.
func (e *Engine) ToBF12(w *kernel.BF12, data []byte, first, last int) ([]uint32, bool) {
	rows := min(last*w.Group, int(w.Rows)) - first*w.Group
	data = data[first*w.Group*int(w.Cols)*2:][:rows*int(w.Cols)*2] // C checks no lengths
	list := make([]uint32, rows*int(w.Cols)/escapeRate+fewEscapes)
	codes := (*C.uint8_t)(unsafe.Add(w.Head.Codes, first*w.BlockBytes()))
	escapes := (*C.uint32_t)(unsafe.Pointer(&list[0]))
	from := (*C.uint16_t)(unsafe.Pointer(unsafe.SliceData(data)))
	room, n, k, zeros := C.int64_t(len(list)), C.int64_t(rows), C.int64_t(w.Cols), C.int(w.Head.Zeros)
	var count C.int64_t
	if w.Code == kernel.BF12x16 {
		count = C.npk_to_blocks16(codes, escapes, room, from, n, k, zeros)
	} else {
		heads := (*C.npk_block4)(unsafe.Pointer(w.FirstEscape(first)))
		count = C.npk_to_blocks4(codes, heads, escapes, room, from, n, k, zeros)
	}
	if count < 0 {
		return nil, false
	}
	return list[:count], true
}
