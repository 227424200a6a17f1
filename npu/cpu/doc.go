// Package cpu is the software device: it executes programs on the processor that the program runs on.
//
//	dev, err := cpu.Open(nil)                 // all cores, the fastest kernels that this machine can execute
//	if err != nil { ... }
//	defer dev.Close()
//	x, err := dev.Alloc(ctx, 4*2048)          // zeroed, outside the Go heap
//	exec, err := dev.Load(ctx, program)
//	err = dev.Submit(ctx, []npu.Run{{Exec: exec, Args: []npu.Buffer{x, w, y}}})
//
// # How a runlist becomes work
//
// Submit turns every launch of every run into a few commands, mostly one or two, in memory that the Go heap knows nothing of, and hands the whole array to
// an engine. All threads of the engine walk the array together: within a command each takes chunks (about a megabyte of weight rows) from
// atomic counters, and they wait for each other only where a command needs what an earlier one writes. Where weights are read as they lie, a thread
// begins with a range of chunks of its own, one behind the other in memory, and then helps the others. One engine is written in C, with
// kernels for several instruction sets and threads that spin between calls; the other is pure Go, always there, and the only one when
// the module is built without cgo.
//
// A product whose result the next launch alone reads, to add it to something or to gate it with a SiLU, is one command with that launch: what is in registers goes
// on at once, to the same bits. A tracer sees both under one name, "ffn.down+ffn.residual".
//
// # Weights
//
// F16 and F32 weights are read where they lie in the checkpoint's mapping, and so are BF16 ones with the kernels generic, armbf16 and go, or when
// Options.InPlace says so. With the others, matrices in BF16 are compressed when a Const buffer is made: twelve bits a weight, from which kernels put together
// the very BF16 that it was (see bf12.go). Decoding, which takes as long as reading the weights, gets faster by a third.
// A matrix whose exponents are all over the place stays as it is. Whatever needs the BF16 itself, such as a look-up of rows, reads the tensor.
//
// Quantised blocks (Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K) stay what
// they are, bit for bit, and take about as many bytes as in the file, but sixteen rows of them are shuffled together, once, when a Const buffer is
// made. Everything accumulates in FP32. The memory of a weight's source must outlive every Const buffer made of it, until the buffer is closed: the
// buffer may be that memory, and equal weights are found by its address.
//
// # The number format of quantised products
//
// Products of up to 16 rows of BF16 activations with quantised weights (4 in the Go engine) are, with most kernels, sums of whole numbers. Every 32 activations get a scale in
// FP32, with which the largest of them becomes 32767, and are rounded to 16 bits; where the results are FP32, another 15 bits follow. So an activation
// is off by at most 2^-16 (2^-30) of the largest of its 32. The sums over a block are exact, and are scaled and added up in FP32. Where the CPU has VNNI, AVX-512's
// multiply-add of such numbers is one instruction: the kernels vnni, which are avx512 otherwise, and amx use it, with the same results.
//
// The kernels avx512bf16 multiply quants with BF16 activations instead: quants are whole numbers that BF16 holds exactly, so are their
// products in FP32, and the sums over a block are scaled and added up in FP32. Nothing else is rounded.
//
// Products of more rows bring the weights to FP32 as they are needed, a panel at a time, and are FP32 throughout, as products of FP32 activations are with all kernels. Those that
// multiply pairs of BF16 differ. With avx512bf16 and armbf16 a weight becomes the nearest BF16 number, wrong by at most 2^-8 of it. With amx it is
// the sum of two BF16 numbers, wrong by at most 2^-17, or the nearest one where the results are BF16 too.
//
// Rows of a quantised table are looked up exactly. All other uses of a quantised weight (views that begin within a group of 16 rows or skip some, weights that
// are not transposed, programs that name BF16 for it) get a copy of it in BF16, made when it is first needed.
//
// # Indices
//
// The indices of Embed and Pick come from the host: Submit looks at them while it prepares the runs, before it executes the first, and refuses those
// out of range. No op writes indices, so no program makes any; a buffer that is another program's output in the same Submit is judged by what it
// held before. Should the memory have changed when a run comes to it, rows whose index is out of range are left as they were and nothing is read
// out of bounds.
//
// # Kernels
//
// Which C kernels run is decided by timing candidates for some milliseconds in the first Open of a process: an instruction that a CPU has need not be fast on
// it. Candidates are the sets that the CPU and the operating system say they support. Timing finds instructions that are slow; it does not
// protect from ones that fault, as under an emulator that advertises more than it executes: there Options.Kernels must name a set that works.
//
// The environment variable NPUKIT_KERNELS limits the kernels of every device of the process, to test what runs on a lesser CPU and to rule kernels
// out: with NPUKIT_KERNELS=avx2 a device opens with avx2 instead of timing, and Options.Kernels may only name avx2 or what stands before it in
// KernelNames. Open returns an error if the variable names unknown kernels or some that this machine cannot execute.
//
// The matrix unit of recent Intel CPUs (AMX, kernels "amx") is the exception, because virtual machines that announce it and fault at it are common. The first
// Open that may choose it tries one product in a child process, a fork that runs nothing of Go's, and takes the unit only when
// that comes back with the right sums. It multiplies BF16 with BF16 or with quantised weights, and a prompt's queries and weights of attention, each the sum of two BF16
// numbers (wrong by at most 2^-17), with keys and values of BF16, where heads are a multiple of 32 wide and results are BF16; everything else is AVX-512's, and so are products of up to 16
// rows with quantised weights. In the unit sums go over K in the same order for any number of rows, so products do not change with the rows that share a pass; products of one row
// with compressed weights are made by AVX-512 in that order too. FP32 activations are multiplied with the tensor that was compressed, from where it lies.
//
// Compressed weights and the same in place (Options.InPlace) give the same results to the bit, but for products of up to 16 rows with amx: in place these are AVX-512's, in its own order.
//
// Results do not depend on the number of threads: sums are cut by shape, never by who is free. They do depend on the kernels in the last bits,
// because vectors of another width add in another order, by the 2^-17 of AMX, and by how products of more than 16 rows round quantised weights (see above).
//
// # Threads
//
// By default there are as many threads as the process had cores when it started: those that the machine gives it, or fewer where GOMAXPROCS is
// smaller, be it from the environment or, in a container, from the CPU quota. Later changes of GOMAXPROCS or of the quota do not count. More
// threads than cores make every token slower, for they wait for each other many times in each.
//
// # Goroutines beside it
//
// A Submit keeps Options.Threads threads busy; in the C engine these are not goroutines, and the one that calls blocks a P. Set
// GOMAXPROCS to at least threads + 1 for goroutines to run beside it without delay. This package never changes GOMAXPROCS.
package cpu
