// Package xdna runs compiled programs on the NPU of a Ryzen AI machine through AMD's XRT.
//
//	dev, err := xdna.Open(ctx, &xdna.Options{Artefacts: "llama32_1b/build_peano"})
//	if err != nil { ... }                            // run `npukit doctor` to find the cause
//	defer dev.Close()
//	p, err := plan.NewNPU(config, nil)
//	m, err := model.Open(ctx, dev, path, &model.OpenOptions{Plan: p})
//
// It needs Linux and a build with cgo and -tags xrt (see package xrt). The package compiles without
// them, and Open then returns an error that names the missing part.
//
// # Programs
//
// The package does not compile programs itself. It loads artefacts, the output of MLIR-AIR's
// language model examples: one ELF per program, which configures the array and holds the
// instructions, and a manifest.json. Load finds the artefact of a program by name and returns an
// error if the manifest or the binary does not match the program: instance, number and sizes of
// arguments, head layout of attention. A manifest may also name an xclbin with a separate
// instruction stream, as IRON builds them. The toolchain recorded in a manifest is logged but not
// compared, because it includes file times and never matches on another machine. A [Compiler]
// builds missing artefacts with a user-supplied command.
//
// # Memory and syncs
//
// A buffer from Alloc is one memory region for host programs and the array if the kernel driver can
// map process memory. Otherwise it is two, and Sync copies between them. A weight is laid out,
// written and synced once per layout, even if many programs and layers use it. Prefill uses most
// weights as [in, out] and decode as [out, in], so the device holds those twice. Scratch memory is
// shared by all programs and never synced, and neither are values that only array programs write
// and read.
//
// # Contexts and runs
//
// A binary runs in a hardware context. The driver has 16 to 32 of them for all processes. The
// device uses at most eight by default; it opens a context when a run needs it (about 35 ms) and
// closes the least recently used one. Buffers and weights are not tied to a context. Within a
// context, each combination of program and arguments is a run that is created once and started many
// times. If the 64 MB instruction heap is full, an old run is bound to new arguments. Consecutive
// runs of a Submit in the same context are submitted as one list, of at most as many runs as the
// driver takes at once: 24.
//
// # Failures
//
// A run that is aborted or reported as failed is retried once in a new context. A run without
// progress, which the kernel driver stops after two seconds, returns [npu.ErrTimeout] without a
// retry. Submit returns within milliseconds after its context is done. The device cannot be
// stopped, so the next Submit and host access to any buffer wait until it is idle. A file lock,
// which MLIR-AIR's programs use too, keeps other processes off the array while programs run.
//
// # Test coverage
//
// Tests run the unmodified XRT on an emulated driver (package internal/xrttest), and a fake driver in
// Go. The package has not been tested on NPU hardware.
package xdna
