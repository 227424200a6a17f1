package gate

import (
	"math"
	"slices"
	"strings"
)

// bounds are upper bounds on the error that rounding causes in one op whose inputs are right.
type bounds struct {
	Rtol  float64 // of an element: the rounding of the stored value
	L1    float64 // mean relative L1
	Row   float64 // mean relative L1 of the worst row
	Peak  float64 // worst element beyond Rtol, relative to the reference's RMS
	Scale float64 // distance of mean got/want from 1
}

// hold reports whether an op's error is within the bounds.
func (b bounds) hold(o *Own) bool {
	m := o.Metrics
	return m.NonFinite == 0 && m.MeanRelL1 <= b.L1 && m.MaxRowL1 <= b.Row && m.Peak <= b.Peak &&
		math.Abs(o.Scale-1) <= b.Scale
}

// noise has the bounds of a number format by kind of op.
type noise struct {
	Exact     bounds // outputs stored as FP32
	Stored    bounds // outputs stored as BF16
	Product   bounds // products and embeddings, with weights as the device holds them
	Attention bounds // attention over a cache of the format
}

// of returns the bounds of a tap. An output of BF16 values only was stored as BF16.
func (n noise) of(name string, got []float32) bounds {
	kind := tapKind(name)
	b := n.Exact
	if !slices.ContainsFunc(got, func(v float32) bool { return math.Float32bits(v)&0xffff != 0 }) {
		b = n.Stored
	}
	switch {
	case kind == "attn.core":
		return n.Attention
	case slices.Contains(weighted, kind):
		return bounds{
			max(b.Rtol, n.Product.Rtol), max(b.L1, n.Product.L1), max(b.Row, n.Product.Row),
			max(b.Peak, n.Product.Peak), max(b.Scale, n.Product.Scale),
		}
	}
	return b
}

// weighted are the ops that read a weight matrix.
var weighted = []string{
	"embed.embed", "attn.q", "attn.k", "attn.v", "attn.o", "ffn.gate", "ffn.up", "ffn.down", "head.lm_head",
}

// tapKind is a tap's name without its layer: "attn.q_rope" of "layer.3.attn.q_rope".
func tapKind(name string) string {
	if layerOf(name) < 0 {
		return name
	}
	_, rest, _ := strings.Cut(strings.TrimPrefix(name, "layer."), ".")
	return rest
}

// The bounds of npu/cpu are about three times the largest errors measured on SmolLM2-135M-Instruct
// in Q4_1 and five tiny models over 40 positions.
var (
	exactF32   = bounds{Rtol: 0x1p-23, L1: 2e-6, Row: 3e-6, Peak: 2e-5, Scale: 1e-6}
	storedBF16 = bounds{Rtol: 0x1p-8, L1: 3e-3, Row: 9e-3, Peak: 2e-5, Scale: 3e-4}
	rounded    = bounds{Rtol: 0x1p-8, L1: 6e-3, Row: 9e-3, Peak: 0.15, Scale: 3e-3}
)

// blocksPeak is the peak error of products that quantize activations to 8 bits in blocks of 32:
// next to an outlier the rest of a block loses bits. It is three times the largest on
// SmolLM2-135M-Instruct in Q4_1 over 48 positions, 2.3e-4 with the kernels go, generic, avx2 and
// avx512 of npu/cpu; mean and worst row are those of FP32.
const blocksPeak = 7e-4

var noises = map[string]noise{
	"cpu-f32": {
		Exact: exactF32, Stored: exactF32, Product: exactF32,
		Attention: bounds{Rtol: 0x1p-23, L1: 2e-6, Row: 5e-6, Peak: 6e-5, Scale: 2e-6},
		// About three times the largest error of one op on SmolLM2-135M and five tiny models, 40
		// positions.
	},
	"cpu-bf16": {
		Exact: exactF32, Stored: storedBF16, Product: exactF32,
		Attention: bounds{Rtol: 0x1p-8, L1: 1.5e-2, Row: 2.5e-2, Peak: 0.3, Scale: 4e-3},
		// About three times the largest error of one op on SmolLM2-135M and five tiny models, 40
		// positions; attention rounds its cache too.
	},
	"npu": {
		Exact: storedNPU, Stored: storedNPU,
		Product:   bounds{Rtol: 0x1p-7, L1: 7e-2, Row: 0.3, Peak: 2.5, Scale: 3e-3},
		Attention: bounds{Rtol: 0x1p-7, L1: 0.11, Row: 0.3, Peak: 2.2, Scale: 3e-2},
		// About three times the largest error of one op on the virtual XDNA 2 with SmolLM2-135M, 48
		// positions: mean relative L1 0.014, products 0.024, attention 0.037 (the NPU2 kernel registry,
		// Xilinx/mlir-air e972f2942d41, publishes 0.010, 0.019 and 0.055 on normal values).
	},
}

// storedNPU is for outputs of the NPU other than products: stored as BF16, rounded down.
var storedNPU = bounds{Rtol: 0x1p-7, L1: 4e-2, Row: 5e-2, Peak: 1, Scale: 1e-2}

// noiseOf returns the noise of a number format and whether it has any.
func noiseOf(format string) (noise, bool) {
	base, expanded := strings.CutSuffix(format, "-expanded")
	base, blocks := strings.CutSuffix(base, "-blocks")
	n, ok := noises[base]
	switch {
	case expanded && blocks, base == "npu" && (expanded || blocks):
		return n, false
	case expanded:
		n.Product = rounded
	case blocks:
		n.Product.Peak = blocksPeak
	}
	return n, ok
}
