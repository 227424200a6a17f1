//go:build cgo && !windows && arm64

// Package armbf16 has kernels for arm64 with BF16.
package armbf16

// #cgo CFLAGS: -std=gnu11 -O3 -g0 -Wall -Wextra
// #cgo LDFLAGS: -lm
// #include "../csrc/kernel.h"
// #ifdef NPK_WITH_ARMBF16
// extern const npk_kernels npk_armbf16, npk_armbf16_pairs;
// static const npk_kernels *table_base(void) { return &npk_armbf16; }
// static const npk_kernels *table_pairs(void) { return &npk_armbf16_pairs; }
// #else
// static const npk_kernels *table_base(void) { return NULL; }
// static const npk_kernels *table_pairs(void) { return NULL; }
// #endif
import "C"

import (
	"unsafe"

	_ "github.com/npukit/npukit/npu/cpu/internal/ckernel/csrc" // rebuild if a header changes
)

// Base returns the table of all commands, or nil if the C compiler does not know the instructions.
func Base() unsafe.Pointer { return unsafe.Pointer(C.table_base()) }

// Pairs returns the table of products of BF16 pairs, or nil if the C compiler does not know the instructions.
func Pairs() unsafe.Pointer { return unsafe.Pointer(C.table_pairs()) }
