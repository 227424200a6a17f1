//go:build cgo && !windows && amd64

// Package avx512bf16 has kernels with AVX-512 BF16.
package avx512bf16

// #cgo CFLAGS: -std=gnu11 -O3 -g0 -Wall -Wextra
// #cgo LDFLAGS: -lm
// #include "../csrc/kernel.h"
// extern const npk_kernels npk_avx512bf16_pairs, npk_avx512bf16_quants;
import "C"

import (
	"unsafe"

	_ "github.com/npukit/npukit/npu/cpu/internal/ckernel/csrc" // rebuild if a header changes
)

// Pairs returns the table of products of BF16 pairs.
func Pairs() unsafe.Pointer { return unsafe.Pointer(&C.npk_avx512bf16_pairs) }

// Quants returns the table of quantized GEMV as products of BF16 pairs.
func Quants() unsafe.Pointer { return unsafe.Pointer(&C.npk_avx512bf16_quants) }
