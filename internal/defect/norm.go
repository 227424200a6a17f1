package defect

import (
	"math"

	"github.com/npukit/npukit/internal/fault"
	"github.com/npukit/npukit/npu/op"
)

// norms are the bugs of RMSNorm.
func norms() []*Defect {
	return []*Defect{
		{
			Name: "norm-no-eps", Op: "RMSNorm", Model: smol, Precise: true,
			Description: "epsilon is not added to the mean square",
			Launches:    []string{"layer.*.attn.norm", "layer.*.ffn.norm", "head.norm"}, First: "layer.0.attn.norm",
			rewrite: func(s *fault.Step) {
				o := s.Launch.Op.(op.RMSNorm)
				o.Eps = 0
				s.Launch.Op = o
			},
		},
		{
			Name: "norm-no-weight", Op: "RMSNorm", Model: sharer, Applies: deep,
			Description: "rows are normalised and not multiplied by the weight",
			Launches:    []string{"layer.1.ffn.norm"}, First: "layer.1.ffn.norm",
			replace: rmsNorm(sum, false),
		},
		{
			Name: "norm-half-the-sum", Op: "RMSNorm", Model: qwen2,
			Description: "two cores sum the squares of half a row each, and the sums are never added: everything " +
				"is too large by about the root of two",
			Launches: []string{"layer.*.ffn.norm"}, First: "layer.0.ffn.norm",
			replace: rmsNorm(func(squares []float64) float64 { return sum(squares[:(len(squares)+1)/2]) }, true),
		},
		{
			Name: "final-norm-first-row", Op: "RMSNorm", Model: llama,
			Description: "the scale of the first row of the block is used for all rows",
			Launches:    []string{"head.norm"}, First: "head.norm",
			replace: func(k *Kernel) {
				o := k.Op.(op.RMSNorm)
				first := rmsScale(k.in(0, 0), o.Eps, sum)
				k.rows(func(r int) []float32 { return scaled(k.in(0, r), k.in(1, 0), first) })
			},
		},
		{
			Name: "q-norm-skipped", Op: "RMSNorm", Model: qwen3, Applies: normed,
			Description: "queries go to the rotation as they come from the projection",
			Launches:    []string{"layer.*.attn.q_norm"}, First: "layer.0.attn.q_norm",
			replace: func(k *Kernel) { k.rows(func(r int) []float32 { return k.in(0, r) }) },
		},
		{
			Name: "k-norm-over-all-heads", Op: "RMSNorm", Model: qwen3,
			Applies:     func(m Model) bool { return m.QKNorm && m.KVHeads > 1 },
			Description: "keys are normalised over the whole row instead of head by head",
			Launches:    []string{"layer.*.attn.k_norm"}, First: "layer.0.attn.k_norm",
			replace: func(k *Kernel) {
				o := k.Op.(op.RMSNorm)
				k.rows(func(r int) []float32 {
					x := k.in(0, r)
					return scaled(x, k.in(1, 0), rmsScale(x, o.Eps, sum))
				})
			},
		},
	}
}

// rmsNorm is a kernel that adds up squares in its own way, and multiplies by the weight or not.
func rmsNorm(total func(squares []float64) float64, weighted bool) func(*Kernel) {
	return func(k *Kernel) {
		o := k.Op.(op.RMSNorm)
		w := k.in(1, 0)
		if !weighted {
			for i := range w {
				w[i] = 1
			}
		}
		k.rows(func(r int) []float32 {
			x := k.in(0, r)
			for h := 0; h < len(x); h += o.Width {
				head := x[h:][:o.Width]
				copy(head, scaled(head, w, rmsScale(head, o.Eps, total)))
			}
			return x
		})
	}
}

// rmsScale is 1 / sqrt(total/len(x) + eps).
func rmsScale(x []float32, eps float64, total func(squares []float64) float64) float64 {
	squares := make([]float64, len(x))
	for i, v := range x {
		squares[i] = float64(v) * float64(v)
	}
	return 1 / math.Sqrt(total(squares)/float64(len(x))+eps)
}

func sum(x []float64) float64 {
	total := 0.0
	for _, v := range x {
		total += v
	}
	return total
}

// scaled is x times its scale and the weight, which repeats where it is shorter.
func scaled(x, w []float32, scale float64) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = float32(float64(v) * scale * float64(w[i%len(w)]))
	}
	return y
}
