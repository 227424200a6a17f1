// Package cpu is the software device: it executes programs on the CPU that the program runs on.
//
//	dev, err := cpu.Open(nil)         // all cores, the fastest kernels of this machine
//	if err != nil { ... }
//	defer dev.Close()
//	x, err := dev.Alloc(ctx, 4*2048)  // zeroed, outside the Go heap
//	exec, err := dev.Load(ctx, program)
//	err = dev.Submit(ctx, []npu.Run{{Exec: exec, Args: []npu.Buffer{x, w, y}}})
//
// # Execution
//
// Submit lowers every launch of every run to one command, or a few, in memory outside the Go heap,
// and passes the array of commands to an engine. All threads of the engine walk the array
// together: within a command each takes chunks (about a megabyte of weight rows) from atomic
// counters, and they wait for each other only if a command depends on an earlier one. If
// weights are read in place, a thread starts with a range of adjacent chunks of its own and then
// helps the others. There are two engines: C kernels for several instruction sets with threads
// that spin between calls, and pure Go, which is the only one without cgo.
//
// If only the next launch reads the result of a product, and adds it to something or gates it with
// a SiLU, both are fused into one command, with the same results bit for bit. A tracer sees both
// under one name, "ffn.down+ffn.residual".
//
// # Weights
//
// F16 and F32 weights are read in place, from the checkpoint's mapping. So are BF16 weights with
// the kernels generic, armbf16 and go, or if Options.InPlace is set. The other kernels compress
// BF16 matrices when a Const buffer is made: twelve bits per weight, without loss (see bf12.go),
// which makes decode a third faster. A matrix whose exponents vary too much stays BF16. Ops that
// need the BF16 itself, such as look-ups of rows, read the tensor.
//
// Quantized blocks (Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K) keep their values and about
// their size, but 16 rows at a time are repacked when a Const buffer is made. Everything
// accumulates in FP32. The memory of a weight's source must outlive every Const buffer made of it,
// until the buffer is closed: the buffer may be that memory, and equal weights are found by its
// address.
//
// # The number format of quantized products
//
// With most kernels, products of up to 16 rows of BF16 activations with quantized weights (4 in
// the Go engine) are sums of integers. Every 32 activations get a scale in FP32, which makes the
// largest of them 32767, and are rounded to 16 bits; if the results are FP32, another 15 bits
// follow. An activation is off by at most 2^-16 (2^-30) of the largest of its 32. The sums over a
// block are exact; they are scaled and added in FP32. The kernels vnni, which otherwise equal
// avx512, and amx use the dot product of VNNI, with the same results.
//
// The kernels avx512bf16 multiply quants with BF16 activations instead: quants are integers that
// BF16 represents exactly, their products are exact in FP32, and the sums over a block are scaled
// and added in FP32. Nothing else is rounded.
//
// Products of more rows dequantize the weights, a panel at a time, and are FP32 throughout, as are
// products of FP32 activations with all kernels. Kernels that multiply pairs of BF16 differ: with
// avx512bf16 and armbf16 a weight is rounded to BF16, off by at most 2^-8 of it. With amx it is
// the sum of two BF16 numbers, off by at most 2^-17, or one if the results are BF16 too.
//
// Look-ups of rows of a quantized table are exact. All other uses of a quantized weight (views
// that start within a group of 16 rows or skip rows, weights that are not transposed, programs
// that name BF16 for it) get a copy of it in BF16, made when it is first needed.
//
// # Indices
//
// The indices of Embed and Pick come from the host. Submit checks them while it prepares the runs
// and returns an error if one is out of range. No op writes indices; a buffer that is another
// program's output in the same Submit is checked with the content it had before. If the memory
// changes after that, rows whose index is out of range are left as they were and nothing is read
// out of bounds.
//
// # Kernels
//
// The first Open of a process times the candidates for some milliseconds to choose the C kernels:
// an instruction that a CPU has need not be fast on it. Candidates are the sets that the CPU and
// the operating system report. Timing finds slow instructions; it does not protect from ones that
// fault, as under an emulator that advertises more than it executes: there Options.Kernels must
// name a set that works.
//
// The environment variable NPUKIT_KERNELS limits the kernels of every device of the process, to
// test the kernels of an older CPU or to exclude kernels. For example, with NPUKIT_KERNELS=avx2 a
// device opens with avx2 instead of timing, and Options.Kernels may only name avx2 or a set before
// it in KernelNames. Open returns an error if the variable names unknown kernels or some that this
// machine cannot execute.
//
// The matrix unit of recent Intel CPUs (AMX, kernels "amx") is tried first, because virtual
// machines that advertise it and fault at it are common. The first Open that may choose it tries
// one product in a child process, a fork that runs no Go code, and uses the unit only if the sums
// are right. The unit multiplies BF16 with BF16 or with quantized weights. In attention of prompts
// it multiplies queries and weights, each the sum of two BF16 numbers (off by at most 2^-17), with
// keys and values in BF16, if heads are a multiple of 32 wide and results are BF16. AVX-512 does
// everything else, including products of up to 16 rows with quantized weights. Sums in the unit go
// over K in the same order for any number of rows, so products do not depend on the rows that
// share a pass; products of one row with compressed weights are AVX-512 in that order. FP32
// activations are multiplied with the tensor that was compressed, in place.
//
// Compressed weights give the same results as weights in place (Options.InPlace), bit for bit,
// except for products of up to 16 rows with amx: in place these are AVX-512, in its own order.
//
// Results do not depend on the number of threads: sums are split by shape. They depend on the
// kernels in the last bits, because vectors of another width add in another order, because of the
// 2^-17 of AMX, and because of how products of more than 16 rows round quantized weights (see
// above).
//
// # Threads
//
// By default there are as many threads as the process had cores when it started: those of the
// machine, or fewer if GOMAXPROCS is smaller, be it from the environment or from a container's CPU
// quota. Later changes of GOMAXPROCS or of the quota do not count. More threads than cores make
// every token slower, because they wait for each other many times per token.
//
// # Other goroutines
//
// A Submit keeps Options.Threads threads busy; in the C engine these are not goroutines, and the
// one that calls blocks a P. Set GOMAXPROCS to at least threads + 1 so that a Submit does not delay
// other goroutines. This package never changes GOMAXPROCS.
package cpu
