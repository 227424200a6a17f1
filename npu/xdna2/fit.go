package xdna2

import (
	"fmt"
	"hash/fnv"
	"math"

	"github.com/npukit/npukit/internal/robustfit"
)

// LeftOut are the rows that neither fit nor report use, with the reason. No other standalone row with a time is left out.
func LeftOut() map[string]string {
	const inherited = "carries the rate of a Qwen3-4B row of another shape instead of its own"
	return map[string]string{
		"gemm/2048x2560x2048/fused-cast/64.256.32.128/8x4":  inherited,
		"gemm/2048x2048x2560/fused-cast/64.256.32.128/8x4":  inherited,
		"gemm/2048x10240x2560/fused-cast/64.256.32.128/8x4": inherited,
		"gemm/2048x3584x3584/fused-cast/64.256.32.128/8x4":  "a cliff of a factor ten that the source does not explain",
	}
}

// FitRows are the rows that a fit can use: standalone, with a time, and not in [LeftOut].
func FitRows(rows []Row) []Row {
	out := LeftOut()
	var list []Row
	for _, r := range rows {
		if _, left := out[r.ID]; !left && r.Standalone() && r.Program == "" {
			list = append(list, r)
		}
	}
	return list
}

// Half says to which half of the shapes a row belongs, 0 or 1, for fitting on one and testing on the other. It depends on the kernel's shape
// only, so that rows with other tiles of the same shape never stand on both sides; other salts give other splits.
func (r *Row) Half(salt string) int {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s %v %v", salt, r.Kernel, r.Shape.dims(r.Kernel), r.Shape.Causal)
	x := h.Sum64()
	x ^= x >> 32 // FNV mixes its upper bits poorly: fold and multiply once more
	return int((x * 0x9e3779b97f4a7c15) >> 63)
}

// family is a set of kernels whose parameters are fitted together.
type family struct {
	kernels []Kernel
	params  []*float64
}

func (m *Model) families() []family {
	g, c, v, a := &m.GEMM, &m.Cast, &m.GEMV, &m.Attention
	small := family{[]Kernel{GEMV, Add, SiLUMul, GELU, RMSNorm, LayerNorm, RoPE}, []*float64{&m.Start, &m.Copy, &v.Stream, &v.Row}}
	for _, k := range small.kernels[1:] {
		small.params = append(small.params, &m.stream(k).Rate)
		if m.stream(k).Row > 0 {
			small.params = append(small.params, &m.stream(k).Row)
		}
	}
	return []family{
		{[]Kernel{GEMM}, []*float64{
			&g.Start, &g.Column, &g.Fill, &g.DDR, &g.Reload, &g.External.Step, &g.External.Rate, &g.Drain.Step, &g.Drain.Rate, &g.Direct.Step, &g.Direct.Rate,
			&c.Start, &c.Rate,
		}},
		{[]Kernel{Attention}, []*float64{&a.Start, &a.Tile, &a.Key, &a.Wide, &a.KV}},
		small,
	}
}

// Fit fits the model to rows (see [FitRows]). Residuals are logarithms of predicted over measured time, under a soft L1 norm; all the rows of
// one shape together weigh as much as the only row of another, or else a sweep of tiles would outvote the registry. Parameters are positive.
func Fit(rows []Row) *Model {
	m := priors()
	for _, f := range m.families() {
		type shape struct {
			Kernel
			Shape
		}
		var own []*Row
		siblings := map[shape]float64{}
		for i, r := range rows {
			for _, k := range f.kernels {
				if r.Kernel == k {
					own = append(own, &rows[i])
					siblings[shape{k, r.Shape}]++
				}
			}
		}
		robustfit.Minimise(f.params, len(own), func(dst []float64) {
			for i, r := range own {
				dst[i] = math.Log(m.Row(r)/r.Latency) / math.Sqrt(siblings[shape{r.Kernel, r.Shape}])
			}
		})
	}
	return m
}
