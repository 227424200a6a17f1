// Package xdna is the NPU of a Ryzen AI machine: it runs programs that were compiled for the array, through AMD's XRT.
//
//	dev, err := xdna.Open(ctx, &xdna.Options{Artefacts: "llama32_1b/build_peano"})
//	if err != nil { ... }                            // `npukit doctor` says what the machine lacks
//	defer dev.Close()
//	plan, err := model.NewNPUPlan(config, nil)
//	m, err := model.Open(ctx, dev, path, &model.OpenOptions{Plan: plan})
//
// It needs Linux and a program built with cgo and -tags xrt (see package xrt). Everything builds without them, and Open then says what is
// missing.
//
// # Programs
//
// The array runs what a compiler made for it, and this package compiles nothing itself. A folder of artefacts is what MLIR-AIR's language
// models leave behind: an ELF for each program, which configures the array and has the instructions, and a manifest.json. Load finds a
// program's artefact by its name and holds what manifest and binary say against the program: instance, number of arguments, their sizes,
// the order of an attention's heads. An xclbin with a separate instruction stream, as IRON makes them, stands in the same manifest. The
// identity of the tools in a manifest is logged and not compared: it has the times of files in it and never matches on another machine. A
// [Compiler] makes what a folder lacks with a command of yours.
//
// # What is where, and when it moves
//
// A buffer of Alloc is the same memory for the host's programs and for the array where the kernel driver can map memory of the process, and
// two memories between which Sync copies where it cannot. Weights are laid out, written and synced once for each layout, however many
// programs and layers ask for them; prefill wants most of them as [in, out] and decode as [out, in], so that these are on the device twice.
// Scratch is memory that all programs share, of the largest sizes and number that any of them has had, and is never synced; nor is anything
// that only programs of the array write and read.
//
// # Contexts and runs
//
// A binary runs in a hardware context. The driver has 16 to 32 of them for all processes, and this package keeps eight at most, opened when
// a run needs one (some 35 ms) and closed by last use: the programs of prefill make room for those of decode, and buffers and weights
// outlive both. In a context every combination of program and arguments is a run that is made once and started many times, as far as the 64
// MB heap for instructions goes; then old ones get new arguments. Neighbours of one context in a Submit go down as one list, of as many
// runs as the driver takes at once, at most 24.
//
// # When things go wrong
//
// A run that is aborted or reported as failed is tried once more in a new context. A run without progress, which the kernel driver ends
// after two seconds, is [npu.ErrTimeout] at once. A Submit whose ctx ends returns within milliseconds; the device cannot be stopped, so
// that the next Submit and the host's access to any buffer wait for it. A file lock, which MLIR-AIR's own programs take too, keeps
// processes from sharing the array while programs run.
//
// # What has been tested
//
// Everything above runs in tests over the unmodified XRT on an emulated driver (package xrt/xrttest) and over a driver played in Go. No NPU
// was at hand.
package xdna
