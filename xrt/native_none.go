//go:build !(xrt && linux && cgo)

package xrt

import (
	"time"
	"unsafe"
)

// Without XRT nothing can be opened, so functions that take a handle are never called.

const available = false

func none() *failure { return &failure{unavailable: true} }

func nativeVersion() ([4]int, *failure)                       { return [4]int{}, none() }
func nativeDeviceCount() (int, *failure)                      { return 0, none() }
func nativeDeviceOpen(int) (unsafe.Pointer, *failure)         { return nil, none() }
func nativeDeviceOpenBDF(string) (unsafe.Pointer, *failure)   { return nil, none() }
func nativeDeviceText(unsafe.Pointer, int) (string, *failure) { return "", none() }
func nativeDeviceLastError(unsafe.Pointer, int) (uint64, uint64, string, *failure) {
	return 0, 0, "", none()
}
func nativeXclbin([]byte) (unsafe.Pointer, string, *failure) { return nil, "", none() }
func nativeELF([]byte) (unsafe.Pointer, string, *failure)    { return nil, "", none() }
func nativeContextXclbin(unsafe.Pointer, unsafe.Pointer, []string, []uint32) (unsafe.Pointer, *failure) {
	return nil, none()
}
func nativeContextELF(unsafe.Pointer, unsafe.Pointer, []string, []uint32) (unsafe.Pointer, *failure) {
	return nil, none()
}
func nativeBufferHost(unsafe.Pointer, int) (unsafe.Pointer, *failure) { return nil, none() }
func nativeBufferCacheable(unsafe.Pointer, int, uint32) (unsafe.Pointer, *failure) {
	return nil, none()
}
func nativeBufferUser(unsafe.Pointer, []byte) (unsafe.Pointer, *failure)   { return nil, none() }
func nativeBufferSub(unsafe.Pointer, int, int) (unsafe.Pointer, *failure)  { return nil, none() }
func nativeBufferMap(unsafe.Pointer) (unsafe.Pointer, uint64, *failure)    { return nil, 0, none() }
func nativeBufferSync(unsafe.Pointer, bool, int, int) *failure             { return none() }
func nativeKernelXclbin(unsafe.Pointer, string) (unsafe.Pointer, *failure) { return nil, none() }
func nativeKernelELF(unsafe.Pointer, string) (unsafe.Pointer, *failure)    { return nil, none() }
func nativeKernelModule(unsafe.Pointer, unsafe.Pointer, string) (unsafe.Pointer, *failure) {
	return nil, none()
}
func nativeKernelGroup(unsafe.Pointer, int) (int, *failure)           { return 0, none() }
func nativeRunNew(unsafe.Pointer) (unsafe.Pointer, *failure)          { return nil, none() }
func nativeRunSetBuffer(unsafe.Pointer, int, unsafe.Pointer) *failure { return none() }
func nativeRunSetScalar(unsafe.Pointer, int, uint64, int) *failure    { return none() }
func nativeRunStart(unsafe.Pointer) *failure                          { return none() }
func nativeRunState(unsafe.Pointer) (int, *failure)                   { return 0, none() }
func nativeRunResult(unsafe.Pointer) *failure                         { return none() }
func nativeRunlistNew(unsafe.Pointer) (unsafe.Pointer, *failure)      { return nil, none() }
func nativeRunlistAdd(unsafe.Pointer, unsafe.Pointer, bool) *failure  { return none() }
func nativeRunlistExecute(unsafe.Pointer) (int, *failure)             { return 0, none() }
func nativeRunlistState(unsafe.Pointer) (int, *failure)               { return 0, none() }
func nativeRunlistResult(unsafe.Pointer) *failure                     { return none() }
func nativeRunlistReset(unsafe.Pointer) *failure                      { return none() }
func nativeDeviceFree(unsafe.Pointer)                                 {}
func nativeXclbinFree(unsafe.Pointer)                                 {}
func nativeELFFree(unsafe.Pointer)                                    {}
func nativeContextFree(unsafe.Pointer)                                {}
func nativeBufferFree(unsafe.Pointer)                                 {}
func nativeKernelFree(unsafe.Pointer)                                 {}
func nativeRunFree(unsafe.Pointer)                                    {}
func nativeRunlistFree(unsafe.Pointer)                                {}
func nativeSleep(time.Duration)                                       {}
