//go:build cgo && !windows && (amd64 || arm64)

package cpu

// #include "regroup.h"
import "C"

import "unsafe"

// regroup fills groups first to last-1 of a weight from the matrix as it lies in a file, with vectors.
func (e *cEngine) regroup(w *groupedWeight, data []byte, first, last int) {
	_ = data[w.bytes()-1] // C looks at no lengths
	C.npk_regroup(C.int(w.code), w.mem.ptr(), unsafe.Pointer(unsafe.SliceData(data)), C.int64_t(w.rows), C.int64_t(w.cols), C.int64_t(first), C.int64_t(last))
}
