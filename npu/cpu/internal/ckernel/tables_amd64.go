//go:build cgo && !windows

package ckernel

// #include "csrc/npk.h"
import "C"

import (
	"github.com/npukit/npukit/npu/cpu/internal/ckernel/amx"
	"github.com/npukit/npukit/npu/cpu/internal/ckernel/avx2"
	"github.com/npukit/npukit/npu/cpu/internal/ckernel/avx512"
	"github.com/npukit/npukit/npu/cpu/internal/ckernel/avx512bf16"
	"github.com/npukit/npukit/npu/cpu/internal/ckernel/avx512vnni"
	"github.com/npukit/npukit/npu/cpu/internal/ckernel/generic"
)

func init() {
	register(C.NPK_GENERIC, generic.Base())
	register(C.NPK_GENERIC_INTEGER, generic.Integer())
	register(C.NPK_AVX2, avx2.Base())
	register(C.NPK_AVX2_INTEGER, avx2.Integer())
	register(C.NPK_AVX512, avx512.Base())
	register(C.NPK_AVX512_INTEGER, avx512.Integer())
	register(C.NPK_AVX512VNNI_INTEGER, avx512vnni.Integer())
	register(C.NPK_AVX512BF16_PAIRS, avx512bf16.Pairs())
	register(C.NPK_AVX512BF16_QUANTS, avx512bf16.Quants())
	register(C.NPK_AMX, amx.Tiles())
}

// usable reports whether this machine can execute a set.
func usable(s set) bool {
	switch {
	case s.arm:
		return false
	case s.tiles != 0:
		return cpuHas(C.NPK_AVX512BF16_PAIRS) && amx.Works()
	case s.pairs != 0:
		return cpuHas(s.pairs)
	case s.integer == C.NPK_AVX512VNNI_INTEGER:
		return cpuHas(s.integer)
	}
	return cpuHas(s.base)
}
