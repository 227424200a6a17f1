//go:build cgo && !windows && amd64

// Package avx2 has kernels with AVX2.
package avx2

// #cgo CFLAGS: -std=gnu11 -O3 -g0 -Wall -Wextra
// #cgo LDFLAGS: -lm
// #include "../csrc/kernel.h"
// extern const npk_kernels npk_avx2, npk_avx2_integer;
import "C"

import (
	"unsafe"

	_ "github.com/npukit/npukit/npu/cpu/internal/ckernel/csrc" // rebuild if a header changes
)

// Base returns the table of all commands.
func Base() unsafe.Pointer { return unsafe.Pointer(&C.npk_avx2) }

// Integer returns the table of quantized GEMV as sums of integers.
func Integer() unsafe.Pointer { return unsafe.Pointer(&C.npk_avx2_integer) }
