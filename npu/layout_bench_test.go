package npu

import (
	"testing"

	"github.com/npukit/npukit/npu/dtype"
)

// The down projection of Llama-3.2-1B, transposed for a GEMM on the array.
func BenchmarkTranspose(b *testing.B) {
	w := Tensor{Type: dtype.BF16, Shape: []int{2048, 8192}, Data: make([]byte, 2*2048*8192)}
	src := Source{Layout: Layout{Op: "transpose", Args: []Layout{T("w")}}, From: typed{"w": w}}
	dst := make([]byte, len(w.Data))
	b.SetBytes(int64(len(w.Data)))
	for b.Loop() {
		if err := src.Materialize(dst); err != nil {
			b.Fatal(err)
		}
	}
}
