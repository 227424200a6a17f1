// Package sim implements a virtual XDNA 2. It runs the programs that the real NPU runs, rejects
// those that do not fit the array, reproduces the array's numerics, and predicts execution time.
// Use it to develop and test a deployment on a machine without the NPU.
//
//	dev, err := sim.Open(nil)
//	exec, err := dev.Load(ctx, program)       // may return an *xdna2.ResourceError
//	err = dev.Submit(ctx, []npu.Run{{Exec: exec, Args: []npu.Buffer{x, w, y}}})
//	err = y.Sync(npu.FromDevice, 0, y.Len())  // until then the host sees the old contents of y
//	fmt.Println("predicted:", dev.Clock())
//
// # Numerics
//
// The array's matrix unit takes its operands in block floating point, most other kernels round
// toward minus infinity, and exp2 and tanh use small tables. Each kernel is computed with the
// array's arithmetic:
//
//	GEMM            block floating point operands, FP32 sums; the epilogue rounds to nearest
//	                (drain), down (fused-cast) or not at all (f32-out), or the running sum is
//	                rounded once per k tile (direct)
//	GEMV            FP32 sums, rounded to nearest once; a fused kernel adds the residual first
//	FlashAttention  block floating point, BF16 scores and accumulators, 2^x by linear
//	                interpolation
//	norms, RoPE, add, SiLU*mul, GELU
//	                16 BF16 lanes, rounding down; a coarse tanh
//	moves           exact
//
// With the inputs of the harness that the published figures were measured with, errors against FP32
// are within 10 % of every published figure; the tests print both. This holds for whole tensors.
// The tables for exp2 and tanh are not public, so single values may differ from the hardware. There
// is no published kernel for attention over a KV cache, so that op is computed in FP32.
//
// Block floating point values are exact in BF16. The device therefore quantizes the operands and
// uses the GEMM kernels of npu/cpu. Weights are quantized when a run first uses them, which doubles
// their memory. Activations are quantized in every run.
//
// # Limits and predicted time
//
// Load calls npu/xdna2 to check that the program fits the array. A program runs in a hardware
// context, and at most 8 contexts exist at a time, as in npu/xdna. Submit opens a context if the
// program has none and closes the least recently used one to make room. Buffers are not tied to a
// context. A plan with one program per op therefore runs too, and the clock includes the cost of
// reopening contexts.
//
// The clock adds the times that the cost model of npu/xdna2 predicts for contexts, dispatches,
// launches and syncs. It excludes host computation between them, and the time to wake an idle array
// because no time passes here; see [xdna2.Host.WakeUp] and the whole-plan estimates of package
// model. Under [npu.WithTracer] predicted spans use the categories "predicted context", "predicted"
// (a run) and "predicted launch". The device never reports the time that this machine took to
// compute the results.
//
// # Coherency
//
// Host and device have separate memory, and only Sync copies between them. If Options.Debug is set,
// a missing sync is reported as a [CoherencyError]. Submit compares both sides of every input to
// find one that the host changed after its last sync. Reads of device output by programs of
// [Device.Host] are tracked to the byte, including KV cache positions, and are reported at once;
// bytes that such a program writes belong to the host from then on. A call to Bytes does not tell
// which bytes the caller uses. It counts as a read of the whole buffer if no part has been synced
// since the last write, and is reported by the next Submit that writes the buffer if bytes are
// still not synced.
//
// # Host steps
//
// A plan for the array leaves some steps to the host, e.g. embedding, KV cache updates and
// attention over the cache. [Device.Host] returns a software device for them, and [npu.HostBuffer]
// returns the host side of a buffer of this device.
//
// # Faults
//
// Options.Faults injects timeouts, lost contexts, context and allocation failures, and bit flips,
// all derived from a seed. They return the same errors as real devices.
package sim
