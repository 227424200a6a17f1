package xdna2

import "math"

// Roofline is the least time that the array needs for an amount of work, whichever kernel does it:
// all operations at the cores' peak, or all bytes through DRAM once.
//
// Source: Williams, Waterman, Patterson, Roofline (CACM 52, 2009).
type Roofline struct {
	Time   float64 // us
	Bound  string  // memory or compute
	Peak   float64 // compute peak for this kernel, GFLOP/s
	Memory float64 // DRAM bandwidth, GB/s
}

const (
	cores = 32
	ghz   = 1.8 // highest H clock in the driver's table (amdxdna npu4_regs.c)
)

// PeakFLOPS returns the peak rate of 32 cores for a kernel, in GFLOP/s, from the operations per
// cycle and core:
//
//	gemm, attention   512 BFP16 multiply-adds, as for INT8 (driver: 58.98 TOPS at 1.8 GHz); the best
//	                  published GEMM reaches 9.8 TFLOP/s (2048x8192x2048, f32-out)
//	gemv              64 BF16 multiply-adds, the width of mv.cc's accumulator
//	others            32 BF16 lanes, one operation each
func PeakFLOPS(k Kernel) float64 {
	switch k {
	case GEMM, Attention:
		return cores * 512 * 2 * ghz
	case GEMV:
		return cores * 64 * 2 * ghz
	}
	return cores * 32 * ghz
}

// PeakBandwidth returns the peak DRAM bandwidth of the array, reads plus writes, in GB/s.
//
// It was measured: a copy of a buffer, read and write together (mlir-aie pull request 2559). The
// shim streams alone read 8 columns x 2 x 4 B x 1.8 GHz = 115 GB/s. The best published add reaches
// 63 GB/s, decode in deployed programs 42 GB/s.
func PeakBandwidth() float64 { return 66.6 }

// rooflineOf returns the roofline of a kernel that computes flops operations and moves at least
// bytes.
func rooflineOf(k Kernel, flops, bytes float64) Roofline {
	r := Roofline{Peak: PeakFLOPS(k), Memory: PeakBandwidth(), Bound: boundMemory}
	compute, memory := flops/(r.Peak*1e3), bytes/(r.Memory*1e3)
	if compute > memory {
		r.Bound = boundCompute
	}
	r.Time = math.Max(compute, memory)
	return r
}
