package xdna2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// kernelRules returns the rules that decide whether an op has a kernel at all.
func kernelRules() []rule {
	return []rule{
		launchRule("R-KER-1", "MEAS", "B",
			"the op has a kernel: no published program gathers, copies, permutes, writes a cache or attends over a "+
				"cache on the array", "nothing to launch", "",
			func(p *place) verdict {
				if o, ok := p.op.(op.Attention); ok && o.Cached {
					return failIf(true, "attention over a cache has no kernel: the published one attends to the "+
						"rows of its own run only")
				}
				return failIf(p.kernel == moveKernel, "%s has no kernel", p.op.Kind())
			}).withAdvice(func(*place) string { return "make it a step on the host" }),

		launchRule("R-KER-2", "CC", "A", "every dimension is a number: kernels are compiled for one shape",
			"nothing to compile", "",
			func(p *place) verdict {
				return failIf(p.op != nil && openRows(p.op), "%s has a symbolic number of rows", p.kernel)
			}).withAdvice(func(*place) string { return "fix the number of rows, and pad shorter runs to it" }),

		launchRule("R-KER-3", "API", "A",
			"operands have the types that the kernel was written for: BF16, except the FP32 result of fused-cast "+
				"and f32-out GEMMs and the cast that reads it", "wrong numbers", "", checkTypes).
			withAdvice(func(p *place) string {
				if p.out == dtype.F32 && p.kernel == GEMM {
					return `map it as "fused-cast" or "f32-out"`
				}
				return "use BF16 activations and weights on the array: dequantize weights when their constants are made"
			}),

		launchRule("R-KER-4", "API", "A",
			"parameters that the kernel fixes have its values: attention scales by 1/sqrt(head_dim), RoPE reads a "+
				"table row per head", "wrong numbers", "",
			func(p *place) verdict {
				switch o := p.op.(type) {
				case op.Attention:
					plain := op.Attention{HeadDim: o.HeadDim}
					return failIf(o.Softmax() != plain.Softmax(), "attention scales by %g, the kernel by %g",
						o.Softmax(), plain.Softmax())
				case op.RoPE:
					return failIf(o.Heads > 1 && o.TableHeads != o.Heads, "RoPE has %d heads and table rows for %d",
						o.Heads, max(1, o.TableHeads))
				}
				return undecided()
			}).withAdvice(func(p *place) string {
			if o, ok := p.op.(op.RoPE); ok {
				return fmt.Sprintf("repeat the table for each head: TableHeads %d", o.Heads)
			}
			return "fold the difference into the weights of q"
		}),

		launchRule("R-DMA-4", "HW", "A",
			"DMA does not transpose elements of fewer than 32 bits: the innermost stride is 1. A GEMM reads its "+
				"weight as [K, N], a GEMV as [N, K]", "stride must be 1", "",
			func(p *place) verdict {
				switch o := p.op.(type) {
				case op.MatMul:
					if p.kernel == GEMM {
						return failIf(o.TransB, "the GEMM's weight is stored as [N, K], the kernel streams rows of "+
							"[K, N]")
					}
					return failIf(!o.TransB, "the GEMV's weight is stored as [K, N], the kernel streams rows of [N, K]")
				case op.Permute:
					last := len(o.Perm) - 1
					return failIf(o.Perm[last] != last, "the permutation %v moves single elements", o.Perm)
				}
				return undecided()
			}).withAdvice(func(p *place) string {
			if p.kernel == moveKernel {
				return "permute on the host, or use a kernel that reads the other layout"
			}
			return fmt.Sprintf("bind the weight in the other layout, and set TransB to %v", p.kernel == GEMV)
		}),
	}
}

