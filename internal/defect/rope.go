package defect

import (
	"github.com/npukit/npukit/npu/op"
)

// rotations are the bugs of RoPE.
func rotations() []*Defect {
	both := []string{"layer.*.attn.q_rope", "layer.*.attn.k_rope"}
	return []*Defect{
		{
			Name: "rope-interleaved", Op: "RoPE", Model: llama,
			Description: "element 2i is paired with 2i+1, as GGUF files want it, instead of i with i+headDim/2",
			Launches:    both, First: "layer.0.attn.q_rope",
			replace: rotate(func(i, half int) (a, b int) { return 2 * i, 2*i + 1 }, 1),
		},
		{
			Name: "rope-backwards", Op: "RoPE", Model: qwen2,
			Description: "the sine has the wrong sign",
			Launches:    both, First: "layer.0.attn.q_rope",
			replace: rotate(halves, -1),
		},
		{
			Name: "rope-position-before", Op: "RoPE", Model: sharer,
			Description: "from the second row on queries take the angles of the row before",
			Launches:    []string{"layer.*.attn.q_rope"}, First: "layer.0.attn.q_rope",
			replace: rotateAt(halves, 1, func(r int) int { return max(0, r-1) }),
		},
		{
			Name: "rope-not-on-k", Op: "RoPE", Model: smol,
			Description: "keys are not rotated",
			Launches:    []string{"layer.*.attn.k_rope"}, First: "layer.0.attn.k_rope",
			replace: func(k *Kernel) { k.rows(func(r int) []float32 { return k.in(0, r) }) },
		},
	}
}

// halves pairs element i of a head with element i + headDim/2.
func halves(i, half int) (a, b int) { return i, i + half }

// rotate returns a rotation with other pairs, or another sign of the sine.
func rotate(pair func(i, half int) (a, b int), sign float32) func(*Kernel) {
	return rotateAt(pair, sign, func(r int) int { return r })
}

// rotateAt is rotate with the angles of row at(r) for row r.
func rotateAt(pair func(i, half int) (a, b int), sign float32, at func(r int) int) func(*Kernel) {
	return func(k *Kernel) {
		o := k.Op.(op.RoPE)
		half := o.HeadDim / 2
		k.rows(func(r int) []float32 {
			x, table := k.in(0, r), k.in(1, at(r))
			for h := range o.Heads {
				angles := table[:o.HeadDim]
				if o.TableHeads > 1 {
					angles = table[h*o.HeadDim:][:o.HeadDim]
				}
				head := x[h*o.HeadDim:][:o.HeadDim]
				for i := range half {
					a, b := pair(i, half)
					cos, sin := angles[i], sign*angles[i+half]
					head[a], head[b] = head[a]*cos-head[b]*sin, head[b]*cos+head[a]*sin
				}
			}
			return x
		})
	}
}
