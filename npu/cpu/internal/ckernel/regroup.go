//go:build cgo && !windows && (amd64 || arm64)

package ckernel

// #include "regroup.h"
import "C"

import (
	"unsafe"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"
)

func regroup(w *kernel.Grouped, data []byte, first, last int) {
	C.npk_regroup(C.int(w.Code), w.Ptr(), unsafe.Pointer(unsafe.SliceData(data)),
		C.int64_t(w.Rows), C.int64_t(w.Cols), C.int64_t(first), C.int64_t(last))
}
