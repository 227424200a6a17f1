package gatetest

import (
	"fmt"
	"math"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Tolerances finds the tolerance for an op whose results are stored as a type, and reports false when it has none. [gate.CPU] is one; [Published] and
// [Software] are others.
type Tolerances func(o op.Op, out dtype.Type) (gate.Tolerance, bool)

// Published is [gate.Published] as Tolerances: the NPU's published bounds, whatever the results are stored as.
func Published(o op.Op, _ dtype.Type) (gate.Tolerance, bool) { return gate.Published(o) }

// Default are the tolerances that a device is held to when nobody says otherwise: the published ones for a device with an array, whose number formats
// are coarse, and those of a software device for every other.
func Default(info npu.Info) Tolerances {
	if info.Array != "" {
		return Published
	}
	return Software
}

// larger are the largest errors over the conformance suite, stored as FP32, where they exceed what the table of [gate.CPU] was measured on: rows are
// longer here, and more elements have more extreme ones.
//
// Measured by TestEveryKernelVariantOfTheCPUConforms (its -v output has them) on a Xeon with AVX-512, kernels go, generic, avx2, avx512 and avx512bf16, two
// draws of the operands. These ops of the kernels amx are those of avx512.
var larger = map[string]struct{ row, peak float64 }{
	"RMSNorm":   {3.8e-7, 4.0e-6},
	"LayerNorm": {2.3e-7, 2.0e-6},
	"GELU":      {5.0e-8, 3.6e-7},
	"SiLUMul":   {4.7e-8, 1.1e-6},
}

// Software is [gate.CPU] for the shapes of the conformance suite.
func Software(o op.Op, out dtype.Type) (gate.Tolerance, bool) {
	t, ok := gate.CPU(o, out)
	if e, wider := larger[o.Kind()]; ok && wider {
		t.MaxRowL1, t.Peak = max(t.MaxRowL1, 2*e.row), max(t.Peak, 2*e.peak)
		t.Note += fmt.Sprintf("; over the conformance suite worst row %.2g, peak %.2g as FP32, and at least twice that", e.row, e.peak)
	}
	return t, ok
}

// sumError and sumPeak are how the error of attention in FP32 grows with the number of positions: times its root, as mean relative L1 and as peak. It
// is that of the reference as well as that of a device, for the oracle sums in FP32 too.
//
// Measured on npu/cpu against the oracle, standard normal operands, heads of 128, 100 to 30000 positions: 2.5e-8 to 3.3e-8 and 1.2e-7 to 2.2e-7 with
// its Go kernels; against float64 the oracle itself has 1.6e-8 and 1.5e-7.
const sumError, sumPeak = 3.3e-8, 2.2e-7

// againstOracle widens a tolerance that was made for an exact reference by what the oracle may be off itself. Bounds that are not set stay so.
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
	t.Note += fmt.Sprintf("; for sums over %d positions in FP32, of device and oracle, twice %.2g more (peak %.2g)", positions, sumError*root, sumPeak*root)
	return t
}
