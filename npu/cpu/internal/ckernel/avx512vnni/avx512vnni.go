//go:build cgo && !windows && amd64

// Package avx512vnni has kernels with AVX-512 VNNI.
package avx512vnni

// #cgo CFLAGS: -std=gnu11 -O3 -g0 -Wall -Wextra
// #cgo LDFLAGS: -lm
// #include "../csrc/kernel.h"
// extern const npk_kernels npk_avx512vnni_integer;
import "C"

import (
	"unsafe"

	_ "github.com/npukit/npukit/npu/cpu/internal/ckernel/csrc" // rebuild if a header changes
)

// Integer returns the table of quantized GEMV as sums of integers.
func Integer() unsafe.Pointer { return unsafe.Pointer(&C.npk_avx512vnni_integer) }
