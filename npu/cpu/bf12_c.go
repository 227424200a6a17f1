//go:build cgo && !windows && (amd64 || arm64)

package cpu

// #include "bf12_pack.h"
import "C"

import "unsafe"

// Five kinds of kernels were timed. With avx2, avx512, avx512bf16 and amx, decoding is faster by BF12. Generic ones are as fast without it on x86-64; on arm64 nobody has
// measured.
func (e *cEngine) readsBF12() bool {
	return e.variant == C.NPK_AVX2 || e.variant == C.NPK_AVX512 || e.variant == C.NPK_AVX512BF16 || e.variant == C.NPK_AMX
}

func (e *cEngine) toBF12(w *bf12Weight, data []byte, first, last int) ([]uint32, bool) {
	rows := min(last*quadRows, int(w.rows)) - first*quadRows
	data = data[first*quadRows*int(w.cols)*2:][:rows*int(w.cols)*2] // C looks at no lengths
	list := make([]uint32, rows*int(w.cols)/bf12Local+bf12Few)
	n := C.npk_to_bf12((*C.uint8_t)(unsafe.Add(w.head.codes, first*w.quadBytes())), (*C.npk_quad)(unsafe.Pointer(&w.quads()[first])),
		(*C.uint32_t)(unsafe.Pointer(&list[0])), C.int64_t(len(list)),
		(*C.uint16_t)(unsafe.Pointer(unsafe.SliceData(data))), C.int64_t(rows), C.int64_t(w.cols))
	if n < 0 {
		return nil, false
	}
	return list[:n], true
}
