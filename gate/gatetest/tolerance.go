package gatetest

import (
	"fmt"
	"math"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Tolerances returns the tolerance for an op whose results are stored as out, and whether there is
// one. [gate.CPU] and [Published] are such functions.
type Tolerances func(o op.Op, out dtype.Type) (gate.Tolerance, bool)

// Published is [gate.Published] for any type of result.
func Published(o op.Op, _ dtype.Type) (gate.Tolerance, bool) { return gate.Published(o) }

// Default returns the tolerances that a device is held to by default: the published ones for a
// device with an array, whose number formats are coarse, and [gate.CPU], for the shapes of the
// conformance suite, for every other.
func Default(info npu.Info) Tolerances {
	if info.Array != "" {
		return Published
	}
	return software
}

// larger has the largest errors over the conformance suite, stored as FP32, if they exceed the
// table of [gate.CPU]: rows are longer here, and more elements include more extreme ones.
//
// Measured by TestEveryKernelVariantOfTheCPUConforms (run it with -v) on a Xeon with AVX-512,
// kernels go, generic, avx2, avx512 and avx512bf16, two draws of the operands. The kernels amx use
// avx512 for these ops.
var larger = map[string]struct{ row, peak float64 }{
	"RMSNorm":   {3.8e-7, 4.0e-6},
	"LayerNorm": {2.3e-7, 2.0e-6},
	"GELU":      {5.0e-8, 3.6e-7},
	"SiLUMul":   {4.7e-8, 1.1e-6},
}

// software is [gate.CPU] for the shapes of the conformance suite.
func software(o op.Op, out dtype.Type) (gate.Tolerance, bool) {
	t, ok := gate.CPU(o, out)
	if !ok {
		return t, false
	}
	if e, wider := larger[o.Kind()]; wider {
		t.MaxRowL1, t.Peak = max(t.MaxRowL1, 2*e.row), max(t.Peak, 2*e.peak)
		t.Note += fmt.Sprintf("; at least twice the worst row %.2g and peak %.2g of the conformance "+
			"suite in FP32",
			e.row, e.peak)
	}
	return t, true
}

// sumError and sumPeak are the growth of the error of FP32 attention with the square root of the
// number of positions, as mean relative L1 and as peak. It applies to the reference too, because
// the oracle sums in FP32.
//
// Measured on npu/cpu against the oracle, standard normal operands, heads of 128, 100 to 30000
// positions: 2.5e-8 to 3.3e-8 and 1.2e-7 to 2.2e-7 with its Go kernels. Against float64 the oracle
// itself has 1.6e-8 and 1.5e-7.
const sumError, sumPeak = 3.3e-8, 2.2e-7

// againstOracle widens a tolerance for an exact reference by the oracle's own error. Bounds that
// are off stay off.
func againstOracle(t gate.Tolerance, o op.Op, segments []Segment) gate.Tolerance {
	if o.Kind() != "Attention" {
		return t
	}
	positions := 0
	for _, s := range segments {
		positions = max(positions, s.Pos+s.Rows)
	}
	root := math.Sqrt(float64(positions))
	for _, b := range []struct {
		bound *float64
		more  float64
	}{{&t.MeanRelL1, sumError}, {&t.MaxRowL1, sumError}, {&t.Peak, sumPeak}} {
		if *b.bound > 0 {
			*b.bound += 2 * b.more * root
		}
	}
	t.Note += fmt.Sprintf("; for FP32 sums over %d positions in device and oracle twice %.2g more "+
		"(peak %.2g)",
		positions, sumError*root, sumPeak*root)
	return t
}
