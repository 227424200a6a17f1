// Package xrttest runs the real XRT libraries on an emulated NPU. The emulation is at the level of
// the amdxdna driver's ioctls.
//
// Everything above the driver is the software of a real machine: libxrt, the xdna library and
// package xrt. A preloaded library (folder emulator, in C) emulates the driver and the device:
// buffers, hardware contexts, command submission, chains, sync objects and queries, with the
// driver's limits and errors. It is stricter than hardware:
//
//   - Host and device have separate memory, so a missing or misplaced Sync always produces wrong
//     results.
//   - Every descriptor in a program's instructions must be inside a buffer of the command;
//     otherwise the run fails with the reason.
//   - A test fails if it closes an object that a command uses, or leaves an object open.
//
// Cores are not emulated. Use [Emulator.Register] to set a Go function that computes a program from
// the device memory of its arguments. The program is identified by its instructions, independent of
// the addresses that XRT patches into them.
//
//	func TestMain(m *testing.M) { os.Exit(xrttest.Main(m)) }
//
//	func TestDouble(t *testing.T) {
//		emu := xrttest.Open(t)                 // skips the test without the emulator
//		s := xrttest.NewStream(1)              // program number 1
//		s.Transfer(0, 0, 4096)                 // argument 0, 4096 bytes from byte 0
//		emu.Register(s.Bytes(), func(args [][]byte) error { ... })
//		emu.Script("run 3 timeout")            // the third run from now on hangs
//		dev, err := xrt.Open(0)
//		...
//	}
//
// The function is called through cgo on the emulator's thread. It is part of the test process, so
// it can use the kernels of package npu/cpu. The emulator contains no Go and works with any
// program; without a registered function runs complete without effect.
//
// make test-xrt builds the emulator with Debian sid's packages, which it stores in npukit's cache,
// and runs the tests.
package xrttest
