// Package costfit fits the constants of the XDNA 2 cost model to the published measurements and
// checks how well they predict shapes that the fit has not seen. npu/xdna2 embeds the result as
// cost_model.json; a test of this package fails if the file and the fit disagree, and rewrites the
// file if run with -update.
package costfit

import (
	"fmt"
	"hash/fnv"
	"math"

	"github.com/npukit/npukit/internal/robustfit"
	"github.com/npukit/npukit/npu/xdna2"
)

// Excluded returns the registry rows that are not used for fitting or testing, by row ID, each with
// the reason.
func Excluded() map[string]string {
	const inherited = "carries the rate of a Qwen3-4B row of another shape instead of its own"
	return map[string]string{
		"gemm/2048x2560x2048/fused-cast/64.256.32.128/8x4":  inherited,
		"gemm/2048x2048x2560/fused-cast/64.256.32.128/8x4":  inherited,
		"gemm/2048x10240x2560/fused-cast/64.256.32.128/8x4": inherited,
		"gemm/2048x3584x3584/fused-cast/64.256.32.128/8x4": "a cliff of a factor ten that the source does not " +
			"explain",
	}
}

// Rows returns the rows that a fit can use: standalone measurements of single kernels that are not
// in [Excluded].
func Rows(rows []xdna2.Row) []xdna2.Row {
	excluded := Excluded()
	var list []xdna2.Row
	for _, r := range rows {
		if _, skip := excluded[r.ID]; !skip && r.Standalone() && r.Program == "" {
			list = append(list, r)
		}
	}
	return list
}

// half assigns a row to one half of the shapes, 0 or 1. It hashes the kernel and its shape only, so
// rows that differ in their tiles stay together. Each salt yields another split.
func half(r *xdna2.Row, salt string) int {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s %v %v", salt, r.Kernel, dims(r), r.Shape.Causal)
	x := h.Sum64()
	x ^= x >> 32 // FNV mixes its upper bits poorly: fold and multiply once more
	return int((x * 0x9e3779b97f4a7c15) >> 63)
}

// dims returns the dimensions that identify a row's shape.
func dims(r *xdna2.Row) []int {
	s := r.Shape
	switch r.Kernel {
	case xdna2.GEMM, xdna2.GEMV:
		return []int{s.M, s.K, s.N}
	case xdna2.Attention:
		return []int{s.Rows, s.Keys, s.Heads, s.KVHeads, s.HeadDim}
	case xdna2.RMSNorm, xdna2.LayerNorm, xdna2.RoPE:
		return []int{s.Rows, s.Width}
	}
	return []int{s.N}
}

// priors returns the round values that a fit starts from and is weakly pulled back to.
func priors() *xdna2.Model {
	return &xdna2.Model{
		Start: 83,
		Copy:  75,
		GEMM: xdna2.GEMMParams{
			Start: 76, Column: 10, Fill: 1, DDR: 54, Reload: 56,
			External: xdna2.MicroKernel{Step: 0.20, Rate: 244},
			Drain:    xdna2.MicroKernel{Step: 0.50, Rate: 319},
			Direct:   xdna2.MicroKernel{Step: 0.36, Rate: 103},
		},
		Cast:      xdna2.CastParams{Start: 365, Rate: 8.6},
		Attention: xdna2.AttentionParams{Start: 600, Tile: 35, Key: 35, Wide: 25, KV: 54},
		GEMV:      xdna2.GEMVParams{Stream: 34, Row: 0.35},
		Add:       xdna2.StreamParams{Rate: 10},
		SiLUMul:   xdna2.StreamParams{Rate: 3},
		GELU:      xdna2.StreamParams{Rate: 1.8},
		RMSNorm:   xdna2.StreamParams{Rate: 3, Row: 0.1},
		// LayerNorm is published in one shape, which cannot separate Rate from Row: the prior
		// decides.
		LayerNorm: xdna2.StreamParams{Rate: 1.9, Row: 0.2},
		RoPE:      xdna2.StreamParams{Rate: 11, Row: 0.027},
	}
}

// family is a set of kernels whose parameters are fitted together.
type family struct {
	kernels []xdna2.Kernel
	params  []*float64
}

// families returns pointers to all parameters of m, grouped by the kernels that determine them.
func families(m *xdna2.Model) []family {
	g, c, v, a := &m.GEMM, &m.Cast, &m.GEMV, &m.Attention
	gemm := family{[]xdna2.Kernel{xdna2.GEMM}, []*float64{
		&g.Start, &g.Column, &g.Fill, &g.DDR, &g.Reload,
		&g.External.Step, &g.External.Rate, &g.Drain.Step, &g.Drain.Rate, &g.Direct.Step, &g.Direct.Rate,
		&c.Start, &c.Rate,
	}}
	attention := family{[]xdna2.Kernel{xdna2.Attention}, []*float64{&a.Start, &a.Tile, &a.Key, &a.Wide, &a.KV}}
	small := family{[]xdna2.Kernel{xdna2.GEMV}, []*float64{&m.Start, &m.Copy, &v.Stream, &v.Row}}
	for _, k := range []struct {
		kernel xdna2.Kernel
		params *xdna2.StreamParams
	}{
		{xdna2.Add, &m.Add},
		{xdna2.SiLUMul, &m.SiLUMul},
		{xdna2.GELU, &m.GELU},
		{xdna2.RMSNorm, &m.RMSNorm},
		{xdna2.LayerNorm, &m.LayerNorm},
		{xdna2.RoPE, &m.RoPE},
	} {
		small.kernels = append(small.kernels, k.kernel)
		small.params = append(small.params, &k.params.Rate)
		if k.params.Row > 0 {
			small.params = append(small.params, &k.params.Row)
		}
	}
	return []family{gemm, attention, small}
}

// Fit returns the model that fits rows best (see [Rows]). Residuals are logarithms of predicted
// over measured time under a soft L1 norm. All rows of one shape together weigh as much as the only
// row of another; otherwise a sweep of tiles would outvote the registry.
func Fit(rows []xdna2.Row) *xdna2.Model {
	m := priors()
	for _, f := range families(m) {
		type shape struct {
			xdna2.Kernel
			xdna2.Shape
		}
		var own []*xdna2.Row
		siblings := map[shape]float64{}
		for i, r := range rows {
			for _, k := range f.kernels {
				if r.Kernel == k {
					own = append(own, &rows[i])
					siblings[shape{k, r.Shape}]++
				}
			}
		}
		robustfit.Minimize(f.params, len(own), func(dst []float64) {
			for i, r := range own {
				dst[i] = math.Log(m.Row(r)/r.Latency) / math.Sqrt(siblings[shape{r.Kernel, r.Shape}])
			}
		})
	}
	return m
}
