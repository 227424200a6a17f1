//go:build cgo && !windows && (amd64 || arm64)

package cpu

// #include "npk.h"
import "C"

import "unsafe"

// field is the place of a field of a structure that Go and C share, or the value of a constant.
type field struct {
	name      string
	inGo, inC uintptr
}

// layout lists what Go and C must agree on, for a test: tests cannot use cgo themselves.
func layout() []field {
	var g command
	var c C.npk_cmd
	var gs segment
	var cs C.npk_seg
	return []field{
		{"size of a command", unsafe.Sizeof(g), unsafe.Sizeof(c)},
		{"barrier", unsafe.Offsetof(g.barrier), unsafe.Offsetof(c.barrier)},
		{"at", unsafe.Offsetof(g.at), unsafe.Offsetof(c.at)},
		{"yt", unsafe.Offsetof(g.yt), unsafe.Offsetof(c.yt)},
		{"flags", unsafe.Offsetof(g.flags), unsafe.Offsetof(c.flags)},
		{"m", unsafe.Offsetof(g.m), unsafe.Offsetof(c.m)},
		{"lda", unsafe.Offsetof(g.lda), unsafe.Offsetof(c.lda)},
		{"ldy", unsafe.Offsetof(g.ldy), unsafe.Offsetof(c.ldy)},
		{"p", unsafe.Offsetof(g.p), unsafe.Offsetof(c.p)},
		{"f", unsafe.Offsetof(g.f), unsafe.Offsetof(c.f)},
		{"a", unsafe.Offsetof(g.a), unsafe.Offsetof(c.a)},
		{"y", unsafe.Offsetof(g.y), unsafe.Offsetof(c.y)},
		{"scratch", unsafe.Offsetof(g.scratch), unsafe.Offsetof(c.scratch)},
		{"segs", unsafe.Offsetof(g.segs), unsafe.Offsetof(c.segs)},
		{"nsegs", unsafe.Offsetof(g.nsegs), unsafe.Offsetof(c.nsegs)},
		{"start", unsafe.Offsetof(g.start), unsafe.Offsetof(c.start)},
		{"next", unsafe.Offsetof(g.next), unsafe.Offsetof(c.next)},
		{"size of a segment", unsafe.Sizeof(gs), unsafe.Sizeof(cs)},
		{"pos", unsafe.Offsetof(gs.pos), unsafe.Offsetof(cs.pos)},
		{"v", unsafe.Offsetof(gs.v), unsafe.Offsetof(cs.v)},
		{"vhead", unsafe.Offsetof(gs.vhead), unsafe.Offsetof(cs.vhead)},
		{"kind of a pack", uintptr(kindPack), C.NPK_PACK},
		{"kind of an attention", uintptr(kindAttention), C.NPK_ATTENTION},
		{"kind of a copy", uintptr(kindCopy), C.NPK_COPY},
		{"flag of pairs", uintptr(flagPairs), C.NPK_PAIRS},
		{"flag of tanh", uintptr(flagTanh), C.NPK_TANH},
		{"flag of [k, n]", uintptr(flagKN), C.NPK_KN},
		{"flag of tiles", uintptr(flagTiles), C.NPK_TILES},
		{"flag of units", uintptr(flagUnits), C.NPK_UNITS},
		{"flag of wide panels", uintptr(flagWide), C.NPK_WIDE},
		{"flag of a sum", uintptr(flagPlus), C.NPK_PLUS},
		{"flag of a gate", uintptr(flagGated), C.NPK_GATED},
		{"type BF16", uintptr(typeBF16), C.NPK_BF16},
		{"type I32", uintptr(typeI32), C.NPK_I32},
		{"type BF12", uintptr(typeBF12), C.NPK_BF12},
		{"type of strips", uintptr(typeStrips), C.NPK_STRIPS},
		{"type Q6_K", uintptr(typeQ6_K), C.NPK_Q6_K},
		{"size of a matrix in BF12", unsafe.Sizeof(bf12Head{}), unsafe.Sizeof(C.npk_bf12{})},
		{"its escapes", unsafe.Offsetof(bf12Head{}.escapes), unsafe.Offsetof(C.npk_bf12{}.escapes)},
		{"its heads", unsafe.Offsetof(bf12Head{}.heads), unsafe.Offsetof(C.npk_bf12{}.heads)},
		{"size of a quad", quadBases + quadRows, unsafe.Sizeof(C.npk_quad{})},
		{"bases of a quad", quadBases, unsafe.Offsetof(C.npk_quad{}.bases)},
		{"rows of a quad", quadRows, C.NPK_BF12_ROWS},
		{"its columns in a unit", quadColumns, C.NPK_BF12_COLUMNS},
		{"size of a strip", stripBases + stripRows, unsafe.Sizeof(C.npk_strip{})},
		{"a strip of some columns", uintptr((&bf12Weight{code: typeStrips, group: stripRows, cols: 4064}).groupBytes()), uintptr(C.npk_strip_bytes(4064))},
		{"a strip of many columns", uintptr((&bf12Weight{code: typeStrips, group: stripRows, cols: 8192}).groupBytes()), uintptr(C.npk_strip_bytes(8192))},
		{"bases of a strip", stripBases, unsafe.Offsetof(C.npk_strip{}.bases)},
		{"rows of a strip", stripRows, C.NPK_STRIP_ROWS},
		{"its columns in a unit of strips", stripColumns, C.NPK_STRIP_COLUMNS},
		{"bytes of a unit", bf12Unit, C.NPK_BF12_UNIT},
	}
}
