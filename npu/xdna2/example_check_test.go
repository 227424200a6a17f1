package xdna2_test

import (
	"errors"
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

// Check rejects a projection of Qwen2.5-3B and accepts it with the suggested tile.
func ExampleCheck() {
	build := func(panel int) *npu.Program {
		p := npu.NewProgram("gate")
		x := p.In("x", dtype.BF16, 2048, 2048)
		w := p.Const("w", dtype.BF16, 2048, 11008)
		y := p.Out("y", dtype.BF16, 2048, 11008)
		p.Launch("ffn.gate", op.MatMul{M: 2048, K: 2048, N: 11008}, x, w, y)
		p.Map(npu.Mapping{Variant: "direct", Tile: []int{64, panel, 32, 64}, Herd: []int{8, 4}})
		return p
	}
	err := xdna2.Check(build(256), xdna2.NPU2())
	fmt.Println(err)

	var e *xdna2.ResourceError
	fmt.Println(errors.As(err, &e), e.Rule, e.Wanted, e.Available, e.Unit)
	fmt.Println(xdna2.Check(build(128), xdna2.NPU2()))
	// Output:
	// xdna2: program gate: launch "ffn.gate": stride of 256 rows of 11008 BF16: 1409024 words, limit 1048576 (R-DMA-1)
	//   what would fit: tile_k_l2 128 instead of 256
	// true R-DMA-1 1409024 1048576 words
	// <nil>
}

// Find the largest square tile of C that fits a core.
func ExampleFits() {
	o := op.MatMul{M: 2048, K: 2048, N: 2048}
	for tile := 128; tile > 0; tile -= 16 {
		m := npu.Mapping{Variant: "drain", Tile: []int{tile, 256, 32, tile}, Herd: []int{8, 4}}
		if xdna2.Fits(o, nil, m, xdna2.NPU2()) {
			fmt.Println(tile)
			return
		}
	}
	// Output: 64
}
