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

// npuMapper maps ops onto the array.
type npuMapper struct {
	knobs    Knobs
	array    *xdna2.Array
	registry *xdna2.Registry
	mappings map[string]npu.Mapping // by op, type and variant
}

// mapping returns the mapping of an op onto the array: that of a measured row of the same shape, or
// else the first candidate, best first, that the array's rules allow. types are those of the op's
// operands.
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

// ofLaunch names the launch in the ResourceErrors of err.
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

// findMapping returns a mapping without caching it. If no candidate fits, the error is the first
// candidate's, with advice.
func (b *npuMapper) findMapping(o op.Op, variant string, types []dtype.Type) (npu.Mapping, error) {
	candidates := b.candidates(o, variant)
	if b.knobs.Tiles == shapeTiles && b.knobs.Herd == fullHerd {
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

// measured returns the registry's mapping for this shape: the fastest that a deployment measured,
// or else the one published for deployment, or else the fastest of a sweep.
func (b *npuMapper) measured(o op.Op, variant string) (npu.Mapping, bool) {
	_, shape, err := xdna2.ShapeOf(o, op.Size{})
	if err != nil {
		return npu.Mapping{}, false
	}
	list, err := b.registry.Candidates(o, dtype.BF16, op.Size{})
	if err != nil {
		return npu.Mapping{}, false
	}
	var same []xdna2.Row
	for _, r := range list {
		if m := r.Mapping; r.Shape == shape && m.Variant == variant && m.Layout == attentionLayout(o) {
			same = append(same, r)
		}
	}
	for _, record := range []xdna2.Record{xdna2.Own, xdna2.Published, xdna2.Sweep} {
		for _, r := range same {
			if m := r.Mapping; r.Record == record {
				return npu.Mapping{
					Variant: m.Variant,
					Tile:    slices.Clone(m.Tile),
					Herd:    slices.Clone(m.Herd),
					Layout:  m.Layout,
				}, true
			}
		}
	}
	return npu.Mapping{}, false
}

// attentionLayout returns the layout of an attention op, and "" for other ops.
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

// kernelOf sets the variant of kernels that have a scalar and a vector form.
func (b *npuMapper) kernelOf(o op.Op, m npu.Mapping) npu.Mapping {
	switch o.(type) {
	case op.MatMul, op.Attention, op.Cast:
	default:
		if b.knobs.Kernels != vectorKernels {
			m.Variant = "scalar"
		}
	}
	return m
}

// candidates returns the mappings to try for an op, best first. There is at least one.
func (b *npuMapper) candidates(o op.Op, variant string) []npu.Mapping {
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
			return b.vectorCandidates(o, nil) // a bias is added row by row, without tiles
		}
		return b.tileCandidates(o, o.Rows*o.Width, 2048)
	case op.SiLUMul:
		return b.tileCandidates(o, o.Rows*o.Width, 4096)
	case op.RoPE:
		return b.vectorCandidates(o, []int{1})
	}
	return b.vectorCandidates(o, nil)
}

// gemmCandidates puts large blocks of C first, because every operand is read once for each block of
// the other. Next come long panels along K, which DMA streams best. Panels of 512 are left to
// measured rows: with them some shapes run out of buffer descriptors.
func (b *npuMapper) gemmCandidates(variant string) (list []npu.Mapping) {
	herds, tileM, tileN := [][]int{{8, 4}, {4, 4}}, []int{64, 32, 16}, []int{128, 64, 32, 16}
	panels := []int{256, 192, 128, 96, 64, 32}
	if b.knobs.Herd != fullHerd {
		herds = [][]int{{4, 4}}
	}
	if variant == "drain" {
		tileM = tileM[1:] // the core holds the drained block next to the sums
	}
	if b.knobs.Tiles != shapeTiles {
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

// gemvCandidates puts tiles with many weight rows first.
func (b *npuMapper) gemvCandidates(o op.MatMul) (list []npu.Mapping) {
	herds, tiles := []int{8, 4, 2, 1}, []int{16, 8, 4, 2}
	if b.knobs.Herd != fullHerd {
		herds = []int{4, 8, 2, 1}
	}
	if b.knobs.Tiles != shapeTiles {
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

// attentionCandidates spreads query tiles over the columns of the array, those of two heads at once
// if the number of heads is even.
func (b *npuMapper) attentionCandidates(o op.Attention, variant string) (list []npu.Mapping) {
	layout, group := attentionLayout(o), o.Heads/o.KVHeads
	if variant == "temporal" {
		for _, heads := range []int{2, 1} {
			tile, herd := []int{256, 32, 8, heads}, []int{2 * heads * group, 4}
			list = append(list, npu.Mapping{Variant: variant, Tile: tile, Herd: herd, Layout: layout})
		}
		return list
	}
	heads, tiles := []int{2, 1}, []int{8, 4, 2, 1}
	if b.knobs.Herd != fullHerd {
		heads = []int{1}
		tiles = []int{4, 2, 1}
	}
	if b.knobs.Tiles != shapeTiles {
		tiles = []int{1}
	}
	keys := 64 // rows of a block of keys, and of a query tile
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

// tileCandidates returns those of an element-wise kernel over a number of elements, with tiles of
// at most the given size.
func (b *npuMapper) tileCandidates(o op.Op, elements, largest int) (list []npu.Mapping) {
	if b.knobs.Tiles != shapeTiles {
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

func (b *npuMapper) vectorCandidates(o op.Op, tile []int) (list []npu.Mapping) {
	for _, cores := range b.columns() {
		list = append(list, b.kernelOf(o, npu.Mapping{Tile: tile, Herd: []int{cores, 1}}))
	}
	return list
}

// columns returns the numbers of columns to try for kernels that use one core per column.
func (b *npuMapper) columns() []int {
	if b.knobs.Herd != fullHerd {
		return []int{1}
	}
	return []int{8, 4, 2, 1}
}

// castMapping returns the mapping of the second launch of a fused-cast GEMM, which runs on the
// GEMM's cores.
func castMapping(gemm npu.Mapping) npu.Mapping {
	return npu.Mapping{Variant: "fused-cast", Herd: gemm.Herd}
}
