//go:build cgo && !windows

package ckernel

// #include "csrc/npk.h"
import "C"

import (
	"github.com/npukit/npukit/npu/cpu/internal/ckernel/armbf16"
	"github.com/npukit/npukit/npu/cpu/internal/ckernel/generic"
)

func init() {
	register(C.NPK_GENERIC, generic.Base())
	register(C.NPK_GENERIC_INTEGER, generic.Integer())
	register(C.NPK_ARMBF16, armbf16.Base())
	register(C.NPK_ARMBF16_PAIRS, armbf16.Pairs())
}

// usable reports whether this machine can execute a set.
func usable(s set) bool { return cpuHas(s.base) }
