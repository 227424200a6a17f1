package defect

import (
	"math"

	"github.com/npukit/npukit/internal/fault"
	"github.com/npukit/npukit/npu/op"
)

// attentions are the bugs of Attention.
func attentions() []*Defect {
	core := []string{"layer.*.attn.core"}
	attention := func(name, model, description string, a wrongAttention) *Defect {
		return &Defect{Name: name, Op: "Attention", Model: model, Description: description, Launches: core,
			First: "layer.0.attn.core", replace: a.attend}
	}
	modulo := attention("attention-head-modulo", sharer,
		"query head h reads key-value head h % kvHeads instead of h / group", wrongAttention{
			kv: func(h int, o op.Attention) int { return h % o.KVHeads },
		})
	modulo.Applies = grouped
	return []*Defect{
		modulo,
		{
			Name: "attention-no-scale", Op: "Attention", Model: qwen3,
			Description: "scores are not divided by the root of headDim",
			Launches:    core, First: "layer.0.attn.core",
			rewrite: func(s *fault.Step) {
				o := s.Launch.Op.(op.Attention)
				o.Scale = 1
				s.Launch.Op = o
			},
		},
		attention("attention-sees-next", smol, "the mask is off by one, and each row sees the row after it",
			wrongAttention{
				sees: func(pos, held int) (from, to int) { return 0, min(pos+2, held) },
			}),
		attention("attention-misses-itself", qwen2, "the mask is off by one, and no row but the first sees itself",
			wrongAttention{
				sees: func(pos, held int) (from, to int) { return 0, max(1, pos) },
			}),
		attention("attention-whole-blocks", llama, "positions beyond the last whole block of 16 are left out where "+
			"there is a whole block", wrongAttention{
			sees: func(pos, held int) (from, to int) {
				if pos+1 < 16 {
					return 0, pos + 1
				}
				return 0, (pos + 1) / 16 * 16
			},
		}),
		attention("attention-last-block", sharer,
			"the sums of the softmax begin anew with every block of 32 positions", wrongAttention{
				sees: func(pos, held int) (from, to int) { return pos / 32 * 32, pos + 1 },
			}),
	}
}

// wrongAttention is attention with one change; nil fields are right.
type wrongAttention struct {
	kv   func(h int, o op.Attention) int    // key-value head of a query head
	sees func(pos, held int) (from, to int) // positions that a row sees, of so many that there are
}

func (w wrongAttention) attend(k *Kernel) {
	if w.kv == nil {
		w.kv = func(h int, o op.Attention) int { return h / (o.Heads / o.KVHeads) }
	}
	if w.sees == nil {
		w.sees = func(pos, _ int) (from, to int) { return 0, pos + 1 }
	}
	o := k.Op.(op.Attention)
	for _, s := range k.Segments {
		keys, values := positions(k, s, o, 1, 1), positions(k, s, o, 2, max(1, o.Split))
		for r := range s.Rows {
			from, to := w.sees(s.Pos+r, s.Pos+s.Rows)
			for h := range o.Heads {
				kv := w.kv(h, o)
				q := vector(k.Operands[0], o, o.Heads, h, s.Row+r, 1)
				y := weighted(q, keys[kv][from:to], values[kv][from:to], o.Softmax())
				setVector(k.out(), o, o.Heads, h, s.Row+r, max(1, o.Split), y)
			}
		}
	}
}

// weighted is softmax(scale q k^T) v.
func weighted(q []float32, keys, values [][]float32, scale float64) []float32 {
	scores, highest := make([]float64, len(keys)), math.Inf(-1)
	for t, key := range keys {
		for i, v := range q {
			scores[t] += float64(v) * float64(key[i]) * scale
		}
		highest = max(highest, scores[t])
	}
	total := 0.0
	for t := range scores {
		scores[t] = math.Exp(scores[t] - highest)
		total += scores[t]
	}
	sums := make([]float64, len(q))
	for t, v := range values {
		for i := range sums {
			sums[i] += scores[t] / total * float64(v[i])
		}
	}
	y := make([]float32, len(q))
	for i, v := range sums {
		y[i] = float32(v)
	}
	return y
}

// positions are the vectors of an operand that a segment's rows can see,
// [kvHead][position][headDim].
func positions(k *Kernel, s Segment, o op.Attention, operand, split int) [][][]float32 {
	list := make([][][]float32, o.KVHeads)
	for h := range list {
		for t := range s.Pos + s.Rows {
			if o.Cached {
				cache := s.Caches[operand]
				list[h] = append(list[h], cache.Row(h*(cache.Rows/o.KVHeads)+t))
			} else {
				list[h] = append(list[h], vector(k.Operands[operand], o, o.KVHeads, h, s.Row+t, split))
			}
		}
	}
	return list
}

// vector is one head's part of a row, in either layout.
func vector(m fault.Matrix, o op.Attention, heads, h, r, split int) []float32 {
	if !o.HeadFirst {
		return m.Row(r)[h*o.HeadDim:][:o.HeadDim]
	}
	rows := m.Rows / (heads * split)
	var x []float32
	for part := range split {
		x = append(x, m.Row((h*split+part)*rows+r)...)
	}
	return x
}

// setVector is the inverse of vector.
func setVector(m fault.Matrix, o op.Attention, heads, h, r, split int, x []float32) {
	if !o.HeadFirst {
		y := m.Row(r)
		copy(y[h*o.HeadDim:], x)
		m.SetRow(r, y)
		return
	}
	rows := m.Rows / (heads * split)
	for part := range split {
		m.SetRow((h*split+part)*rows+r, x[part*m.Width:][:m.Width])
	}
}
