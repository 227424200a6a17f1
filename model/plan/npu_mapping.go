package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

// mapping says how an op lies on the array: as a measured row of that very shape has it, else the first of a list of candidates, best
// first, that the array's rules allow. Types are those of the op's operands.
func (b *npuPlanner) mapping(name string, o op.Op, variant string, types ...dtype.Type) npu.Mapping {
	if b.err != nil {
		return npu.Mapping{}
	}
	body, err := op.Marshal(o)
	if err != nil {
		b.fail(err)
		return npu.Mapping{}
	}
	key := variant + string(body)
	if m, ok := b.mappings[key]; ok {
		return m
	}
	m, err := b.findMapping(o, variant, types)
	if err != nil {
		b.fail(ofLaunch(name, err))
	}
	b.mappings[key] = m
	return m
}

// ofLaunch names the launch that refusals are about.
func ofLaunch(name string, err error) error {
	var list interface{ Unwrap() []error }
	if !errors.As(err, &list) {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, e := range list.Unwrap() {
		var refused *xdna2.ResourceError
		if errors.As(e, &refused) {
			refused.Launch = name
		}
	}
	return err
}

// findMapping is mapping without memory. An error is the first candidate's, with advice.
func (b *npuPlanner) findMapping(o op.Op, variant string, types []dtype.Type) (npu.Mapping, error) {
	candidates := b.candidates(o, variant)
	if b.knobs.Tiles == ShapeTiles && b.knobs.Herd == FullHerd {
		if m, ok := b.measured(o, variant); ok && xdna2.Fits(o, types, m, b.array) {
			return b.kernelOf(o, m), nil
		}
	}
	for _, m := range candidates {
		if xdna2.Fits(o, types, m, b.array) {
			return m, nil
		}
	}
	return npu.Mapping{}, xdna2.CheckLaunch(o, types, candidates[0], b.array)
}

// measured is the mapping that the registry has for this shape: the fastest that a deployment has measured, else what is published for
// deployment, else the fastest of a sweep.
func (b *npuPlanner) measured(o op.Op, variant string) (npu.Mapping, bool) {
	list, err := b.registry.Candidates(o, dtype.BF16, op.Size{})
	if err != nil {
		return npu.Mapping{}, false
	}
	var same []xdna2.Row
	for _, c := range list {
		if m := c.Row.Mapping; c.Distance == 0 && m.Variant == variant && m.Layout == attentionLayout(o) {
			same = append(same, c.Row)
		}
	}
	for _, record := range []xdna2.Record{xdna2.Own, xdna2.Published, xdna2.Sweep} {
		for _, r := range same {
			if m := r.Mapping; r.Record == record {
				return npu.Mapping{Variant: m.Variant, Tile: slices.Clone(m.Tile), Herd: slices.Clone(m.Herd), Layout: m.Layout}, true
			}
		}
	}
	return npu.Mapping{}, false
}

// attentionLayout is the layout of an attention, "" of other ops.
func attentionLayout(o op.Op) string {
	a, ok := o.(op.Attention)
	switch {
	case !ok:
		return ""
	case a.HeadFirst:
		return "head-first"
	}
	return "seq-first"
}

// kernelOf sets the variant of kernels that exist in a scalar and a vector form.
func (b *npuPlanner) kernelOf(o op.Op, m npu.Mapping) npu.Mapping {
	switch o.(type) {
	case op.MatMul, op.Attention, op.Cast:
	default:
		if b.knobs.Kernels == ScalarKernels {
			m.Variant = "scalar"
		}
	}
	return m
}

// candidates lists the mappings to try for an op, at least one.
func (b *npuPlanner) candidates(o op.Op, variant string) []npu.Mapping {
	switch o := o.(type) {
	case op.MatMul:
		if o.M == 1 {
			return b.gemvCandidates(o)
		}
		return b.gemmCandidates(variant)
	case op.Attention:
		return b.attentionCandidates(o, variant)
	case op.Add:
		if o.Broadcast {
			return b.vectorCandidates(o, nil) // a bias is added row by row and has no tile
		}
		return b.tileCandidates(o, o.Rows*o.Width, 2048)
	case op.SiLUMul:
		return b.tileCandidates(o, o.Rows*o.Width, 4096)
	case op.RoPE:
		return b.vectorCandidates(o, []int{1})
	}
	return b.vectorCandidates(o, nil)
}

// gemmCandidates: large blocks of C first, for every operand is read once for each block of the other; then long panels along K, which
// DMA streams best. Panels of 512 are left to measured rows: some shapes run out of buffer descriptors with them.
func (b *npuPlanner) gemmCandidates(variant string) (list []npu.Mapping) {
	herds, tileM, tileN, panels := [][]int{{8, 4}, {4, 4}}, []int{64, 32, 16}, []int{128, 64, 32, 16}, []int{256, 192, 128, 96, 64, 32}
	if b.knobs.Herd == PartHerd {
		herds = [][]int{{4, 4}}
	}
	if variant == "drain" {
		tileM = tileM[1:] // the drained block lies in the core beside the sums
	}
	if b.knobs.Tiles == SmallTiles {
		tileM, tileN, panels = []int{32, 16}, []int{64, 32, 16}, []int{64, 32}
	}
	for _, herd := range herds {
		for _, n := range tileN {
			for _, m := range tileM {
				for _, k := range panels {
					list = append(list, npu.Mapping{Variant: variant, Tile: []int{m, k, 32, n}, Herd: herd})
				}
			}
		}
	}
	return list
}

// gemvCandidates: the more rows of the weight a core takes at once the better, as far as memory goes.
func (b *npuPlanner) gemvCandidates(o op.MatMul) (list []npu.Mapping) {
	herds, tiles := []int{8, 4, 2, 1}, []int{16, 8, 4, 2}
	if b.knobs.Herd == PartHerd {
		herds = []int{4, 8, 2, 1}
	}
	if b.knobs.Tiles == SmallTiles {
		tiles = []int{2, 4, 8, 16}
	}
	for _, h := range herds {
		for _, m := range tiles {
			for in := m; in >= 1; in /= 2 {
				list = append(list, npu.Mapping{Variant: "gemv", Tile: []int{m, in}, Herd: []int{h, 1}})
			}
		}
	}
	return list
}

// attentionCandidates: the columns of the array take query tiles, those of two heads at once where the number of heads is even.
func (b *npuPlanner) attentionCandidates(o op.Attention, variant string) (list []npu.Mapping) {
	layout, group := attentionLayout(o), o.Heads/o.KVHeads
	if variant == "temporal" {
		for _, heads := range []int{2, 1} {
			tile, herd := []int{256, 32, 8, heads}, []int{2 * heads * group, 4}
			list = append(list, npu.Mapping{Variant: variant, Tile: tile, Herd: herd, Layout: layout})
		}
		return list
	}
	heads, tiles := []int{2, 1}, []int{8, 4, 2, 1}
	if b.knobs.Herd == PartHerd {
		heads = []int{1}
		tiles = []int{4, 2, 1}
	}
	if b.knobs.Tiles == SmallTiles {
		tiles = []int{1}
	}
	keys := 64 // rows of a chunk of keys, and of a query tile
	if o.HeadDim > 128 {
		keys = 32
	}
	for _, h := range heads {
		for _, n := range tiles {
			if h*n > b.array.Columns {
				continue
			}
			for rows := 4; rows >= 1; rows /= 2 {
				tile, herd := []int{n * keys, keys, n, h}, []int{h * n, rows}
				list = append(list, npu.Mapping{Variant: variant, Tile: tile, Herd: herd, Layout: layout})
			}
		}
	}
	return list
}

// tileCandidates are those of an element-wise kernel over so many elements, with tiles up to a size.
func (b *npuPlanner) tileCandidates(o op.Op, elements, largest int) (list []npu.Mapping) {
	if b.knobs.Tiles == SmallTiles {
		largest = 256
	}
	for _, cores := range b.columns() {
		for tile := largest; tile >= 16; tile -= 16 {
			if elements%(tile*cores) == 0 {
				list = append(list, b.kernelOf(o, npu.Mapping{Tile: []int{tile}, Herd: []int{cores, 1}}))
			}
		}
	}
	return append(list, b.kernelOf(o, npu.Mapping{Tile: []int{largest}, Herd: []int{8, 1}}))
}

func (b *npuPlanner) vectorCandidates(o op.Op, tile []int) (list []npu.Mapping) {
	for _, cores := range b.columns() {
		list = append(list, b.kernelOf(o, npu.Mapping{Tile: tile, Herd: []int{cores, 1}}))
	}
	return list
}

// columns are the numbers of columns to try for kernels that use one core of each.
func (b *npuPlanner) columns() []int {
	if b.knobs.Herd == PartHerd {
		return []int{1}
	}
	return []int{8, 4, 2, 1}
}

// castMapping is how the second launch of a fused-cast GEMM lies: on the GEMM's cores.
func castMapping(gemm npu.Mapping) npu.Mapping {
	return npu.Mapping{Variant: "fused-cast", Herd: gemm.Herd}
}
