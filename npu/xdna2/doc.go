// Package xdna2 is what is known of AMD's XDNA 2 NPU, as data and code: the array, what can be placed on it, what has been measured, and
// how long work takes. It needs no NPU, and it runs nothing.
//
// # The chip
//
// The array has 8 columns. A column is, from the bottom up, a shim tile, a mem tile and 4 compute cores.
//
//   - A core has 64 KB of data memory and 16 KB for its program, and multiplies matrices in a block floating-point format. It sees no DRAM: what it
//     works on must be brought into its memory, while it works on what was brought before (ping and pong, hence "twice" in the rules). It has two
//     DMA channels in and two out, and a wide link to the core above it, the cascade, over which partial sums travel.
//   - A mem tile has 512 KB. It is where panels of matrices wait that several cores need, and where their results are collected.
//   - A shim tile joins its column to the DRAM: two channels in, two out, at most 16 transfers described at once.
//
// Nothing is cached and nothing is fetched on demand. Every transfer is described beforehand by a buffer descriptor (BD): where, and in
// up to four dimensions how many steps of what stride. Steps and strides are fields of 10 and 20 bits, so that shapes, not only sizes,
// decide whether a kernel can be built: a stride of more than 2^20 words of 32 bits has no descriptor.
//
// A kernel is laid on the array by a mapping ([npu.Mapping]): its variant, how many columns and rows of cores work (the herd), and the
// tile that one core, or one mem tile, holds at a time. Larger tiles read each operand less often; the largest that fits is often the
// fastest.
//
// # What a program costs there
//
// Kernels are merged into programs (one ELF, one dispatch). A dispatch costs the host about 0.1 ms; each launch inside it another 85 us
// before any arithmetic; weights stream at some 42 GB/s, all of them for every token of decode; a GEMM reaches 5 to 10 TFLOP/s, of 59 at
// the peak, as it waits for tiles. A program runs in a hardware context, which takes 35 ms to open; the driver has 16 to 32 for all processes,
// and we keep 8 alive, so that more programs than that take turns ([Contexts]). A whole prefill layer is 3 dispatches when everything
// merges, and 15 when nothing does.
//
// # Does it fit?
//
// [Check] asks every rule about a program, [CheckLaunch] about a launch by itself, and [Fits] only for yes or no. An answer is a
// [*ResourceError]: the rule, what was wanted, what there is, and what would fit, which has been tried.
//
//	err := xdna2.Check(program, xdna2.NPU2())
//	var e *xdna2.ResourceError
//	if errors.As(err, &e) { ... }    // e.Rule is "R-DMA-1", e.Wanted 1409024, e.Available 1048576, e.Unit "words"
//
// [Rules] lists them, with what stands behind each: a limit of the silicon, a habit of the compiler, an observation that nobody has
// explained, an inference of ours. Some guard against kernels that run and write garbage without an error (S-1 and others). A test holds
// them against every published measurement: what ran is placed, what failed is refused, nearly always by the rule that its failure names;
// the test lists the exceptions. The rules were written with those measurements in view, so that this shows that they agree with what is
// known, not that they foresee what nobody has tried. A placed program can still fail: rules that need what a program does not tell are
// listed with the reason.
//
// # Has it been measured?
//
// [PublishedRegistry] holds some 400 published rows: a kernel, its shape and mapping, and the time, the error and the verdict.
// [Registry.Find] finds a launch's own rows, [Registry.Candidates] those to start from, and a deployment adds what it measures with
// [Registry.Add].
//
// # How fast?
//
// A [Clock] predicts: [Clock.Launch] a kernel alone, [Clock.Program] a dispatch, and with its [Host] what happens between dispatches;
// package model adds them up to whole passes of a plan. There are two hosts: [HostNpukit], which is what users of this module have, with
// its own work measured, and [HostReference], the Python host of the published figures. [Clock.Losses] names where the time goes: starts,
// transfers, tiles read again, a kernel below its roofline. Each prediction stands beside its
// [Roofline], the least time that any kernel would need, and [Rho] compares whole models with a reference. Predictions are fitted to half
// of the published shapes and tested on the other half; they are never measurements.
//
// Sources: Xilinx/mlir-air e972f2942 (kernel registry, builders, model notes), the amdxdna driver, and arXiv 2606.07586.
package xdna2
