package xdna2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// kernelRules say for which ops there is a kernel at all.
func kernelRules() []rule {
	return []rule{
		launchRule("R-KER-1", "MEAS", "B",
			"a kernel for the op has been built for the array: no published program gathers, copies, permutes or writes a cache there, "+
				"or attends over a cache", "nothing to launch", "",
			func(p *place) verdict {
				if o, ok := p.op.(op.Attention); ok && o.Cached {
					return refuse(true, "attention over a cache has no kernel: the published one sees the rows of its own run only")
				}
				return refuse(p.kernel == Move, "%s has no kernel", p.op.Kind())
			}).otherwise(func(*place) string { return "make it a step on the host" }),

		launchRule("R-KER-2", "CC", "A", "every dimension is a number: kernels are compiled for one shape", "nothing to compile", "",
			func(p *place) verdict {
				return refuse(p.op != nil && openRows(p.op), "%s has rows that only a run knows", p.kernel)
			}).otherwise(func(*place) string { return "state the number of rows, and pad shorter runs to it" }),

		launchRule("R-KER-3", "API", "A",
			"operands have the types that the kernel was written for: BF16, but for the FP32 result of the GEMMs that leave it, and the "+
				"cast that reads it", "wrong numbers", "", checkTypes).
			otherwise(func(p *place) string {
				if p.out == dtype.F32 && p.kernel == GEMM {
					return `map it as "fused-cast" or "f32-out"`
				}
				return "keep activations and weights in BF16 on the array: dequantise weights when their constants are made"
			}),

		launchRule("R-KER-4", "API", "A",
			"parameters that are fixed in the kernel have its values: attention is scaled by 1/sqrt(head_dim), RoPE reads a table row "+
				"for each head", "wrong numbers", "",
			func(p *place) verdict {
				switch o := p.op.(type) {
				case op.Attention:
					plain := op.Attention{HeadDim: o.HeadDim}
					return refuse(o.Softmax() != plain.Softmax(), "attention is scaled by %g, the kernel has %g", o.Softmax(), plain.Softmax())
				case op.RoPE:
					return refuse(o.Heads > 1 && o.TableHeads != o.Heads, "RoPE has %d heads and a table row for %d", o.Heads, max(1,
						o.TableHeads))
				}
				return undecided()
			}).otherwise(func(p *place) string {
			if o, ok := p.op.(op.RoPE); ok {
				return fmt.Sprintf("repeat the table for each head: TableHeads %d", o.Heads)
			}
			return "fold the difference into the weights of q"
		}),

		launchRule("R-DMA-4", "HW", "A",
			"elements of fewer than 32 bits are not transposed on the way: the innermost stride is 1. A GEMM wants its weight as [K, "+
				"N], a GEMV as [N, K]", "stride must be 1", "",
			func(p *place) verdict {
				switch o := p.op.(type) {
				case op.MatMul:
					if p.kernel == GEMM {
						return refuse(o.TransB, "the GEMM's weight lies as [N, K], the kernel streams rows of [K, N]")
					}
					return refuse(!o.TransB, "the GEMV's weight lies as [K, N], the kernel streams rows of [N, K]")
				case op.Permute:
					last := len(o.Perm) - 1
					return refuse(o.Perm[last] != last, "the permutation %v moves single elements", o.Perm)
				}
				return undecided()
			}).otherwise(func(p *place) string {
			if p.kernel == Move {
				return "permute on the host, or use a kernel that reads the other layout"
			}
			return fmt.Sprintf("bind the weight in the other layout, and set TransB to %v", p.kernel == GEMV)
		}),
	}
}

// checkTypes checks the operand types of each kernel.
func checkTypes(p *place) verdict {
	if p.types == nil || p.kernel == Move {
		return undecided()
	}
	for i, operand := range p.op.Operands() {
		want := []dtype.Type{dtype.BF16}
		switch {
		case p.kernel == Cast && !operand.Write:
			want = []dtype.Type{dtype.F32}
		case p.kernel == GEMM && operand.Write && (p.m.Variant == "fused-cast" || p.m.Variant == "f32-out"):
			want = []dtype.Type{dtype.F32}
		case p.kernel == GEMM && operand.Write && p.m.Variant == "direct":
			want = []dtype.Type{dtype.BF16, dtype.F32}
		}
		if !slices.Contains(want, p.types[i]) {
			return refuse(true, "%s of %s is %v, the kernel%s has %v", operand.Name, p.op.Kind(), p.types[i], quoted(p.m.Variant), want[0])
		}
	}
	return holds()
}

func quoted(variant string) string {
	if variant == "" {
		return ""
	}
	return fmt.Sprintf(" %q", variant)
}

// form is what a kernel's mapping states.
type form struct {
	variants []string
	tile     []string // names of the tile's numbers
	optional bool     // the tile may be left out
	layouts  []string
}

