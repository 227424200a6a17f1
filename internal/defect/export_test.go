package defect

import "github.com/npukit/npukit/npu/op"

// Right are the kernels that replace the device's, with nothing wrong in them.
func Right() []*Defect {
	own := func(o op.KVWrite, head int) int { return head }
	return []*Defect{
		{Name: "norm", Op: "RMSNorm", Launches: []string{"*norm"}, replace: rmsNorm(sum, true)},
		{Name: "rope", Op: "RoPE", Launches: []string{"*_rope"},
			replace: rotate(halves, 1)},
		{Name: "write", Op: "KVWrite", Launches: []string{"*_write"}, replace: write(own, 0)},
		{Name: "attention", Op: "Attention", Launches: []string{"*.core"}, replace: wrongAttention{}.attend},
	}
}
