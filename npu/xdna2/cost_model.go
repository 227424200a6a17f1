package xdna2

import (
	_ "embed" // the fitted parameters
	"encoding/json"
	"fmt"
	"sync"
)

// Model holds the constants of the cost model. [DefaultModel] is fitted to all published rows; [Fit] makes others.
type Model struct {
	Start     float64         `json:"start_us"` // of a launch of any kernel below GEMV; the source measures a floor of 80 to 84
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
		GEMM: GEMMParams{Start: 76, Pass: 7.5, DDR: 54, Reload: 56,
			External: MicroKernel{0.20, 244}, Drain: MicroKernel{0.50, 319}, Direct: MicroKernel{0.36, 103}},
		Cast:      CastParams{Start: 365, Rate: 8.6},
		Attention: AttentionParams{Start: 600, Tile: 35, Key: 35, Wide: 25, KV: 54},
		GEMV:      GEMVParams{Stream: 34, Row: 0.35},
		Add:       StreamParams{Rate: 9},
		SiLUMul:   StreamParams{Rate: 3},
		GELU:      StreamParams{Rate: 1.8},
		RMSNorm:   StreamParams{Rate: 3, Row: 0.1},
		LayerNorm: StreamParams{Rate: 1.9, Row: 0.2}, // one published shape: rate and row cannot be told apart, the prior decides
		RoPE:      StreamParams{Rate: 11, Row: 0.027},
	}
}

// terms prices a kernel that runs alone.
func (m *Model) terms(p point) terms {
	switch p.kernel {
	case GEMM:
		return m.GEMM.terms(p)
	case Cast:
		return (&StreamParams{Rate: m.Cast.Rate}).terms(p, m.Cast.Start)
	case Attention:
		return m.Attention.terms(p)
	case GEMV:
		return m.GEMV.terms(p, m.Start)
	}
	return m.stream(p.kernel).terms(p, m.Start)
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
