//go:build cgo && !windows && (amd64 || arm64)

package cpu

// #include "bf12_pack.h"
import "C"

import "unsafe"

func (e *cEngine) readsBF12() int32 {
	if e.variant == C.NPK_AMX {
		return typeStrips
	}
	return typeBF12
}

// Five kinds of kernels were timed. With avx2, avx512, avx512bf16 and amx, decoding is faster by BF12. Generic ones are as fast without it on x86-64; on arm64 nobody has
// measured.
func (e *cEngine) useBF12() bool {
	e.strips = e.variant == C.NPK_AMX
	return e.strips || e.variant == C.NPK_AVX2 || e.variant == C.NPK_AVX512 || e.variant == C.NPK_AVX512BF16
}

func (e *cEngine) toBF12(w *bf12Weight, data []byte, first, last int) ([]uint32, bool) {
	rows := min(last*w.group, int(w.rows)) - first*w.group
	data = data[first*w.group*int(w.cols)*2:][:rows*int(w.cols)*2] // C looks at no lengths
	list := make([]uint32, rows*int(w.cols)/bf12Local+bf12Few)
	codes := (*C.uint8_t)(unsafe.Add(w.head.codes, first*w.groupBytes()))
	escapes, from := (*C.uint32_t)(unsafe.Pointer(&list[0])), (*C.uint16_t)(unsafe.Pointer(unsafe.SliceData(data)))
	var n C.int64_t
	if w.code == typeStrips {
		n = C.npk_to_strips(codes, escapes, C.int64_t(len(list)), from, C.int64_t(rows), C.int64_t(w.cols), C.int(w.head.zeros))
	} else {
		n = C.npk_to_quads(codes, (*C.npk_quad)(unsafe.Pointer(w.escapes(first))), escapes, C.int64_t(len(list)), from, C.int64_t(rows), C.int64_t(w.cols), C.int(w.head.zeros))
	}
	if n < 0 {
		return nil, false
	}
	return list[:n], true
}
