//go:build cgo && !windows && (amd64 || arm64)

package cpu

// #cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
// #cgo LDFLAGS: -lm
// #cgo linux LDFLAGS: -lpthread
// #include "npk.h"
import "C"

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// cEngine executes commands with the C kernels.
type cEngine struct {
	pool    *C.npk_pool
	threads int
	kernels string // a name of KernelNames
	variant C.int
	integer C.int // whose kernels make sums of whole numbers: the variant's, or NPK_VNNI's
	strips  bool  // there are weights in strips
}

// variants are the C kernels by name, in the order of KernelNames. NPK_VNNI is avx512 but for sums of whole numbers.
var variants = map[string]C.int{
	"generic": C.NPK_GENERIC, "armbf16": C.NPK_ARMBF16, "avx2": C.NPK_AVX2, "avx512": C.NPK_AVX512, "vnni": C.NPK_VNNI,
	"avx512bf16": C.NPK_AVX512BF16, "amx": C.NPK_AMX,
}

// openNative starts the C engine with the kernels asked for, or with the fastest.
func openNative(kernels string, threads int) (engine, error) {
	variant, ok := variants[kernels]
	switch {
	case kernels != "" && !ok:
		return nil, errUnknownKernels(kernels)
	case ok && !executes(variant):
		return nil, fmt.Errorf("npu/cpu: this machine cannot execute kernels %q; it can execute %q", kernels, usableVariants())
	}
	if kernels == "" {
		kernels = fastest()
		variant = variants[kernels]
	}
	e := &cEngine{threads: threads, kernels: kernels, variant: variant, integer: variant}
	switch {
	case variant == C.NPK_VNNI:
		e.variant = C.NPK_AVX512
	case variant == C.NPK_AMX && executes(C.NPK_VNNI):
		e.integer = C.NPK_VNNI
	}
	if e.pool = C.npk_open(C.int(threads)); e.pool == nil {
		return nil, fmt.Errorf("npu/cpu: the system refuses %d threads: ask for fewer in Options.Threads, or raise its limits of threads and memory", threads)
	}
	return e, nil
}

// executes reports whether this machine can execute a variant. AMX is tried in a child process, which no program that Go starts meanwhile may inherit from.
func executes(variant C.int) bool {
	if variant == C.NPK_AMX {
		syscall.ForkLock.Lock()
		defer syscall.ForkLock.Unlock()
	}
	return C.npk_usable(variant) != 0
}

func usableVariants() []string {
	return slices.DeleteFunc(KernelNames(), func(name string) bool {
		v, native := variants[name]
		return native && !executes(v)
	})
}

// fastest times the product of BF16 with BF16, which is most of the work, with each variant: what a CPU advertises need not be fast on it. On
// Zen 4 vdpbf16ps does twice as much as FP32 multiply-adds, on a Sapphire Rapids Xeon half as much. The variants take turns, a tenth of
// a millisecond each, so that all see the same clock. Only what npk_usable allows is executed: timing finds slow instructions, not faulting ones.
//
// It is done once: neighbours on the machine can make the faster of two look slower in a few turns, and devices of one process should agree to the bit.
var fastest = sync.OnceValue(func() string {
	var rates [C.NPK_VARIANTS]float64
	for range 20 {
		for v := range C.int(C.NPK_VARIANTS) {
			if executes(v) {
				rates[v] = max(rates[v], float64(C.npk_rate(v, C.int(productFlags(v)), 100_000)))
			}
		}
	}
	best := C.int(C.NPK_GENERIC)
	for v, rate := range rates {
		if rate > 0.95*rates[best] { // of equals the wider one: it also does the rest faster
			best = C.int(v)
		}
	}
	// AVX-512's multiply-add of 16-bit numbers is one instruction where the CPU has VNNI.
	if best == C.NPK_AVX512 && executes(C.NPK_VNNI) {
		best = C.NPK_VNNI
	}
	for name, v := range variants {
		if v == best {
			return name
		}
	}
	panic("npu/cpu: a variant has no name")
})

// productFlags is how a variant multiplies BF16 with BF16.
func productFlags(variant C.int) int32 {
	switch variant {
	case C.NPK_AVX512BF16, C.NPK_ARMBF16:
		return flagPairs
	case C.NPK_AMX:
		return flagPairs | flagTiles
	}
	return 0
}

func (e *cEngine) name() string { return e.kernels }

func (e *cEngine) multiplies(a, w int32, transposed bool) int32 {
	flags := productFlags(e.variant)
	switch {
	case a != typeBF16 || flags&flagTiles != 0 && !transposed:
		return 0
	case w == typeBF16 || w == typeBF12:
		return flags
	case w == typeStrips || isGrouped(w) && flags&flagTiles != 0:
		return flagTiles
	case isGrouped(w):
		return flags
	}
	return 0
}

