//go:build cgo && !windows && amd64

// Package amx has kernels for the matrix unit of x86-64, AMX.
package amx

// #cgo CFLAGS: -std=gnu11 -O3 -g0 -Wall -Wextra
// #cgo LDFLAGS: -lm
// #cgo linux LDFLAGS: -lpthread
// #include "../csrc/kernel.h"
// #ifdef NPK_WITH_AMX
// extern const npk_kernels npk_amx;
// int npk_amx_works(void);
// static const npk_kernels *table(void) { return &npk_amx; }
// static int works(void) { return npk_amx_works(); }
// #else
// static const npk_kernels *table(void) { return NULL; }
// static int works(void) { return 0; }
// #endif
import "C"

import (
	"syscall"
	"unsafe"

	_ "github.com/npukit/npukit/npu/cpu/internal/ckernel/csrc" // rebuild if a header changes
)

// Tiles returns the table of products and attention, or nil if the C compiler does not know AMX.
func Tiles() unsafe.Pointer { return unsafe.Pointer(C.table()) }

// Works reports whether the instructions work. Some hypervisors advertise AMX and fault at it, so the
// first call tries them in a child process. No other child that Go starts may inherit from that one,
// hence the lock. The CPU must have AVX-512 BF16.
func Works() bool {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	return C.works() != 0
}
