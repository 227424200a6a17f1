// Package xrt is AMD's XRT, the user-space runtime of Ryzen AI NPUs, for Go.
//
// XRT lends a program four things: a device, contexts on it (a share of the array, configured with one binary), buffers that host and
// device both reach, and runs (one submission of a kernel with its arguments). This package follows XRT's C++ API name by name, so that
// what is known of that API holds here:
//
//	dev, err := xrt.Open(0)                     // xrt::device
//	elf, err := xrt.LoadELF("vadd.elf")         // xrt::elf
//	hw, err := dev.NewELFContext(elf, nil)      // xrt::hw_context
//	k, err := hw.ELFKernel("main:vadd")         // xrt::ext::kernel
//	a, err := dev.Alloc(4096)                   // xrt::ext::bo
//	a.WriteAt(data, 0)
//	a.Sync(xrt.ToDevice, 0, a.Size())           // nothing reaches the device without it
//	run, err := k.NewRun()                      // xrt::run
//	run.SetBuffer(0, a)
//	run.Start()
//	err = run.Wait(ctx)                         // nil: completed
//
// # Building
//
// The binding needs Linux, cgo, XRT's headers and libxrt_coreutil, and the build tag xrt:
//
//	go build -tags xrt ./...
//
// Debian and its relatives have the packages libxrt-dev, uuid-dev (which libxrt-dev's headers need) and libxrt-npu2. For AMD's own packages
// set CGO_CXXFLAGS=-I/opt/xilinx/xrt/include and CGO_LDFLAGS="-L/opt/xilinx/xrt/lib -Wl,-rpath,/opt/xilinx/xrt/lib". Without the tag
// everything builds on every system, and what would open a device or a file returns [ErrUnavailable].
//
// # Three ways to name a kernel
//
// An xclbin with a separate instruction stream: [HWContext.Kernel]; argument 0 is the opcode 3, argument 1 a buffer with the stream, 2 its
// length in 32-bit words, and the data buffers follow. A full ELF, which carries array configuration and instructions together:
// [HWContext.ELFKernel] with "kernel:instance"; data buffers from argument 0. An xclbin that configures the array, with an ELF of
// instructions only: [HWContext.ModuleKernel]; arguments 0 to 2 are 3, 0, 0.
//
// # Memory
//
// A [Buffer] is one piece of memory with two views. The host's is [Buffer.Bytes]; the device's is brought up to date by Sync(ToDevice) and
// read back by Sync(FromDevice). On many machines the caches are coherent and a forgotten Sync goes unnoticed; the emulated driver of package
// xrttest keeps the views apart, so that tests notice. Every buffer is locked in memory: RLIMIT_MEMLOCK is the limit ([ErrMemlock]).
//
// # Lifetimes
//
// Everything that is opened is closed with Close, in any order and as often as one likes. Closing says that the program is done with a
// thing; the memory behind it goes when nothing else of XRT needs it: a context outlives its device's Close, a run keeps its kernel
// and the buffers that are its arguments. Closed things answer every other call with [ErrClosed]. A run that is closed while the
// device works on it returns at once and is released when the device lets go of it. What a program forgets to close, the garbage
// collector closes some time later, except buffers whose Bytes were handed out: nobody can know who still looks at them.
//
// All types may be used from several goroutines at once. Two goroutines that write the same bytes of a buffer race as on any slice.
//
// # Waiting
//
// [Run.Wait] and [Runlist.Wait] ask for the state again and again, quickly at first and then once a millisecond at most, and return when the
// context ends, within about a millisecond. No time limit is passed into XRT, whose timed waits lose the answer "not yet" on drivers that
// signal completion through a sync object: a run then fails with "unexpected command state", and a runlist is taken for idle while
// the device still works on it. A device that makes no progress for two seconds is reset by its driver, and the run ends with
// [ErrTimeout] or [ErrAborted]; XRT's words in the error then say which of the instructions it hung at (txn_op_idx). A run that failed is
// not started again ([ErrSpent]): the driver leaves its report where the command was.
package xrt
