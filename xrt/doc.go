// Package xrt provides Go bindings for AMD's XRT, the user-space runtime of Ryzen AI NPUs.
//
// XRT has four kinds of objects: a device; contexts, each a share of the array configured with one
// binary; buffers that host and device can access; and runs, each one submission of a kernel with
// its arguments. The package follows XRT's C++ API name by name, so that API's documentation
// applies here:
//
//	dev, err := xrt.Open(0)                     // xrt::device
//	elf, err := xrt.LoadELF("vadd.elf")         // xrt::elf
//	hw, err := dev.NewELFContext(elf, nil)      // xrt::hw_context
//	k, err := hw.ELFKernel("main:vadd")         // xrt::ext::kernel
//	a, err := dev.Alloc(4096)                   // xrt::ext::bo
//	a.WriteAt(data, 0)
//	a.Sync(xrt.ToDevice, 0, a.Size())           // makes the data visible to the device
//	run, err := k.NewRun()                      // xrt::run
//	run.SetBuffer(0, a)
//	run.Start()
//	err = run.Wait(ctx)                         // nil: completed
//
// # Building
//
// The bindings need Linux, cgo, XRT's headers and libxrt_coreutil, and the build tag xrt:
//
//	go build -tags xrt ./...
//
// Debian and its derivatives have the packages libxrt-dev, uuid-dev (required by the headers of
// libxrt-dev) and libxrt-npu2. For AMD's own packages set CGO_CXXFLAGS=-I/opt/xilinx/xrt/include
// and CGO_LDFLAGS="-L/opt/xilinx/xrt/lib -Wl,-rpath,/opt/xilinx/xrt/lib". Without the tag the
// package builds on every system, and functions that open a device or a file return
// [ErrUnavailable].
//
// # Kernels
//
// Use one of three methods to open a kernel, depending on the binary:
//
//   - [HWContext.Kernel] for an xclbin with a separate instruction stream. Argument 0 is the opcode
//     3, argument 1 is a buffer with the stream, argument 2 is its length in 32-bit words, and data
//     buffers start at argument 3.
//   - [HWContext.ELFKernel] for a full ELF, which has array configuration and instructions. It
//     takes a name of the form "kernel:instance". Data buffers start at argument 0.
//   - [HWContext.ModuleKernel] for an xclbin with the array configuration and an ELF with the
//     instructions. Arguments 0 to 2 are 3, 0, 0.
//
// # Memory
//
// A [Buffer] is memory with two views. [Buffer.Bytes] returns the host's view. Sync(ToDevice)
// updates the device's view, and Sync(FromDevice) updates the host's. On machines with coherent
// caches a missing Sync may go unnoticed; the emulated driver of package xrttest separates the
// views to detect it in tests. Buffers are locked in memory, so RLIMIT_MEMLOCK applies
// ([ErrMemlock]).
//
// # Lifetimes
//
// Every object must be closed with Close, in any order; closing it again does nothing. XRT frees
// the underlying memory when no other object needs it: a context stays usable after its device is
// closed, and a run keeps its kernel and its argument buffers. Every other method of a closed
// object returns [ErrClosed]. Closing a run in progress returns at once, and the run is freed when
// the device is done with it. Objects that are not closed are freed by the garbage collector,
// except buffers for which Bytes was called, because the slice may still be in use.
//
// All types are safe for concurrent use. Two goroutines that write the same bytes of a buffer race,
// as with any slice.
//
// # Waiting
//
// [Run.Wait] and [Runlist.Wait] poll the state, first in a spin loop and then at least once per
// millisecond, and return within about a millisecond after the context is done. They do not use
// XRT's timed waits, which lose the timeout result with drivers that signal completion through a
// sync object: a run then fails with "unexpected command state", and a runlist is reported as idle
// while the device is still working on it. The driver resets a device that makes no progress for
// two seconds, and the run ends with [ErrTimeout] or [ErrAborted]; XRT's message then has the
// instruction at which it hung (txn_op_idx). A failed run cannot be started again ([ErrSpent]),
// because the driver overwrites its command with an error report.
package xrt
