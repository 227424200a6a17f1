package defect

import (
	"math"

	"github.com/npukit/npukit/internal/fault"
	"github.com/npukit/npukit/npu/op"
)

// products are the bugs of MatMul.
func products() []*Defect {
	return []*Defect{
		{
			Name: "product-last-outputs", Op: "MatMul", Model: smol,
			Description: "the last 16 outputs, which fill no tile, are never computed and stay zero",
			Launches:    []string{"layer.*.attn.o"}, First: "layer.0.attn.o",
			damage: func(k *Kernel) {
				k.rows(func(r int) []float32 {
					y := k.out().Row(r)
					clear(y[max(1, len(y)-16):])
					return y
				})
			},
		},
		{
			Name: "product-last-terms", Op: "MatMul", Model: qwen2,
			Description: "the last 16 terms of the sum, which fill no block, are left out",
			Launches:    []string{"layer.*.ffn.down"}, First: "layer.0.ffn.down",
			rewrite: func(s *fault.Step) {
				o := s.Launch.Op.(op.MatMul)
				o.K = max(1, o.K-16)
				s.Launch.Op = o
			},
		},
		{
			Name: "product-tile-edge", Op: "MatMul", Model: sharer,
			Description: "the last output of every tile of 32 is that of its neighbour",
			Launches:    []string{"layer.*.ffn.up"}, First: "layer.0.ffn.up",
			damage: func(k *Kernel) {
				k.rows(func(r int) []float32 {
					y := k.out().Row(r)
					for i := 31; i < len(y); i += 32 {
						y[i] = y[i-1]
					}
					return y
				})
			},
		},
		{
			Name: "product-last-rows", Op: "MatMul", Model: qwen3, Applies: deep,
			Description: "rows beyond the last whole tile of eight get the last row of that tile",
			Launches:    []string{"layer.1.attn.q"}, First: "layer.1.attn.q",
			damage: func(k *Kernel) {
				y := k.out()
				// With whole tiles alone, as in most programs, it is the last tile that is wrong.
				from := (y.Rows - 1) / 8 * 8
				for r := max(1, from); r < y.Rows; r++ {
					y.SetRow(r, y.Row(max(0, from-1)))
				}
			},
		},
		{
			Name: "product-not-transposed", Op: "MatMul", Model: llama, Applies: func(m Model) bool {
				return deep(m) &&
					square(m)
			},
			Description: "a square weight is read by columns instead of rows",
			Launches:    []string{"layer.1.attn.o"}, First: "layer.1.attn.o",
			rewrite: func(s *fault.Step) {
				o := s.Launch.Op.(op.MatMul)
				o.TransB = !o.TransB
				s.Launch.Op = o
			},
		},
		{
			Name: "product-other-weight", Op: "MatMul", Model: qwen3, Applies: deep,
			Description: "the buffer with the weights of k is passed for those of v",
			Launches:    []string{"layer.1.attn.v"}, First: "layer.1.attn.v",
			rewrite: func(s *fault.Step) {
				if k := s.Other("attn.k"); k != nil {
					s.Launch.Args[1] = k[1]
				}
			},
		},
		{
			Name: "product-layer-before", Op: "MatMul", Model: sharer, Applies: deep,
			Description: "the buffer with the weights was not exchanged, and still has those of the layer before",
			Launches:    []string{"layer.1.ffn.gate"}, First: "layer.1.ffn.gate",
			rewrite: func(s *fault.Step) {
				if w := s.Launch.Args[1].Arg; s.Previous != nil {
					s.Buffers[w] = s.Previous[w]
				}
			},
		},
		{
			Name: "product-short-sums", Op: "MatMul", Model: smol,
			Description: "the accumulator is BF16, and each addition cuts off what does not fit",
			Launches:    []string{"layer.*.ffn.down"}, First: "layer.0.ffn.down",
			damage: func(k *Kernel) {
				o := k.Op.(op.MatMul)
				weights := weightRows(k.Operands[1], o)
				k.rows(func(r int) []float32 {
					x, y := k.in(0, r), make([]float32, o.N)
					for n := range y {
						for i, v := range x {
							y[n] = cut(y[n] + v*weights[n][i])
						}
					}
					return y
				})
			},
		},
		{
			Name: "head-block-reversed", Op: "MatMul", Model: llama,
			Description: "one block of 64 rows of the LM head is written back to front",
			Launches:    []string{"head.lm_head"}, First: "head.lm_head",
			damage: func(k *Kernel) {
				k.rows(func(r int) []float32 {
					y := k.out().Row(r)
					for i, j := 0, min(64, len(y))-1; i < j; i, j = i+1, j-1 {
						y[i], y[j] = y[j], y[i]
					}
					return y
				})
			},
		},
	}
}

// weightRows are the weights of each output.
func weightRows(w fault.Matrix, o op.MatMul) [][]float32 {
	rows := make([][]float32, o.N)
	for n := range rows {
		rows[n] = make([]float32, o.K)
	}
	for r := range w.Rows {
		x := w.Row(r)
		if o.TransB {
			copy(rows[r], x)
			continue
		}
		for n, v := range x {
			rows[n][r] = v
		}
	}
	return rows
}

// cut is x as BF16, rounded towards zero.
func cut(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ 0xffff) }
