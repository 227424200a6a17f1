package xdna2

import (
	_ "embed" // the fitted parameters
	"encoding/json"
	"fmt"
	"sync"
)

// Model holds the constants of the cost model. [DefaultModel] is fitted to all published rows; [Fit] makes others.
//
// How good it is, [HoldOut] tells: half of the shapes predict the other half with a median error of 4 % and a tenth of the rows beyond 14 %, where
// the source itself sees 10 to 15 % between processes. It is weakest, by 15 to 35 %, for GEMMs of 256 rows and of a 512 cube (too fast), GEMMs of
// very wide results at short k tiles (too fast), RMSNorm of width 2048 (too fast), GEMV on four columns (too fast), and sequences of 512
// in FlashAttention when none are in the fit. Only the constants are held out there: the formulas, the priors and the weights of the fit were
// chosen with all rows in view, so new kernels may do somewhat worse.
type Model struct {
	Start     float64         `json:"start_us"` // of a launch of any kernel below GEMV; the source measures a floor of 80 to 84
	Copy      float64         `json:"copy_gbs"` // what element-wise kernels, norms and casts can read and write together
	GEMM      GEMMParams      `json:"gemm"`
	Cast      CastParams      `json:"cast"`
	Attention AttentionParams `json:"attention"`
	GEMV      GEMVParams      `json:"gemv"`
	Add       StreamParams    `json:"add"`
	SiLUMul   StreamParams    `json:"silu_mul"`
	GELU      StreamParams    `json:"gelu"`
	RMSNorm   StreamParams    `json:"rmsnorm"`
	LayerNorm StreamParams    `json:"layernorm"`
	RoPE      StreamParams    `json:"rope"`
}

//go:embed cost_model.json
var defaultModel []byte

// DefaultModel is a copy of the model fitted to all standalone published rows but those of [LeftOut].
func DefaultModel() *Model {
	m := parsedModel()
	return &m
}

var parsedModel = sync.OnceValue(func() Model {
	var m Model
	if err := json.Unmarshal(defaultModel, &m); err != nil {
		panic(fmt.Sprintf("xdna2: cost_model.json: %v", err))
	}
	return m
})

// priors are what a fit starts from and is weakly drawn back to: round values.
func priors() *Model {
	return &Model{
		Start: 83,
		Copy:  75,
		GEMM: GEMMParams{Start: 76, Column: 10, Fill: 1, DDR: 54, Reload: 56,
			External: MicroKernel{0.20, 244}, Drain: MicroKernel{0.50, 319}, Direct: MicroKernel{0.36, 103}},
		Cast:      CastParams{Start: 365, Rate: 8.6},
		Attention: AttentionParams{Start: 600, Tile: 35, Key: 35, Wide: 25, KV: 54},
		GEMV:      GEMVParams{Stream: 34, Row: 0.35},
		Add:       StreamParams{Rate: 10},
		SiLUMul:   StreamParams{Rate: 3},
		GELU:      StreamParams{Rate: 1.8},
		RMSNorm:   StreamParams{Rate: 3, Row: 0.1},
		LayerNorm: StreamParams{Rate: 1.9, Row: 0.2}, // one published shape: rate and row cannot be told apart, the prior decides
		RoPE:      StreamParams{Rate: 11, Row: 0.027},
	}
}

// scalarLanes is how much more of a core's time a naive kernel takes: it handles the elements one by one of which a vector has 16 (the
// array's codegen for BF16). No scalar kernel's time is published; the factor is an assumption.
const scalarLanes = 16

// terms prices a kernel that runs alone.
func (m *Model) terms(p point) terms {
	t := m.vectorised(p)
	if p.mapping.Variant == "scalar" {
		t.compute *= scalarLanes
		t.time = t.fixed + smoothMax(t.memory, t.compute)
	}
	return t
}

func (m *Model) vectorised(p point) terms {
	switch p.kernel {
	case GEMM:
		return m.GEMM.terms(p)
	case Cast:
		return (&StreamParams{Rate: m.Cast.Rate}).terms(p, m.Cast.Start, m.Copy)
	case Attention:
		if s := p.shape; s.Rows == 1 { // decode: nothing to tile, the cache streams like a GEMV's weights
			t := terms{fixed: m.Start, traffic: 4 * float64(s.Keys) * float64(s.KVHeads) * float64(s.HeadDim)}
			t.memory = t.traffic / (m.GEMV.Stream * 1e3)
			t.time = t.fixed + t.memory
			return t
		}
		return m.Attention.terms(p)
	case GEMV:
		return m.GEMV.terms(p, m.Start)
	}
	return m.stream(p.kernel).terms(p, m.Start, m.Copy)
}

func (m *Model) stream(k Kernel) *StreamParams {
	switch k {
	case SiLUMul:
		return &m.SiLUMul
	case GELU:
		return &m.GELU
	case RMSNorm:
		return &m.RMSNorm
	case LayerNorm:
		return &m.LayerNorm
	case RoPE:
		return &m.RoPE
	}
	return &m.Add // and a copy, which has no rows of its own: it streams like an add
}

// Row is the time that the model gives a row's kernel, in microseconds. A fused-cast GEMM counts both of its launches, as the rows do. The
// row must be valid (see [Row.Validate]) and not be one of a whole program.
func (m *Model) Row(r *Row) float64 {
	p := point{r.Kernel, r.Shape, r.Out, r.Mapping}
	t := m.terms(p).time
	if p.kernel == GEMM && p.mapping.Variant == "fused-cast" {
		t += m.terms(point{kernel: Cast, shape: Shape{N: r.Shape.M * r.Shape.N}}).time
	}
	return t
}