// checkTypes decides R-KER-3: the operand types of each kernel.
func checkTypes(p *place) verdict {
	if p.types == nil || p.kernel == moveKernel {
		return undecided()
	}
	for i, operand := range p.op.Operands() {
		want := []dtype.Type{dtype.BF16}
		switch {
		case p.kernel == castKernel && !operand.Write:
			want = []dtype.Type{dtype.F32}
		case p.kernel == GEMM && operand.Write && (p.m.Variant == "fused-cast" || p.m.Variant == "f32-out"):
			want = []dtype.Type{dtype.F32}
		case p.kernel == GEMM && operand.Write && p.m.Variant == "direct":
			want = []dtype.Type{dtype.BF16, dtype.F32}
		}
		if !slices.Contains(want, p.types[i]) {
			return failIf(true, "%s of %s is %v, the kernel%s has %v",
				operand.Name, p.op.Kind(), p.types[i], quoted(p.m.Variant), want[0])
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

// form lists the settings that a kernel's mapping must have.
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
		return form{variants: []string{"fused-cast", "drain", "direct", "f32-out"},
			tile: []string{"tile_m", "tile_k_l2", "tile_k_l1", "tile_n"}}
	case GEMV:
		return form{variants: []string{"gemv", "cascade"}, tile: []string{"tile_m", "m_input"}}
	case Attention:
		return form{variants: []string{"flash", "temporal"},
			tile:    []string{"lqp", "lkp", "num_q_tiles", "heads_per_unroll"},
			layouts: []string{"seq-first", "head-first"}}
	case Add:
		return form{variants: vector, tile: []string{"tile_n"}, optional: true}
	case SiLUMul, GELU:
		return form{variants: vector, tile: []string{"tile_n"}}
	case RoPE:
		return form{variants: vector, tile: []string{"rows_per_dma"}, optional: true}
	case castKernel:
		return form{variants: []string{"fused-cast"}, tile: []string{"tile_n"}, optional: true}
	}
	return form{variants: vector}
}

// mappingRules returns the rules on the form of a mapping.
func mappingRules() []rule {
	return []rule{
		launchRule("R-MAP-1", "API", "A",
			"the mapping states the kernel's variant, every number of its tile, its columns and rows of cores and, "+
				"for attention, its layout",
			"nothing to compile", "the cast after a fused-cast GEMM takes its tile and herd from the GEMM",
			checkMapping).
			withAdvice(func(p *place) string {
				f := forms(p.kernel)
				s := fmt.Sprintf("set Variant to one of %q", f.variants)
				if len(f.tile) > 0 {
					s += fmt.Sprintf(", Tile to [%s]", strings.Join(f.tile, ", "))
				}
				if p.kernel != castKernel {
					s += ", Herd to [columns, rows]"
				}
				if len(f.layouts) > 0 {
					s += fmt.Sprintf(", Layout to one of %q", f.layouts)
				}
				return s
			}),

		launchRule("R-MAP-2", "HW", "A", "the herd fits the array: at most 8 columns and 4 rows of cores",
			"herd does not place", "",
			func(p *place) verdict {
				cols, rows := p.herd()
				if !stated(cols, rows) {
					return undecided()
				}
				return firstFailure(atMost(cols, p.array.Columns, "columns", "the herd has %d columns", cols),
					atMost(rows, p.array.Rows, "rows", "the herd has %d rows of cores", rows))
			}),
	}
}

// maxTile and maxHerd bound the numbers of a mapping, far above any that fits, so that products in
// rules do not overflow.
const (
	maxTile = 1 << 20
	maxHerd = 1 << 10
)

func checkMapping(p *place) verdict {
	if p.kernel == moveKernel {
		return undecided()
	}
	for _, n := range p.m.Tile {
		if n <= 0 || n > maxTile {
			return failIf(true, "tile %v: want numbers from 1 to %d", p.m.Tile, maxTile)
		}
	}
	for _, n := range p.m.Herd {
		if n <= 0 || n > maxHerd {
			return failIf(true, "herd %v: want numbers from 1 to %d", p.m.Herd, maxHerd)
		}
	}
	if p.fusedMember() && p.m.Variant == "" && len(p.m.Tile)+len(p.m.Herd) == 0 {
		return holds() // computed by the kernel that the other launches of the group describe
	}
	f := forms(p.kernel)
	switch {
	case !slices.Contains(f.variants, p.m.Variant):
		return failIf(true, "%s has no variant %q", p.kernel, p.m.Variant)
	case len(p.m.Tile) != len(f.tile) && !(f.optional && len(p.m.Tile) == 0):
		return failIf(true, "tile of %s%s is %v, want [%s]", p.kernel, quoted(p.m.Variant), p.m.Tile,
			strings.Join(f.tile, ", "))
	case len(p.m.Herd) != 2 && !(p.kernel == castKernel && len(p.m.Herd) == 0):
		return failIf(true, "herd is %v, want [columns, rows]", p.m.Herd)
	case f.layouts != nil && !slices.Contains(f.layouts, p.m.Layout):
		return failIf(true, "attention has no layout %q", p.m.Layout)
	case p.m.Variant == "cascade" && p.m.Fused == "":
		return failIf(true, `"cascade" is a stage of a fused kernel, but Fused is empty`)
	}
	return layoutOfOp(p)
}

// layoutOfOp fails if the layout of an attention mapping is not that of the op's operands.
func layoutOfOp(p *place) verdict {
	o, ok := p.op.(op.Attention)
	if !ok {
		return holds()
	}
	return failIf(o.HeadFirst != (p.m.Layout == "head-first"),
		"the mapping's layout is %s, but the op's HeadFirst is %v", p.m.Layout, o.HeadFirst)
}
