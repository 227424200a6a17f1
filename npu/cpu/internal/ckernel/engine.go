//go:build cgo && !windows && (amd64 || arm64)

// Package ckernel executes commands with kernels in C and a pool of threads.
package ckernel

// #cgo CFLAGS: -std=gnu11 -O3 -Wall -Wextra
// #cgo LDFLAGS: -lm
// #cgo linux LDFLAGS: -lpthread
// #include "csrc/npk.h"
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	_ "github.com/npukit/npukit/npu/cpu/internal/ckernel/csrc" // rebuild if a header changes
	"github.com/npukit/npukit/npu/cpu/internal/kernel"
)

// Engine executes commands with the C kernels.
type Engine struct {
	pool     *C.npk_pool
	threads  int
	set      set
	blocks16 bool // the device keeps weights as BF12x16
}

// Open starts an engine with the kernels of that name, or with the fastest if it is empty.
func Open(name string, threads int) (*Engine, error) {
	e := &Engine{threads: threads}
	if name == "" {
		e.set = sets[fastest()]
	} else {
		s := setOf(name)
		if s == nil || !usable(*s) {
			return nil, fmt.Errorf("npu/cpu: this machine cannot execute kernels %q; it can execute %q",
				name, append([]string{"go"}, Usable()...))
		}
		e.set = *s
	}
	if e.set.tiles != 0 && cpuHas(C.NPK_AVX512VNNI_INTEGER) {
		e.set.integer = C.NPK_AVX512VNNI_INTEGER
	}
	if e.pool = C.npk_open(C.int(threads), C.int(e.set.base)); e.pool == nil {
		return nil, fmt.Errorf("npu/cpu: the system refuses %d threads: ask for fewer in "+
			"Options.Threads, or raise its limits of threads and memory", threads)
	}
	return e, nil
}

// register adds a table of an instruction set; nil if the compiler does not know the instructions.
func register(table C.int, kernels unsafe.Pointer) {
	C.npk_register(table, (*C.npk_kernels)(kernels))
}

func cpuHas(table int32) bool { return C.npk_cpu_has(C.int(table)) != 0 }

// Usable returns the names of the kernels that this machine can execute, slowest first.
func Usable() (names []string) {
	for _, s := range sets {
		if usable(s) {
			names = append(names, s.name)
		}
	}
	return names
}

// fastest returns the index of the fastest set. It times the product of BF16 with BF16, which is
// most of the work, because an instruction that a CPU advertises can still be slow: vdpbf16ps has
// twice the throughput of FP32 multiply-adds on Zen 4, and half on some Xeons. The sets take turns
// of a tenth of a millisecond, so that all see the same clock. Only usable sets are executed:
// timing finds slow instructions, not faulting ones.
//
// It runs once: other load could reverse the order of two sets, and the devices of one process
// should agree bit for bit.
var fastest = sync.OnceValue(func() int {
	rates := make(map[int32]float64) // by table
	for range 20 {
		for _, s := range sets {
			if usable(s) {
				rates[s.peak()] = max(rates[s.peak()], float64(C.npk_rate(C.int(s.peak()), 100_000)))
			}
		}
	}
	best := 0
	for i, s := range sets {
		if usable(s) && rates[s.peak()] > 0.95*rates[sets[best].peak()] {
			best = i
		}
	}
	return best
})

// Name returns the name of the kernels in use.
func (e *Engine) Name() string { return e.set.name }

// PackBytes returns the size of a Pack command's output in bytes.
func (e *Engine) PackBytes(c *kernel.Command) int64 {
	return int64(C.npk_pack_bytes(e.pool, (*C.npk_cmd)(unsafe.Pointer(c))))
}

// AttentionBytes returns the size of the scratch memory of an Attention command.
func (e *Engine) AttentionBytes(c *kernel.Command) int64 {
	return int64(C.npk_attention_bytes((*C.npk_cmd)(unsafe.Pointer(c))))
}

// Run executes commands and reports whether *cancel became non-zero before the end.
func (e *Engine) Run(cmds []kernel.Command, cancel *uint32, trace bool) (bool, error) {
	traced := C.int(0)
	if trace {
		traced = 1
	}
	first := (*C.npk_cmd)(unsafe.Pointer(unsafe.SliceData(cmds)))
	switch C.npk_run(e.pool, first, C.int64_t(len(cmds)), (*C.uint32_t)(cancel), traced) {
	case 0:
		return false, nil
	case 1:
		return true, nil
	}
	return false, fmt.Errorf("npu/cpu: no memory for the scratch of %d threads: "+
		"fewer of them (Options.Threads) need less", e.threads)
}

// Close stops the threads.
func (e *Engine) Close() {
	C.npk_close(e.pool)
	e.pool = nil
}

// time runs one command and returns how long it took.
func (e *Engine) time(c kernel.Command, cancel *uint32) (time.Duration, error) {
	began := time.Now()
	_, err := e.Run([]kernel.Command{c}, cancel, false)
	return time.Since(began), err
}

// Peak returns the floating-point operations per second of all threads in products of BF16 with
// BF16 from the L1 cache, the best of several rounds of at least that length.
func (e *Engine) Peak(length time.Duration, rounds int) (float64, error) {
	c := kernel.Command{Kind: kernel.Peak, Table: e.set.peak(), N: int64(e.threads)}
	flops := float64(C.npk_peak_flops(C.int(c.Table)))
	best := 0.0
	for done := 0; done < rounds; {
		took, err := e.time(c, new(uint32))
		if err != nil {
			return 0, err
		}
		if took < length { // too short for the clock, or for a thread that had to be woken
			c.N *= 2
			continue
		}
		best = max(best, flops*float64(c.N)/took.Seconds())
		done++
	}
	return best, nil
}

// ReadBandwidth returns the bytes per second at which all threads read mem, whose size is a
// multiple of 1 MiB. Results has room for a float32 per MiB. Both are outside the Go heap.
func (e *Engine) ReadBandwidth(mem, results []byte, cancel *uint32) (float64, error) {
	c := kernel.Command{Kind: kernel.Read, N: int64(len(mem)),
		A: unsafe.Pointer(unsafe.SliceData(mem)), Y: unsafe.Pointer(unsafe.SliceData(results))}
	best := 0.0
	for _, ahead := range []int64{0, 3072, 8192} { // some CPUs read faster with software prefetch
		c.Ahead = ahead
		took, err := e.time(c, cancel)
		if err != nil || atomic.LoadUint32(cancel) != 0 {
			return 0, err
		}
		best = max(best, float64(len(mem))/took.Seconds())
	}
	return best, nil
}

// Regroup fills groups first to last-1 of a weight from the matrix in the order of its file. Calls
// may overlap.
func (e *Engine) Regroup(w *kernel.Grouped, data []byte, first, last int) {
	_ = data[w.Bytes()-1] // C checks no lengths
	regroup(w, data, first, last)
}
