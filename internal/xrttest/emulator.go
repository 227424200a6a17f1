//go:build xrt && linux && cgo

package xrttest

/*
#cgo LDFLAGS: -ldl
#include "bridge.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime/cgo"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// Emulator is the emulated NPU of this process.
type Emulator struct {
	handle cgo.Handle

	mu      sync.Mutex
	kernels map[uint64]Kernel
	strict  []string // violations detected in Go
}

// Open returns the emulated NPU for a test. It skips the test if the process has none. The test
// fails if it leaves objects open or causes violations. Tests that use the emulator must not run in
// parallel.
func Open(tb testing.TB) *Emulator {
	tb.Helper()
	if C.bridge_present() == 0 {
		tb.Skip("needs the emulated NPU: run by make test-xrt")
	}
	e := &Emulator{kernels: map[uint64]Kernel{}}
	e.handle = cgo.NewHandle(e)
	C.bridge_execute(C.uintptr_t(e.handle))
	tb.Cleanup(func() {
		if err := leaks(); err != nil {
			tb.Errorf("left open: %v", err)
		}
		for _, v := range e.Violations() {
			tb.Errorf("violation: %s", v)
		}
		C.bridge_execute(0)
		C.bridge_script(nil)
		C.bridge_reset()
		e.handle.Delete()
	})
	return e
}

// Main runs a package's tests and returns an error code if objects are left open. Call it from
// TestMain.
func Main(m *testing.M) int {
	code := m.Run()
	if C.bridge_present() == 0 {
		return code
	}
	if err := leaks(); err != nil {
		fmt.Fprintln(os.Stderr, "xrttest: left open:", err)
		return max(code, 1)
	}
	return code
}

// leaks returns an error if objects are still open after a short wait for runs in progress.
func leaks() error {
	var s Stats
	for deadline := time.Now().Add(3 * time.Second); ; time.Sleep(time.Millisecond) {
		s = stats()
		if s.Contexts+s.Buffers+s.SyncObjects == 0 && s.LockedBytes == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d contexts, %d buffers of %d bytes, %d sync objects, %d locked "+
				"bytes", s.Contexts, s.Buffers, s.BufferBytes,
				s.SyncObjects, s.LockedBytes)
		}
	}
}

// Register sets the function that computes the program with the given instructions. A run of a
// program without a function fails, and so does the test.
func (e *Emulator) Register(instructions []byte, k Kernel) {
	id := uint64(0)
	if len(instructions) > 0 {
		id = uint64(C.bridge_program(unsafe.Pointer(&instructions[0]), C.uint32_t(len(instructions))))
	}
	if id == 0 {
		panic("xrttest: Register: not an instruction stream")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kernels[id] = k
}

// Script replaces the faults to inject and the limits of the device. A script has lines, or parts
// separated by semicolons:
//
//	EVENT N ACTION [VALUE]     the Nth event from now on, counted from 1; * is every one
//	limit NAME VALUE           contexts, memlock (bytes) or heap (bytes)
//
// The events open, mmap, create_bo, create_hwctx and submit have the name of an errno as action,
// e.g. open 1 EACCES. The event run is one command on the device; its actions are timeout, error,
// abort, delay MS, remove (the device is gone from then on) and async CODE (an asynchronous error).
func (e *Emulator) Script(script string) error {
	p := C.CString(script)
	defer C.free(unsafe.Pointer(p))
	if wrong := C.bridge_script(p); wrong != nil {
		return errors.New("xrttest: script: " + C.GoString(wrong))
	}
	return nil
}

// Stats returns the resources that the device holds.
func (e *Emulator) Stats() Stats { return stats() }

func stats() Stats {
	var s C.npuemu_stats
	C.bridge_stats(&s)
	return Stats{Contexts: int(s.contexts), Buffers: int(s.buffers), SyncObjects: int(s.syncobjs),
		BufferBytes: int64(s.buffer_bytes),
		HeapBytes:   int64(s.heap_bytes), LockedBytes: int64(s.locked_bytes),
		Commands: int64(s.commands), Chains: int64(s.chains), Syncs: int64(s.syncs),
		Ioctls: int64(s.ioctls), MallocBytes: int64(s.malloc_bytes)}
}

// QoS returns the hints of the last hardware context: GOPS, FPS, DMA bandwidth, latency, frame time
// and priority.
func (e *Emulator) QoS() (q [6]uint32) {
	var s C.npuemu_stats
	C.bridge_stats(&s)
	for i := range q {
		q[i] = uint32(s.qos[i])
	}
	return q
}

// Violations returns and clears the violations so far, oldest first. A test that expects violations
// must call it, so that they do not fail the test.
func (e *Emulator) Violations() []string {
	e.mu.Lock()
	list := e.strict
	e.strict = nil
	e.mu.Unlock()
	var text [256]C.char
	for C.bridge_violation(&text[0], C.uint32_t(len(text))) != 0 {
		list = append(list, C.GoString(&text[0]))
	}
	return list
}

func (e *Emulator) violation(format string, args ...any) C.int {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.strict = append(e.strict, fmt.Sprintf(format, args...))
	return C.NPUEMU_ERROR
}

// xrttestExecute computes a command for the emulator.
//
//export xrttestExecute
func xrttestExecute(c *C.npuemu_command, user C.uintptr_t) (state C.int) {
	e := cgo.Handle(user).Value().(*Emulator)
	e.mu.Lock()
	k := e.kernels[uint64(c.program)]
	e.mu.Unlock()
	if k == nil {
		return e.violation("no kernel is registered for the program %016x (%d bytes of instructions)",
			uint64(c.program), uint32(c.instruction_bytes))
	}
	args := make([][]byte, c.nargs)
	for i := range args {
		if a := &c.args[i]; a.data != nil {
			args[i] = unsafe.Slice((*byte)(a.data), a.bytes)
		}
	}
	defer func() {
		if p := recover(); p != nil {
			state = e.violation("kernel of program %016x: %v", uint64(c.program), p)
		}
	}()
	if err := k(args); err != nil {
		return C.NPUEMU_ERROR
	}
	return C.NPUEMU_COMPLETED
}
