// Package xdna2 describes AMD's XDNA 2 NPU as data and code: the array, the rules that decide which
// programs it can run, published kernel measurements, and a cost model. It needs no NPU and runs
// nothing.
//
// # The chip
//
// The array has 8 columns. A column is, from the bottom up, a shim tile, a mem tile and 4 compute
// cores.
//
//   - A core has 64 KB of data memory and 16 KB of program memory, and multiplies matrices in a
//     block floating-point format. It cannot access DRAM. DMA fills one half of a double buffer
//     while the core computes on the other, which is why the rules count many buffers twice. A core
//     has two DMA channels in and two out, and a wide link to the core above it, the cascade, which
//     carries partial sums.
//   - A mem tile has 512 KB. It holds matrix panels that several cores share and collects their
//     results.
//   - A shim tile connects its column to DRAM: two channels in, two out, at most 16 active buffer
//     descriptors.
//
// There is no cache and no demand fetch. A buffer descriptor (BD) describes each transfer in
// advance: an address and up to four dimensions, each with a step count and a stride. Counts and
// strides are fields of 10 and 20 bits, so shapes, not only sizes, decide whether a kernel can be
// built: a stride above 2^20 words of 32 bits has no descriptor.
//
// A mapping ([npu.Mapping]) places a kernel on the array: its variant, how many columns and rows of
// cores compute (the herd), and the tile that a core or a mem tile holds at a time. Larger tiles
// read each operand less often, so the largest that fits is often the fastest.
//
// # The cost of a program
//
// Kernels are merged into programs (one ELF, one dispatch). A dispatch costs the host about 0.1 ms,
// and each launch in it another 85 us before any arithmetic. Weights stream at about 42 GB/s, all
// of them for every token of decode. A GEMM reaches 5 to 10 TFLOP/s of a peak of 59 because it
// waits for tiles. A program runs in a hardware context, which takes 35 ms to open. The driver has
// 16 to 32 contexts for all processes and npukit keeps 8 open; programs beyond that evict each
// other. A whole prefill layer is 3 dispatches if everything merges and 15 if nothing
// does.
//
// # Does it fit?
//
// [Check] applies every rule to a program, [CheckLaunch] to a single launch, and [Fits] returns
// only yes or no. A failure is a [*ResourceError] with the rule, the demand, the limit, and a
// change that has been verified to fit.
//
//	err := xdna2.Check(program, xdna2.NPU2())
//	var e *xdna2.ResourceError
//	if errors.As(err, &e) { ... }    // e.Rule is "R-DMA-1", e.Wanted 1409024, e.Available 1048576, e.Unit "words"
//
// [Rules] lists the rules and the evidence for each: a limit of the silicon, a compiler
// restriction, an unexplained observation, or an inference. Some guard against kernels that run and
// silently write garbage, for example S-1. A test checks the rules against every published
// measurement: kernels that ran are accepted, kernels that failed are rejected, nearly always by
// the rule that their failure names. The rules were written with those measurements in view, so the
// test shows agreement with known results, not that the rules predict new ones. An accepted program
// can still fail: [Rules] also lists the rules that cannot be decided from a program, with the
// reason.
//
// # Has it been measured?
//
// [PublishedRegistry] holds some 400 published rows: a kernel, its shape and mapping, and its time,
// error and status. [Registry.Candidates] returns rows of the same kernel to start from, nearest shape
// first. [Registry.Add] adds a deployment's own measurements.
//
// # How fast?
//
// A [Clock] predicts times: [Clock.Launch] for a kernel on its own and [Clock.Program] for a
// dispatch. Its [Host] prices the work between dispatches; package model adds both up to whole
// passes of a plan. [HostNpukit] is the profile of this module, with its own work measured;
// the profile "reference" is the Python host of the published figures. [Clock.Losses] breaks down
// lost time: launch starts, transfers, tiles that are read again, kernels below their roofline.
// Every prediction comes with its [Roofline], the least time that any kernel would need.
//
// Predictions are fitted to published measurements and tested on shapes that were held out of the
// fit. They are never measurements.
//
// Sources: Xilinx/mlir-air e972f2942 (kernel registry, builders, model notes), the amdxdna driver,
// and arXiv 2606.07586.
package xdna2
