//go:build cgo && !windows && (amd64 || arm64)

package ckernel

// #include "csrc/npk.h"
import "C"

import (
	"unsafe"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"
)

// field is the offset of a field of a struct that Go and C share, or the value of a constant.
type field struct {
	name      string
	inGo, inC uintptr
}

// layout lists the sizes, offsets and constants that must be equal in Go and C, for a test: tests
// cannot use cgo themselves.
func layout() []field {
	var g kernel.Command
	var c C.npk_cmd
	var gs kernel.Segment
	var cs C.npk_seg
	var gb kernel.BF12Head
	var cb C.npk_bf12
	var h4 C.npk_block4
	var h16 C.npk_block16
	block16 := func(cols int64) uintptr {
		w := kernel.BF12{Code: kernel.BF12x16, Group: kernel.Block16Rows, Cols: cols}
		return uintptr(w.BlockBytes())
	}
	return []field{
		{"size of a command", unsafe.Sizeof(g), unsafe.Sizeof(c)},
		{"barrier", unsafe.Offsetof(g.Barrier), unsafe.Offsetof(c.barrier)},
		{"at", unsafe.Offsetof(g.AT), unsafe.Offsetof(c.at)},
		{"yt", unsafe.Offsetof(g.YT), unsafe.Offsetof(c.yt)},
		{"flags", unsafe.Offsetof(g.Flags), unsafe.Offsetof(c.flags)},
		{"table", unsafe.Offsetof(g.Table), unsafe.Offsetof(c.table)},
		{"m", unsafe.Offsetof(g.M), unsafe.Offsetof(c.m)},
		{"lda", unsafe.Offsetof(g.LDA), unsafe.Offsetof(c.lda)},
		{"ldy", unsafe.Offsetof(g.LDY), unsafe.Offsetof(c.ldy)},
		{"block", unsafe.Offsetof(g.Block), unsafe.Offsetof(c.block)},
		{"kv_heads", unsafe.Offsetof(g.KVHeads), unsafe.Offsetof(c.kv_heads)},
		{"a_head", unsafe.Offsetof(g.AHead), unsafe.Offsetof(c.a_head)},
		{"b_head", unsafe.Offsetof(g.BHead), unsafe.Offsetof(c.b_head)},
		{"y_head", unsafe.Offsetof(g.YHead), unsafe.Offsetof(c.y_head)},
		{"ahead", unsafe.Offsetof(g.Ahead), unsafe.Offsetof(c.ahead)},
		{"epsilon", unsafe.Offsetof(g.Epsilon), unsafe.Offsetof(c.epsilon)},
		{"scale", unsafe.Offsetof(g.Scale), unsafe.Offsetof(c.scale)},
		{"extents", unsafe.Offsetof(g.Extents), unsafe.Offsetof(c.extents)},
		{"a_strides", unsafe.Offsetof(g.AStrides), unsafe.Offsetof(c.a_strides)},
		{"y_strides", unsafe.Offsetof(g.YStrides), unsafe.Offsetof(c.y_strides)},
		{"a", unsafe.Offsetof(g.A), unsafe.Offsetof(c.a)},
		{"y", unsafe.Offsetof(g.Y), unsafe.Offsetof(c.y)},
		{"scratch", unsafe.Offsetof(g.Scratch), unsafe.Offsetof(c.scratch)},
		{"segs", unsafe.Offsetof(g.Segs), unsafe.Offsetof(c.segs)},
		{"nsegs", unsafe.Offsetof(g.NSegs), unsafe.Offsetof(c.nsegs)},
		{"start", unsafe.Offsetof(g.Start), unsafe.Offsetof(c.start)},
		{"next", unsafe.Offsetof(g.Next), unsafe.Offsetof(c.next)},
		{"next in a cache line", 0, unsafe.Offsetof(c.next) % 64},

		{"size of a segment", unsafe.Sizeof(gs), unsafe.Sizeof(cs)},
		{"pos", unsafe.Offsetof(gs.Pos), unsafe.Offsetof(cs.pos)},
		{"v", unsafe.Offsetof(gs.V), unsafe.Offsetof(cs.v)},
		{"vhead", unsafe.Offsetof(gs.VHead), unsafe.Offsetof(cs.vhead)},

		{"Pack", uintptr(kernel.Pack), C.NPK_PACK},
		{"InPlace", uintptr(kernel.InPlace), C.NPK_INPLACE},
		{"Attention", uintptr(kernel.Attention), C.NPK_ATTENTION},
		{"Copy", uintptr(kernel.Copy), C.NPK_COPY},
		{"Peak", uintptr(kernel.Peak), C.NPK_PEAK},
		{"FlagTanh", uintptr(kernel.FlagTanh), C.NPK_TANH},
		{"FlagKN", uintptr(kernel.FlagKN), C.NPK_KN},
		{"FlagRight", uintptr(kernel.FlagRight), C.NPK_RIGHT},
		{"FlagWide", uintptr(kernel.FlagWide), C.NPK_WIDE},
		{"FlagPlus", uintptr(kernel.FlagPlus), C.NPK_PLUS},
		{"FlagGated", uintptr(kernel.FlagGated), C.NPK_GATED},
		{"BF16", uintptr(kernel.BF16), C.NPK_BF16},
		{"I32", uintptr(kernel.I32), C.NPK_I32},
		{"BF12x4", uintptr(kernel.BF12x4), C.NPK_BF12X4},
		{"BF12x16", uintptr(kernel.BF12x16), C.NPK_BF12X16},
		{"Q8_0", uintptr(kernel.Q8_0), C.NPK_Q8_0},
		{"Q6_K", uintptr(kernel.Q6_K), C.NPK_Q6_K},

		{"size of a matrix in BF12", unsafe.Sizeof(gb), unsafe.Sizeof(cb)},
		{"its escapes", unsafe.Offsetof(gb.Escapes), unsafe.Offsetof(cb.escapes)},
		{"its heads", unsafe.Offsetof(gb.Heads), unsafe.Offsetof(cb.heads)},
		{"header of a 4-row block", kernel.Block4Bases + kernel.Block4Rows, unsafe.Sizeof(h4)},
		{"bases of a 4-row block", kernel.Block4Bases, unsafe.Offsetof(h4.bases)},
		{"rows of a 4-row block", kernel.Block4Rows, C.NPK_BLOCK4_ROWS},
		{"its columns in a unit", kernel.Block4Columns, C.NPK_BLOCK4_COLUMNS},
		{"header of a 16-row block", kernel.Block16Bases + kernel.Block16Rows, unsafe.Sizeof(h16)},
		{"a 16-row block of 4064 columns", block16(4064), uintptr(C.npk_block16_bytes(4064))},
		{"a 16-row block of 8192 columns", block16(8192), uintptr(C.npk_block16_bytes(8192))},
		{"bases of a 16-row block", kernel.Block16Bases, unsafe.Offsetof(h16.bases)},
		{"rows of a 16-row block", kernel.Block16Rows, C.NPK_BLOCK16_ROWS},
		{"its columns in a unit", kernel.Block16Columns, C.NPK_BLOCK16_COLUMNS},
		{"bytes of a unit", kernel.BF12Unit, C.NPK_BF12_UNIT},
	}
}
