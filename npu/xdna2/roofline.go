package xdna2

import "math"

// Roofline is the least time that the array needs for an amount of work, whichever kernel does it:
// all operations at the cores' peak, or all bytes through DRAM once.
//
// Source: Williams, Waterman, Patterson, Roofline (CACM 52, 2009).
type Roofline struct {
	Time   float64 // us
	Bound  Bound   // memory or compute
	Peak   Peak    // compute peak for this kernel
	Memory Peak    // DRAM bandwidth, GB/s
}

// Peak is a limit with its source.
type Peak struct {
	Value  float64 // GFLOP/s, or GB/s
	Source string
}

const (
	cores = 32
	ghz   = 1.8 // highest H clock in the driver's table (amdxdna npu4_regs.c)
)

// PeakFLOPS returns the peak rate of 32 cores for a kernel, in GFLOP/s.
func PeakFLOPS(k Kernel) Peak {
	switch k {
	case GEMM, Attention:
		return Peak{cores * 512 * 2 * ghz, "computed: 512 BFP16 multiply-adds per cycle and core, as for INT8 " +
			"(driver: 58.98 TOPS at 1.8 GHz). " +
			"Best published GEMM: 9.8 TFLOP/s (2048x8192x2048, f32-out)"}
	case GEMV:
		return Peak{cores * 64 * 2 * ghz, "computed: 64 BF16 multiply-adds per cycle and core, the width of mv.cc's " +
			"accumulator"}
	}
	return Peak{cores * 32 * ghz, "computed: 32 BF16 lanes per cycle and core, one operation each"}
}

// PeakBandwidth returns the peak DRAM bandwidth of the array, reads plus writes, in GB/s.
func PeakBandwidth() Peak {
	return Peak{66.6, "measured: copy of a buffer, read and write together (mlir-aie pull request 2559). Shim " +
		"streams alone: " +
		"8 columns x 2 x 4 B x 1.8 GHz = 115 GB/s of reads; best published add: 63 GB/s; decode in deployed " +
		"programs: 42 GB/s"}
}

// rooflineOf returns the roofline of a kernel that computes flops operations and moves at least
// bytes.
func rooflineOf(k Kernel, flops, bytes float64) Roofline {
	r := Roofline{Peak: PeakFLOPS(k), Memory: PeakBandwidth(), Bound: BoundMemory}
	compute, memory := flops/(r.Peak.Value*1e3), bytes/(r.Memory.Value*1e3)
	if compute > memory {
		r.Bound = BoundCompute
	}
	r.Time = math.Max(compute, memory)
	return r
}
