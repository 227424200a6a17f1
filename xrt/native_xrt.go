//go:build xrt && linux && cgo

package xrt

/*
#cgo CXXFLAGS: -std=c++17
#cgo LDFLAGS: -lxrt_coreutil -lstdc++
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"syscall"
	"time"
	"unsafe"
)

// Functions of shim.h with Go types. Handles are C memory. C sees Go memory only for names and
// values during a call.

const available = true

// failed converts and frees an error of the shim. It returns nil if e is nil.
func failed(e *C.nx_error) *failure {
	if e == nil {
		return nil
	}
	f := &failure{code: int(e.code), state: int(e.state), run: int(e.run), text: "out of memory"}
	if e.text != nil {
		f.text = C.GoString(e.text)
	}
	C.nx_error_free(e)
	return f
}

// text converts and frees a string of the shim.
func text(p *C.char) string {
	if p == nil {
		return ""
	}
	defer C.free(unsafe.Pointer(p))
	return C.GoString(p)
}

// cstring returns a C copy of s, and a function that frees it.
func cstring(s string) (p *C.char, free func()) {
	p = C.CString(s)
	return p, func() { C.free(unsafe.Pointer(p)) }
}

func nativeVersion() (v [4]int, f *failure) {
	var n [4]C.uint
	f = failed(C.nx_version(&n[0]))
	for i := range n {
		v[i] = int(n[i])
	}
	return v, f
}

func nativeDeviceCount() (int, *failure) {
	var n C.uint
	f := failed(C.nx_device_count(&n))
	return int(n), f
}

func nativeDeviceOpen(index int) (unsafe.Pointer, *failure) {
	var d *C.nx_device
	f := failed(C.nx_device_open(C.uint(index), &d))
	return unsafe.Pointer(d), f
}

func nativeDeviceOpenBDF(bdf string) (unsafe.Pointer, *failure) {
	var d *C.nx_device
	p, free := cstring(bdf)
	defer free()
	f := failed(C.nx_device_open_bdf(p, &d))
	return unsafe.Pointer(d), f
}

func nativeDeviceText(d unsafe.Pointer, what int) (string, *failure) {
	var p *C.char
	f := failed(C.nx_device_text((*C.nx_device)(d), C.int(what), &p))
	return text(p), f
}

func nativeDeviceLastError(d unsafe.Pointer, class int) (code, us uint64, words string, f *failure) {
	var c, t C.uint64_t
	var p *C.char
	f = failed(C.nx_device_last_error((*C.nx_device)(d), C.int(class), &c, &t, &p))
	return uint64(c), uint64(t), text(p), f
}

func nativeDeviceFree(d unsafe.Pointer) { C.nx_device_free((*C.nx_device)(d)) }

func nativeXclbin(data []byte) (unsafe.Pointer, string, *failure) {
	var x *C.nx_xclbin
	var p *C.char
	f := failed(C.nx_xclbin_parse(unsafe.Pointer(&data[0]), C.size_t(len(data)), &x))
	if f == nil {
		if f = failed(C.nx_xclbin_describe(x, &p)); f != nil {
			C.nx_xclbin_free(x)
		}
	}
	return unsafe.Pointer(x), text(p), f
}

func nativeXclbinFree(x unsafe.Pointer) { C.nx_xclbin_free((*C.nx_xclbin)(x)) }

func nativeELF(data []byte) (unsafe.Pointer, string, *failure) {
	var e *C.nx_elf
	var p *C.char
	f := failed(C.nx_elf_parse(unsafe.Pointer(&data[0]), C.size_t(len(data)), &e))
	if f == nil {
		if f = failed(C.nx_elf_describe(e, &p)); f != nil {
			C.nx_elf_free(e)
		}
	}
	return unsafe.Pointer(e), text(p), f
}

func nativeELFFree(e unsafe.Pointer) { C.nx_elf_free((*C.nx_elf)(e)) }

// quality returns QoS pairs as C arrays, and a function that frees them.
func quality(names []string, values []uint32) (n **C.char, v *C.uint32_t, free func()) {
	if len(names) == 0 {
		return nil, nil, func() {}
	}
	count := C.size_t(len(names))
	n = (**C.char)(C.calloc(count, C.size_t(unsafe.Sizeof(*n))))
	v = (*C.uint32_t)(C.calloc(count, C.size_t(unsafe.Sizeof(*v))))
	for i := range names {
		unsafe.Slice(n, len(names))[i] = C.CString(names[i])
		unsafe.Slice(v, len(names))[i] = C.uint32_t(values[i])
	}
	return n, v, func() {
		for _, p := range unsafe.Slice(n, len(names)) {
			C.free(unsafe.Pointer(p))
		}
		C.free(unsafe.Pointer(n))
		C.free(unsafe.Pointer(v))
	}
}

func nativeContextXclbin(d, x unsafe.Pointer, names []string, values []uint32) (unsafe.Pointer, *failure) {
	var c *C.nx_context
	n, v, free := quality(names, values)
	defer free()
	f := failed(C.nx_context_xclbin((*C.nx_device)(d), (*C.nx_xclbin)(x), n, v, C.size_t(len(names)), &c))
	return unsafe.Pointer(c), f
}

func nativeContextELF(d, e unsafe.Pointer, names []string, values []uint32) (unsafe.Pointer, *failure) {
	var c *C.nx_context
	n, v, free := quality(names, values)
	defer free()
	f := failed(C.nx_context_elf((*C.nx_device)(d), (*C.nx_elf)(e), n, v, C.size_t(len(names)), &c))
	return unsafe.Pointer(c), f
}

func nativeContextFree(c unsafe.Pointer) { C.nx_context_free((*C.nx_context)(c)) }

func nativeBufferHost(d unsafe.Pointer, n int) (unsafe.Pointer, *failure) {
	var b *C.nx_buffer
	f := failed(C.nx_buffer_host((*C.nx_device)(d), C.size_t(n), &b))
	return unsafe.Pointer(b), f
}

func nativeBufferCacheable(d unsafe.Pointer, n int, group uint32) (unsafe.Pointer, *failure) {
	var b *C.nx_buffer
	f := failed(C.nx_buffer_cacheable((*C.nx_device)(d), C.size_t(n), C.uint32_t(group), &b))
	return unsafe.Pointer(b), f
}

func nativeBufferUser(d unsafe.Pointer, mem []byte) (unsafe.Pointer, *failure) {
	var b *C.nx_buffer
	f := failed(C.nx_buffer_user((*C.nx_device)(d), unsafe.Pointer(&mem[0]), C.size_t(len(mem)), &b))
	return unsafe.Pointer(b), f
}

func nativeBufferSub(b unsafe.Pointer, offset, n int) (unsafe.Pointer, *failure) {
	var s *C.nx_buffer
	f := failed(C.nx_buffer_sub((*C.nx_buffer)(b), C.size_t(offset), C.size_t(n), &s))
	return unsafe.Pointer(s), f
}

func nativeBufferMap(b unsafe.Pointer) (mem unsafe.Pointer, address uint64, f *failure) {
	var a C.uint64_t
	f = failed(C.nx_buffer_map((*C.nx_buffer)(b), &mem, &a))
	return mem, uint64(a), f
}

func nativeBufferSync(b unsafe.Pointer, fromDevice bool, offset, n int) *failure {
	from := C.int(0)
	if fromDevice {
		from = 1
	}
	return failed(C.nx_buffer_sync((*C.nx_buffer)(b), from, C.size_t(offset), C.size_t(n)))
}

func nativeBufferFree(b unsafe.Pointer) { C.nx_buffer_free((*C.nx_buffer)(b)) }

func nativeKernelXclbin(c unsafe.Pointer, name string) (unsafe.Pointer, *failure) {
	var k *C.nx_kernel
	p, free := cstring(name)
	defer free()
	f := failed(C.nx_kernel_xclbin((*C.nx_context)(c), p, &k))
	return unsafe.Pointer(k), f
}

func nativeKernelELF(c unsafe.Pointer, name string) (unsafe.Pointer, *failure) {
	var k *C.nx_kernel
	p, free := cstring(name)
	defer free()
	f := failed(C.nx_kernel_elf((*C.nx_context)(c), p, &k))
	return unsafe.Pointer(k), f
}

func nativeKernelModule(c, e unsafe.Pointer, name string) (unsafe.Pointer, *failure) {
	var k *C.nx_kernel
	p, free := cstring(name)
	defer free()
	f := failed(C.nx_kernel_module((*C.nx_context)(c), (*C.nx_elf)(e), p, &k))
	return unsafe.Pointer(k), f
}

func nativeKernelGroup(k unsafe.Pointer, arg int) (int, *failure) {
	var group C.int
	f := failed(C.nx_kernel_group((*C.nx_kernel)(k), C.int(arg), &group))
	return int(group), f
}

func nativeKernelFree(k unsafe.Pointer) { C.nx_kernel_free((*C.nx_kernel)(k)) }

func nativeRunNew(k unsafe.Pointer) (unsafe.Pointer, *failure) {
	var r *C.nx_run
	f := failed(C.nx_run_new((*C.nx_kernel)(k), &r))
	return unsafe.Pointer(r), f
}

func nativeRunSetBuffer(r unsafe.Pointer, arg int, b unsafe.Pointer) *failure {
	return failed(C.nx_run_set_buffer((*C.nx_run)(r), C.int(arg), (*C.nx_buffer)(b)))
}

// Machines with an NPU are little-endian, so the first n bytes of v are its low ones.
func nativeRunSetScalar(r unsafe.Pointer, arg int, v uint64, n int) *failure {
	return failed(C.nx_run_set_scalar((*C.nx_run)(r), C.int(arg), unsafe.Pointer(&v), C.size_t(n)))
}

func nativeRunStart(r unsafe.Pointer) *failure { return failed(C.nx_run_start((*C.nx_run)(r))) }

func nativeRunState(r unsafe.Pointer) (int, *failure) {
	var s C.int
	f := failed(C.nx_run_state((*C.nx_run)(r), &s))
	return int(s), f
}

func nativeRunResult(r unsafe.Pointer) *failure { return failed(C.nx_run_result((*C.nx_run)(r))) }

func nativeRunFree(r unsafe.Pointer) { C.nx_run_free((*C.nx_run)(r)) }

func nativeRunlistNew(c unsafe.Pointer) (unsafe.Pointer, *failure) {
	var l *C.nx_runlist
	f := failed(C.nx_runlist_new((*C.nx_context)(c), &l))
	return unsafe.Pointer(l), f
}

func nativeRunlistAdd(l, r unsafe.Pointer, newChain bool) *failure {
	fresh := C.int(0)
	if newChain {
		fresh = 1
	}
	return failed(C.nx_runlist_add((*C.nx_runlist)(l), (*C.nx_run)(r), fresh))
}

func nativeRunlistExecute(l unsafe.Pointer) (submitted int, f *failure) {
	var n C.int
	f = failed(C.nx_runlist_execute((*C.nx_runlist)(l), &n))
	return int(n), f
}

func nativeRunlistState(l unsafe.Pointer) (int, *failure) {
	var s C.int
	f := failed(C.nx_runlist_state((*C.nx_runlist)(l), &s))
	return int(s), f
}

func nativeRunlistResult(l unsafe.Pointer) *failure {
	return failed(C.nx_runlist_result((*C.nx_runlist)(l)))
}

func nativeRunlistReset(l unsafe.Pointer) *failure {
	return failed(C.nx_runlist_reset((*C.nx_runlist)(l)))
}

func nativeRunlistFree(l unsafe.Pointer) { C.nx_runlist_free((*C.nx_runlist)(l)) }

// nativeSleep sleeps for d plus a few microseconds. time.Sleep rounds short durations up to a
// millisecond, because the runtime waits for timers in epoll, and a dispatch takes only about 60
// us.
func nativeSleep(d time.Duration) {
	t := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&t, nil) // an early return after a signal is fine
}
