package gate

import (
	"fmt"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// cpuError is the largest error measured over shapes and kernel variants.
type cpuError struct {
	l1, row float64 // results stored as FP32: mean relative L1, and that of the worst row
	peak    float64 // max(|a-e| - 2^-24 |e|) / rms(e)

	l1BF16, rowBF16 float64 // the same, results stored as BF16
}

// cpuErrors has the errors by kind of op. The error before storing is that of FP32 for every type
// of result, so peak holds for BF16 too: beyond half a unit in the last place, 2^-8, none was
// larger.
//
// Measured by TestCPUKernelsAreWithinTheTable (run it with -v) on a Xeon with AVX-512 and AMX:
// kernels go, generic, avx2, avx512, avx512bf16 and amx, the shapes listed there (K from 64 to
// 8192, up to 200 positions), seeded standard normal operands, float64 reference. Add is exact
// apart from one rounding, so its peak is one rounding, 2^-24.
//
// Kernels that come later may add in another order. The mean error of a sum of K products is at
// most that of adding one after the other, 2^-24 sqrt(K/6): 2.2e-6 at K = 8192, which is within
// cpuMargin of the 1.5e-6 here.
var cpuErrors = map[string]cpuError{
	"MatMul":    {1.5e-6, 1.9e-6, 1.6e-5, 1.4e-3, 1.7e-3},
	"RMSNorm":   {1.5e-7, 2.2e-7, 1.2e-6, 1.4e-3, 1.5e-3},
	"LayerNorm": {4.5e-8, 8.7e-8, 6.1e-7, 1.4e-3, 1.5e-3},
	"RoPE":      {3.1e-8, 3.3e-8, 2.4e-7, 1.4e-3, 1.5e-3},
	"SiLUMul":   {3.8e-8, 4.0e-8, 5.7e-7, 1.4e-3, 1.5e-3},
	"GELU":      {3.9e-8, 4.1e-8, 1.7e-7, 1.5e-3, 1.6e-3},
	"Add":       {2.0e-8, 2.2e-8, 6.0e-8, 1.3e-3, 1.4e-3},
	"Attention": {3.0e-7, 7.7e-7, 5.3e-6, 1.4e-3, 1.6e-3},
}

// cpuMargin is the factor between measured and allowed errors.
const cpuMargin = 2

// CPU returns the tolerance of the software device for an op whose results are stored as out. The
// reference is FP32 or float64 and gets the same operands, rounded to their types; quantized
// weights as the device holds them (Rounded in npu.Info). The bounds are scale-free: data may have
// any size if it is spread like the standard normal values of the measurement.
//
// It reports false if o is nil, if it has no entry for the op, or if out is not F32 or BF16; for
// ops that move or convert data, which must be exact, out may also be F16.
func CPU(o op.Op, out dtype.Type) (Tolerance, bool) {
	if o == nil || out != dtype.F32 && out != dtype.BF16 && out != dtype.F16 {
		return Tolerance{}, false
	}
	if movesData(o) || o.Kind() == "Cast" {
		return exact(), true
	}
	e, ok := cpuErrors[o.Kind()]
	if !ok || out == dtype.F16 {
		return Tolerance{}, false
	}
	// Storing rounds by at most half a unit in the last place.
	rounding, l1, row := 0x1p-24, e.l1, e.row
	if out == dtype.BF16 {
		rounding, l1, row = 0x1p-8, e.l1BF16, e.rowBF16
	}
	return Tolerance{
		Mismatches: 1, Rtol: rounding,
		MeanRelL1: cpuMargin * l1, MaxRowL1: cpuMargin * row, Peak: cpuMargin * e.peak,
		Note: fmt.Sprintf("npu/cpu against float64 on standard normal operands, largest over shapes "+
			"and kernel variants: mean relative L1 %.2g, worst row %.2g, peak %.2g beyond the rounding "+
			"of %v; bounds are %d times that", l1, row, e.peak, out, cpuMargin),
	}, true
}