func (e *cEngine) multipliesFew(a, w int32) int32 {
	switch {
	case w == typeStrips:
		return flagTiles
	case a == typeBF16 && isGrouped(w) && e.variant == C.NPK_AVX512BF16:
		return flagUnits
	}
	return 0
}

// A matrix unit makes two BF16 numbers of a weight, or rounds it no more coarsely than the result, where that is BF16.
func (e *cEngine) rounds() bool { return productFlags(e.variant) == flagPairs }

// The 2^-17 that the matrix unit loses of queries and of weights would show in FP32.
func (e *cEngine) attends(k, v, y int32, hd int64) int32 {
	if e.variant == C.NPK_AMX && k == typeBF16 && v == typeBF16 && y == typeBF16 && hd%C.NPK_TILE_K == 0 {
		return flagTiles
	}
	return 0
}

func (e *cEngine) gemvRows(a, w int32) int64 {
	if isGrouped(w) && a != typeBF16 {
		return 0 // 16 bits would be fewer than the activations have
	}
	switch {
	case w == typeStrips:
		return 1 // more are the matrix unit's, to the same bits
	case w == typeBF16 && a == typeBF16 && e.strips:
		return 0 // what does not compress, or is seen from within a strip, gives the bits that strips give
	}
	return C.NPK_GEMV_ROWS
}

func (e *cEngine) inPlaceRows(w, flags int32) int64 {
	if flags != flagPairs || isGrouped(w) {
		return 0
	}
	return C.NPK_INPLACE_ROWS
}

func (e *cEngine) packBytes(m, k int64, flags int32) int64 {
	return int64(C.npk_pack_bytes(e.variant, C.int64_t(m), C.int64_t(k), C.int(flags)))
}

func (e *cEngine) attentionBytes(c *command) int64 {
	return int64(C.npk_attention_bytes((*C.npk_cmd)(unsafe.Pointer(c))))
}

func (e *cEngine) run(cmds []command, cancel *uint32, trace bool) (cancelled bool, err error) {
	traced := C.int(0)
	if trace {
		traced = 1
	}
	switch C.npk_run(e.pool, e.variant, e.integer, (*C.npk_cmd)(unsafe.Pointer(unsafe.SliceData(cmds))), C.int64_t(len(cmds)), (*C.uint32_t)(cancel), traced) {
	case 0:
		return false, nil
	case 1:
		return true, nil
	}
	return false, fmt.Errorf("npu/cpu: no memory for the scratch of %d threads: fewer of them (Options.Threads) need less", e.threads)
}

func (e *cEngine) close() {
	C.npk_close(e.pool)
	e.pool = nil
}

// alone runs one command in memory of its own, and gives the time that it took.
func (e *cEngine) alone(c command, cancel *uint32) (time.Duration, error) {
	m, err := newMemory(int(unsafe.Sizeof(c)) + 64)
	if err != nil {
		return 0, err
	}
	defer m.free()
	if cancel == nil {
		cancel = (*uint32)(unsafe.Add(m.ptr(), unsafe.Sizeof(c)))
	}
	cmds := unsafe.Slice((*command)(m.ptr()), 1)
	cmds[0] = c
	began := time.Now()
	_, err = e.run(cmds, cancel, false)
	return time.Since(began), err
}

// peak is the arithmetic that all threads do in tiles from the nearest cache, in floating-point operations per second.
func (e *cEngine) peak(length time.Duration, rounds int) (float64, error) {
	c := command{kind: C.NPK_PEAK, flags: productFlags(e.variant)}
	flops := float64(C.npk_peak_flops(e.variant, C.int(c.flags)))
	c.n = int64(e.threads)
	best := 0.0
	for done := 0; done < rounds; {
		took, err := e.alone(c, nil)
		if err != nil {
			return 0, err
		}
		if took < length { // too short for the clock, or for a thread that had to be woken
			c.n *= 2
			continue
		}
		best = max(best, flops*float64(c.n)/took.Seconds())
		done++
	}
	return best, nil
}

func (e *cEngine) readBandwidth(m memory, cancel *uint32) (float64, error) {
	c := command{kind: C.NPK_READ, n: meterBytes, a: m.ptr(), y: unsafe.Add(m.ptr(), meterBytes)}
	best := 0.0
	for _, ahead := range []int64{0, 3072, 8192} { // bytes: some CPUs read faster when asked ahead of time, as products of few rows do
		c.p[0] = ahead
		took, err := e.alone(c, cancel)
		if err != nil || atomic.LoadUint32(cancel) != 0 {
			return 0, err
		}
		best = max(best, meterBytes/took.Seconds())
	}
	return best, nil
}