func forms(k Kernel) form {
	vector := []string{"", "scalar"}
	switch k {
	case GEMM:
		return form{variants: []string{"fused-cast", "drain", "direct", "f32-out"}, tile: []string{"tile_m", "tile_k_l2", "tile_k_l1",
			"tile_n"}}
	case GEMV:
		return form{variants: []string{"gemv", "cascade"}, tile: []string{"tile_m", "m_input"}}
	case Attention:
		return form{variants: []string{"flash", "temporal"}, tile: []string{"lqp", "lkp", "num_q_tiles", "heads_per_unroll"},
			layouts: []string{"seq-first", "head-first"}}
	case Add:
		return form{variants: vector, tile: []string{"tile_n"}, optional: true}
	case SiLUMul, GELU:
		return form{variants: vector, tile: []string{"tile_n"}}
	case RoPE:
		return form{variants: vector, tile: []string{"rows_per_dma"}, optional: true}
	case Cast:
		return form{variants: []string{"fused-cast"}, tile: []string{"tile_n"}, optional: true}
	}
	return form{variants: vector}
}

// mappingRules say that a mapping states what its kernel needs, and nothing that contradicts it.
func mappingRules() []rule {
	return []rule{
		launchRule("R-MAP-1", "API", "A",
			"the mapping states the kernel's variant, every number of its tile, its columns and rows of cores and, for attention, its "+
				"layout",
			"nothing to compile", "the cast behind a fused-cast GEMM takes its tile and herd from the GEMM", stating).
			otherwise(func(p *place) string {
				f := forms(p.kernel)
				s := fmt.Sprintf("set Variant to one of %q", f.variants)
				if len(f.tile) > 0 {
					s += fmt.Sprintf(", Tile to [%s]", strings.Join(f.tile, ", "))
				}
				if p.kernel != Cast {
					s += ", Herd to [columns, rows]"
				}
				if len(f.layouts) > 0 {
					s += fmt.Sprintf(", Layout to one of %q", f.layouts)
				}
				return s
			}),

		launchRule("R-MAP-2", "HW", "A", "the herd lies on the array: at most 8 columns and 4 rows of cores", "herd does not place", "",
			func(p *place) verdict {
				cols, rows := p.herd()
				if !stated(cols, rows) {
					return undecided()
				}
				return all(atMost(cols, p.array.Columns, "columns", "the herd has %d columns", cols),
					atMost(rows, p.array.Rows, "rows", "the herd has %d rows of cores", rows))
			}),
	}
}

// maxTile and maxHerd bound what a mapping may state, far above any that fits, so that the products that rules form stay far from overflow.
const (
	maxTile = 1 << 20
	maxHerd = 1 << 10
)

func stating(p *place) verdict {
	if p.kernel == Move {
		return undecided()
	}
	for _, n := range p.m.Tile {
		if n <= 0 || n > maxTile {
			return refuse(true, "tile %v has a number outside 1 to %d", p.m.Tile, maxTile)
		}
	}
	for _, n := range p.m.Herd {
		if n <= 0 || n > maxHerd {
			return refuse(true, "herd %v has a number outside 1 to %d", p.m.Herd, maxHerd)
		}
	}
	if p.fusedMember() && p.m.Variant == "" && len(p.m.Tile)+len(p.m.Herd) == 0 {
		return holds() // computed inside the kernel that its neighbours state
	}
	f := forms(p.kernel)
	switch {
	case !slices.Contains(f.variants, p.m.Variant):
		return refuse(true, "%s has no variant %q", p.kernel, p.m.Variant)
	case len(p.m.Tile) != len(f.tile) && !(f.optional && len(p.m.Tile) == 0):
		return refuse(true, "%s%s has the tile [%s], the mapping has %v", p.kernel, quoted(p.m.Variant), strings.Join(f.tile, ", "),
			p.m.Tile)
	case len(p.m.Herd) != 2 && !(p.kernel == Cast && len(p.m.Herd) == 0):
		return refuse(true, "the mapping has the herd %v", p.m.Herd)
	case f.layouts != nil && !slices.Contains(f.layouts, p.m.Layout):
		return refuse(true, "attention has no layout %q", p.m.Layout)
	case p.m.Variant == "cascade" && p.m.Fused == "":
		return refuse(true, `a "cascade" is a stage of a fused kernel, and Fused is empty`)
	}
	return layoutOfOp(p)
}

// layoutOfOp compares the layout of an attention's mapping with that of its operands.
func layoutOfOp(p *place) verdict {
	o, ok := p.op.(op.Attention)
	if !ok {
		return holds()
	}
	return refuse(o.HeadFirst != (p.m.Layout == "head-first"), "the mapping says %s, the op's HeadFirst is %v", p.m.Layout, o.HeadFirst)
}
