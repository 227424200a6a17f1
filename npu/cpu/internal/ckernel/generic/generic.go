//go:build cgo && !windows && (amd64 || arm64)

// Package generic has kernels for any machine.
package generic

// #cgo CFLAGS: -std=gnu11 -O3 -g0 -Wall -Wextra
// #cgo LDFLAGS: -lm
// #include "../csrc/kernel.h"
// extern const npk_kernels npk_generic, npk_generic_integer;
import "C"

import (
	"unsafe"

	_ "github.com/npukit/npukit/npu/cpu/internal/ckernel/csrc" // rebuild if a header changes
)

// Base returns the table of all commands.
func Base() unsafe.Pointer { return unsafe.Pointer(&C.npk_generic) }

// Integer returns the table of quantized GEMV as sums of integers.
func Integer() unsafe.Pointer { return unsafe.Pointer(&C.npk_generic_integer) }
