package defect

import (
	"math"

	"github.com/npukit/npukit/internal/fault"
)

// pointwise are the bugs of SiLUMul and Add.
func pointwise() []*Defect {
	act := []string{"layer.*.ffn.act"}
	gate := func(name, model, description string, f func(x float64) float64) *Defect {
		return &Defect{Name: name, Op: "SiLUMul", Model: model, Description: description, Launches: act,
			First: "layer.0.ffn.act", replace: func(k *Kernel) {
				k.rows(func(r int) []float32 {
					x, up := k.in(0, r), k.in(1, r)
					for i, v := range x {
						x[i] = float32(f(float64(v)) * float64(up[i]))
					}
					return x
				})
			}}
	}
	skip := func(k *Kernel) { k.rows(func(r int) []float32 { return k.in(0, r) }) }
	return []*Defect{
		{
			Name: "act-swapped", Op: "SiLUMul", Model: llama,
			Description: "gate and up are exchanged",
			Launches:    act, First: "layer.0.ffn.act",
			rewrite: func(s *fault.Step) { s.Launch.Args[0], s.Launch.Args[1] = s.Launch.Args[1], s.Launch.Args[0] },
		},
		gate("act-gelu", qwen3, "GELU is computed instead of SiLU",
			func(x float64) float64 { return x / 2 * (1 + math.Erf(x/math.Sqrt2)) }),
		gate("act-relu", sharer, "ReLU is computed instead of SiLU", func(x float64) float64 { return max(0, x) }),
		gate("act-sigmoid", qwen2, "the sigmoid is not multiplied by the gate",
			func(x float64) float64 { return 1 / (1 + math.Exp(-x)) }),
		{
			Name: "bias-skipped", Op: "Add", Model: qwen2, Applies: biased,
			Description: "the bias of the queries is not added",
			Launches:    []string{"layer.*.attn.q_bias"}, First: "layer.0.attn.q_bias",
			replace: skip,
		},
		{
			Name: "residual-skipped", Op: "Add", Model: qwen3, Applies: deep,
			Description: "the feed-forward block's output replaces the residual stream in one layer",
			Launches:    []string{"layer.1.ffn.residual"}, First: "layer.1.ffn.residual",
			replace: skip,
		},
		{
			Name: "residual-normed", Op: "Add", Model: smol,
			Description: "attention's output is added to the normed rows instead of the residual stream",
			Launches:    []string{"layer.*.attn.residual"}, First: "layer.0.attn.residual",
			rewrite: func(s *fault.Step) {
				if n := s.Other("attn.norm"); n != nil {
					s.Launch.Args[1] = n[2]
				}
			},
		},
	}
}
