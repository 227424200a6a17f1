package xdna2

import (
	_ "embed" // the fitted parameters
	"encoding/json"
	"fmt"
	"sync"
)

// Model holds the constants of the cost model. [NewClock] uses those fitted to all published rows.
//
// Fitted to half of the shapes, the model predicts the other half with a median error of 4 % and 14
// % at the 90th percentile; the source itself varies by 10 to 15 % from process to process. It is
// 15 to 35 % too fast for GEMMs of 256 rows or 512 cubed, very wide GEMMs with short k tiles,
// RMSNorm of width 2048, and GEMV on four columns. FlashAttention over 512 positions is off by as
// much if the fit has no such rows. Only the constants are held out in that test. The formulas were
// chosen with all rows in view, so expect larger errors for new kernels.
type Model struct {
	Start     float64         `json:"start_us"` // launch of a kernel from GEMV down; the source measures 80 to 84
	Copy      float64         `json:"copy_gbs"` // reads plus writes of element-wise kernels, norms and casts
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
var modelJSON []byte

// defaultModel returns a copy of the model fitted to the standalone published rows.
func defaultModel() *Model {
	m := parsedModel()
	return &m
}

var parsedModel = sync.OnceValue(func() Model {
	var m Model
	if err := json.Unmarshal(modelJSON, &m); err != nil {
		panic(fmt.Sprintf("xdna2: cost_model.json: %v", err))
	}
	return m
})

// scalarLanes is the slowdown of a scalar kernel: it uses one of the 16 lanes of a BF16 vector. No
// scalar kernel's time is published, so the factor is an assumption.
const scalarLanes = 16

// terms evaluates the formula of a kernel that runs alone.
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
	case castKernel:
		return (&StreamParams{Rate: m.Cast.Rate}).terms(p, m.Cast.Start, m.Copy)
	case Attention:
		if s := p.shape; s.Rows == 1 { // decode: the cache streams like a GEMV's weights
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
	return &m.Add // also for Move, which has no measured rows: a copy streams like an add
}

// Row returns the predicted time of a row's kernel in microseconds. For a fused-cast GEMM it
// includes the cast, as the rows do. The row must be valid and must not time a whole program; see
// [Row.Validate].
func (m *Model) Row(r *Row) float64 {
	p := point{r.Kernel, r.Shape, r.Out, r.Mapping}
	t := m.terms(p).time
	if p.kernel == GEMM && p.mapping.Variant == "fused-cast" {
		t += m.terms(point{kernel: castKernel, shape: Shape{N: r.Shape.M * r.Shape.N}}).time
	}
	return t
}
