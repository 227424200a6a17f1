// Package xrttest runs the real XRT libraries on an NPU that is emulated below them, at the ioctls of the amdxdna driver.
//
// Everything above the driver is what owners of a Ryzen AI machine run: libxrt, the xdna library and package xrt. Below it, a preloaded
// library (folder emulator, C) plays the driver and the device: buffers, hardware contexts, command submission, chains, sync objects
// and the queries, with the driver's limits and errors. Three things are stricter than hardware:
//
//   - Host and device see different memory until a Sync: a forgotten or misplaced one gives wrong numbers, not luck.
//   - Every descriptor in a program's instructions must lie inside a buffer of the command, else the run fails with the reason.
//   - What is closed while a command uses it, and what is left open at the end of a test, fails the test.
//
// Cores are not emulated. A test says what a program computes with [Emulator.Register]: a Go function that gets the device's memory of every
// argument. The program is recognised by its instructions, whatever addresses XRT patched into them.
//
//	func TestMain(m *testing.M) { os.Exit(xrttest.Main(m)) }
//
//	func TestDouble(t *testing.T) {
//		emu := xrttest.Open(t)                 // skips where there is no emulator
//		s := xrttest.NewStream(1)              // program number 1
//		s.Transfer(0, 0, 4096)                 // argument 0, 4096 bytes from byte 0
//		emu.Register(s.Bytes(), func(args [][]byte) error { ... })
//		emu.Script("run 3 timeout")            // the third run from now on hangs
//		dev, err := xrt.Open(0)
//		...
//	}
//
// The function is one of the test process and not a plugin: it is called on the emulator's thread through cgo, so it may use anything that
// the test has, and kernels of package npu/cpu need no second copy in C. The emulator has no Go in it and works for any program; one
// that registers nothing sees its runs complete without effect.
//
// make test-xrt builds the emulator and runs the tests with it, from Debian sid's packages in npukit's cache.
package xrttest
