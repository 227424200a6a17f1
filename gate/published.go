package gate

import (
	"fmt"

	"github.com/npukit/npukit/npu/op"
)

// registryRow is an entry of the NPU's kernel registry: the bound that its harness tests with, and
// the largest error that it measured.
type registryRow struct {
	kernel     string
	atol       float64
	l1         float64 // largest published mean relative L1 of the rows that passed
	inputs     string  // the distribution for which the absolute bound holds
	caveat     string
	outputUlps float64 // outputs that may round to the other neighbor; see published
}

// registryRtol is the relative part of every bound of the registry.
const registryRtol = 1.6e-2

// The registry's rows, target NPU2 (XDNA2), outputs BF16 unless said otherwise.
//
// Source: Xilinx/mlir-air, kernel registry, commit e972f2942d41123f161276b27f991ef10da2a2e6; gates
// and largest mean_rel_l1 of each file.
var registry = map[string]registryRow{
	"GEMM": {kernel: "GEMM, high tier", atol: 1.5e-3, l1: 1.0e-2, inputs: "randn/sqrt(K)",
		caveat: "at K <= 1024 up to some 100 near-zero elements of a shape exceed the bound upstream"},
	"GEMM low": {kernel: "GEMM, low tier", atol: 4e-3, l1: 1.9e-2, inputs: "randn/sqrt(K)",
		caveat: "the error grows with K: 1.0e-2 at 512, 1.9e-2 at 8192"},
	"GEMV":      {kernel: "GEMV", atol: 1e-3, l1: 2.2e-6, inputs: "4*randn", outputUlps: 4},
	"RMSNorm":   {kernel: "RMSNorm", atol: 5e-2, l1: 4.6e-3, inputs: "randn"},
	"LayerNorm": {kernel: "LayerNorm", atol: 6e-2, l1: 4.4e-3, inputs: "randn"},
	"RoPE":      {kernel: "RoPE half-split", atol: 5e-2, l1: 2.8e-3, inputs: "randn, theta 500000"},
	"SiLUMul":   {kernel: "SiLU and multiply", atol: 8e-2, l1: 1.025e-2, inputs: "randn"},
	"Add":       {kernel: "element-wise add", atol: 5e-2, l1: 1.9e-3, inputs: "randn"},
	"GELU":      {kernel: "GELU, tanh", atol: 5e-2, l1: 8.412e-3, inputs: "randn"},
	"Attention": {kernel: "FlashAttention", atol: 1e-1, l1: 5.5e-2, inputs: "randn",
		caveat: "over 16384 keys without a mask outputs are smaller than this bound: there only the " +
			"mean relative L1 tests anything"},
}

// Published returns the tolerance of the NPU's own kernel harness for an op, with an added bound on
// the mean relative L1 of twice the largest published value, which makes it useful on data of any
// scale. It reports false if o is nil or the registry does not have it.
//
// The absolute bound holds for the registry's input distribution, which Note names. MatMul with
// more than one row has the high tier; for the low one see [PublishedLow]. Ops that only move data
// must be exact.
func Published(o op.Op) (Tolerance, bool) {
	switch o := o.(type) {
	case nil:
		return Tolerance{}, false
	case op.MatMul:
		if o.M == 1 {
			return published("GEMV", o.N), true
		}
		return published("GEMM", o.N), true
	case op.GELU:
		if !o.Tanh {
			return Tolerance{}, false
		}
	case op.Cast:
		return Tolerance{
			Rtol: 0x1p-7, MeanRelL1: 0x1p-7, RoundWant: true,
			Note: "conversion to BF16 rounds down on the NPU unless a kernel specifies otherwise " +
				"(registry, " +
				"numerics 3): at most one unit in the last place, 2^-7",
		}, true
	}
	if movesData(o) {
		return exact(), true
	}
	if _, ok := registry[o.Kind()]; !ok {
		return Tolerance{}, false
	}
	return published(o.Kind(), 0), true
}

// PublishedLow returns the registry's tolerance for matrix products of the low precision tier,
// which round the running sum to BF16 every 32 elements of K.
func PublishedLow() Tolerance { return published("GEMM low", 0) }

// published builds the tolerance of a registry entry. Width is the number of outputs of a GEMV.
func published(key string, width int) Tolerance {
	row := registry[key]
	t := Tolerance{
		Atol: row.atol, Rtol: registryRtol, MeanRelL1: 2 * row.l1, RoundWant: true,
		Note: fmt.Sprintf("NPU2 kernel registry (Xilinx/mlir-air e972f2942d41), %s: harness bound for "+
			"inputs %s, against the reference rounded to the output's type; mean relative L1 twice the "+
			"published %.3g", row.kernel, row.inputs, row.l1),
	}
	if row.outputUlps > 0 {
		// A GEMV is exact except for sums that round to the other neighbor: a few among thousands
		// of outputs. With fewer outputs each weighs more, so allow for some, of 2^-8 of a value
		// each.
		t.MeanRelL1 += row.outputUlps * 0x1p-8 / float64(max(1, width))
		t.Note += fmt.Sprintf(", plus %g roundings of an output", row.outputUlps)
	}
	if row.caveat != "" {
		t.Note += "; " + row.caveat
	}
	return t
}

// Paper returns the gate of the paper's phases against an FP32 reference: every element's absolute
// error is at most abs, the mean relative L1 at most rel, and the Pearson correlation at least
// pearson. The paper's values depend on the phase, so the caller passes them and states in note
// where they came from.
//
// Source: Li, Wang, Bayliss and Zhang, From Human Guidance to Autonomy (arXiv 2606.07586), section
// on numerical gates.
func Paper(abs, rel, pearson float64, note string) (Tolerance, error) {
	if !(abs > 0 && rel > 0 && pearson > 0) {
		return Tolerance{}, badInput("Paper",
			"absolute %g, relative %g, Pearson %g: want three bounds above 0", abs, rel, pearson)
	}
	t := Tolerance{Mismatches: 1, MaxAbs: abs, MeanRelL1: rel, Pearson: pearson, Note: note}
	return t, t.validate()
}

// movesData reports whether an op only moves data.
func movesData(o op.Op) bool {
	switch o.(type) {
	case op.Embed, op.Pick, op.KVWrite, op.Permute, op.Slice, op.Concat:
		return true
	}
	return false
}

func exact() Tolerance {
	return Tolerance{RoundWant: true, Note: "moves data only: equality with the reference rounded " +
		"to the output's type"}
}
