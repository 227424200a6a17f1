// Package sim is a virtual XDNA 2: it runs the programs that the real NPU would run, refuses those that it would refuse, gives the numbers
// that it would give, and says how long it would take. Three questions decide whether a deployment works on the chip (does each program
// fit, are its numbers good enough, how fast is it), and this device answers them on any machine.
//
//	dev, err := sim.Open(nil)
//	exec, err := dev.Load(ctx, program)       // or an *xdna2.ResourceError: which rule, what was wanted, what would fit
//	err = dev.Submit(ctx, []npu.Run{{Exec: exec, Args: []npu.Buffer{x, w, y}}})
//	err = y.Sync(npu.FromDevice, 0, y.Len())  // before it, the host sees what y held
//	fmt.Println("predicted:", dev.Clock())
//
// # Numbers
//
// The matrix unit of the array takes its operands in block floating point, most of its other kernels round down, and exp2 and tanh come
// from small tables. Each kernel is computed as it is there:
//
//	GEMM             operands in block floating point, FP32 sums; the epilogue rounds to nearest (drain), down (fused-cast), not at all
//	                 (f32-out), or the running sum is rounded every k tile (direct)
//	GEMV             FP32 sums, one rounding to nearest; in a fused kernel after the residual has been added
//	FlashAttention   block floating point, scores and accumulators in BF16, 2^x by linear interpolation
//	norms, RoPE, add, SiLU*mul, GELU    16 BF16 lanes, rounding down; a coarse tanh
//	moves            exact
//
// On the inputs of the harness that the kernels were measured with, errors against FP32 are within 10 % of every published figure; the
// tests print both. That is a statement about tensors: the tables of exp2 and tanh are not public, so single values may differ from the
// chip's. Attention over a KV cache, which nobody has published a kernel for, is computed in FP32.
//
// Block floating point fits into BF16, so products go through the kernels of npu/cpu, after operands have been quantised: weights once,
// when a run first needs them (which takes their memory twice), activations in every run.
//
// # Limits and clock
//
// Load asks npu/xdna2 whether the program can be placed. A program runs in a hardware context, of which 8 are alive at most, as in
// npu/xdna: they are opened when a run needs them, in the place of those that have not been used for longest, and buffers outlive them. So
// a plan with a program for each op runs too, and the clock says what it costs to open contexts again and again.
//
// The clock adds up what the model of npu/xdna2 predicts for contexts, dispatches, launches and syncs; work of the host between them is not
// in it, and neither is waking an array that has been idle, as time does not pass here: see [xdna2.Host.WakeUp], and the predictions of a
// whole plan in package model. It is a prediction: under [npu.WithTracer] its spans have categories of their own, [PredictedContext],
// [PredictedRun] and [PredictedLaunch], and what this machine took to compute the numbers is never reported.
//
// # Coherency
//
// Host and device have memory of their own, and only Sync copies. With Options.Debug a missing sync is a [CoherencyError]: an input that
// was changed after its last sync, found by comparing the two sides when it is used, and an output that the host has read unsynced. What
// a program of [Device.Host] reads is known to the byte, positions of a cache included, and reported at once; what it writes is the host's
// own from then on. Of a look through Bytes it is not known which bytes were wanted: it counts as one at all of them if none had been
// synced since they were written, and what is still not synced when the next Submit writes the buffer is reported then.
//
// # Host steps
//
// A plan for the array leaves some steps to the host: embedding, the KV cache, attention over it. [Device.Host] is a software device for
// them, and [npu.HostBuffer] gives its programs the host's side of this device's buffers.
//
// # Faults
//
// Options.Faults plays timeouts, a lost context, one that the driver refuses, a refused allocation and a flipped bit, by a seed, with the
// errors that every device of this module has.
package sim
