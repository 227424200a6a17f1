package xdna2

import (
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// linked is a program with its launches grouped: the launches of a fused kernel are one physical
// launch.
type linked struct {
	array  *Array
	p      *npu.Program
	places []*place // one per launch
	groups [][]int  // launches of each physical launch
}

// link links a program that passed npu.Program.Validate.
func link(p *npu.Program, a *Array) (*linked, error) {
	l := &linked{array: a, p: p}
	for i, launch := range p.Launches {
		types := make([]dtype.Type, len(launch.Args))
		for j, v := range launch.Args {
			types[j] = p.Args[v.Arg].Type
		}
		pl, err := newPlace(a, launch.Op, types, launch.Mapping)
		if err != nil {
			return nil, fmt.Errorf("launch %q: %w", launch.Name, err)
		}
		pl.views = launch.Args
		for _, v := range launch.Args {
			shape, stride := p.Shape(v)
			pl.shapes, pl.stride = append(pl.shapes, shape), append(pl.stride, stride)
		}
		l.places = append(l.places, pl)
		last := len(l.groups) - 1
		if name := launch.Mapping.Fused; i > 0 && name != "" && p.Launches[i-1].Mapping.Fused == name {
			l.groups[last] = append(l.groups[last], i)
			continue
		}
		l.groups = append(l.groups, []int{i})
	}
	for _, g := range l.groups {
		if s := l.fused(g); s != alone {
			for _, i := range g {
				l.places[i].stage = s
			}
		}
	}
	return l, nil
}

// fused returns the fused kernel that a group of launches forms.
func (l *linked) fused(group []int) stage {
	if l.p.Launches[group[0]].Mapping.Fused == "" {
		return alone
	}
	var kernels []Kernel
	for _, i := range group {
		kernels = append(kernels, l.places[i].kernel)
	}
	switch {
	case slices.Equal(kernels, []Kernel{GEMV, Add}):
		return gemvAdd
	case slices.Equal(kernels, []Kernel{RMSNorm, GEMV, GEMV, SiLUMul}):
		return swiglu
	}
	return unknownFuse
}

// programRules returns the rules on launches merged into one ELF and on programs that run in turns.
func programRules() []rule {
	return []rule{
		{Rule: Rule{"R-ELF-6", "RT", "A", "at most 8 programs run in turns, one per hardware context that stays open",
			"contexts are reopened at every turn, 35 ms each; if none is closed, create-context error -22", true,
			"CheckContexts decides it for a set of programs. More programs still run, and the clock includes the " +
				"cost. 8: notes report failures from about 10 on, deployments had 13, the driver has 16 to 32 for " +
				"all processes",
			mlirAIR}},

		programRule("R-ELF-1", "MEAS", "A",
			"an ELF has at most as many launches as the largest published: 12 with several kernels, 19 with one",
			"compile time, failing allocation",
			"the tested range, not a limit: more may work", func(l *linked) verdict {
				most, mixed := l.array.Launches, false
				for _, p := range l.places {
					mixed = mixed || p.kernel != l.places[0].kernel
				}
				if mixed {
					most = l.array.MixedLaunches
				}
				return atMost(len(l.groups), most, "launches", "the program")
			}),

		programRule("R-ELF-2", "MEAS", "B", "an ELF with attention has at most 8 launches",
			"compiles for over 10 minutes, then overflows the compiler's stack", "",
			func(l *linked) verdict {
				i := l.index(Attention)
				if i < 0 {
					return undecided()
				}
				v := atMost(len(l.groups), l.array.AttentionProgram-1, "launches",
					"the program, with attention among them")
				v.launch = i
				return v
			}),

		programRule("R-ELF-3", "CC", "A", "causal attention has its own program",
			"unknown: published decoder models never merge it", "",
			func(l *linked) verdict {
				i := l.index(Attention)
				if i < 0 {
					return undecided()
				}
				v := atMost(len(l.groups), 1, "launches", "attention is merged with others: the program")
				v.launch = i
				return v
			}),

		programRule("R-ELF-16", "API", "A",
			"launches that share Fused form an existing kernel: MatMul and Add, or RMSNorm, two MatMuls and "+
				"SiLUMul, of one row, with MatMuls mapped as \"cascade\"", "nothing to compile", "",
			func(l *linked) verdict {
				v := undecided()
				for _, g := range l.groups {
					s := l.places[g[0]].stage
					if s == alone {
						continue
					}
					v = holds()
					var kinds []string
					bad := s == unknownFuse
					for _, i := range g {
						kinds = append(kinds, l.p.Launches[i].Op.Kind())
						bad = bad || l.places[i].kernel == GEMV && l.places[i].m.Variant != "cascade"
					}
					if bad {
						v = failIf(true, "%s as %q", strings.Join(kinds, ", "), l.p.Launches[g[0]].Mapping.Fused)
						v.launch = g[0]
						return v
					}
				}
				return v
			}),

		programRule("R-BD-4", "MEAS", "A",
			"an ELF with more than three GEMMs has only dimensions that are multiples of 1024: others take more "+
				"descriptors",
			"buffer descriptors exhausted", "three GEMMs with 896, 1536 and 4864 run; four with 1536 and 8960 do not",
			func(l *linked) verdict {
				n, odd := 0, -1
				for i, p := range l.places {
					if p.kernel != GEMM {
						continue
					}
					n++
					if p.shape.K%1024 != 0 || p.shape.N%1024 != 0 {
						odd = i
					}
				}
				if n == 0 || odd < 0 {
					return holdsIf(n > 0)
				}
				v := atMost(n, 3, "GEMMs", "one of them is %d x %d, not multiples of 1024: the program",
					l.places[odd].shape.K, l.places[odd].shape.N)
				v.launch = odd
				return v
			}),

		programRule("R-DMA-7", "HW", "A", "an argument is below 4 GiB: descriptors address a buffer with 32 bits",
			"no error, but reads wrap around to its beginning", "",
			func(l *linked) verdict {
				v := undecided()
				one := op.Size{Rows: 1, Picks: 1, Capacity: 1}
				for _, a := range l.p.Args {
					v = atMost(a.Type.Bytes(one.Elements(a.Shape)), l.array.BufferReach, "bytes", "argument %q", a.Name)
					if v.failed {
						return v
					}
				}
				return v
			}),

		programRule("R-DMA-1/view", "HW", "A", "the row stride of a view is at most 2^20 words of 32 bits",
			"aie.dma_bd stride out of [1:1048576]", "R-DMA-1 for the rows of a view",
			func(l *linked) verdict {
				v := undecided()
				for i, p := range l.places {
					for j, view := range p.views {
						if view.Stride == 0 || len(p.shapes[j]) < 2 || p.shapes[j][0] < 2 {
							continue
						}
						v = atMost(divUp(l.p.Args[view.Arg].Type.Bytes(view.Stride), 4), l.array.MaxStride, "words",
							"row stride of argument %q is %d elements", l.p.Args[view.Arg].Name, view.Stride)
						v.launch = i
						if v.failed {
							return v
						}
					}
				}
				return v
			}),

		programRule("S-3", "MEAS", "C", "a drain GEMM that takes several blocks along M is not alone in its ELF",
			"the first run is correct; later ones leave half of the row blocks stale",
			"observed with drain; Qwen2.5-3B is deployed with single direct GEMMs in an ELF", func(l *linked) verdict {
				if len(l.groups) != 1 || l.places[0].kernel != GEMM || l.places[0].m.Variant != "drain" {
					return undecided()
				}
				p := l.places[0]
				cols, _ := p.herd()
				block := p.tile(0) * cols
				if !stated(block) {
					return undecided()
				}
				v := atMost(divUp(p.shape.M, block), 1, "blocks",
					"the program's only launch is a drain GEMM of M %d in blocks of %d", p.shape.M, block)
				v.launch = 0
				return v
			}),

		programRule("S-8", "MEAS", "B", "a fused-cast GEMM whose K is not a multiple of 512 is the first launch of "+
			"its ELF", "NaN",
			"reported for down projections; drain and direct GEMMs with such a K are deployed after others, so the "+
				"rule applies to fused-cast only",
			func(l *linked) verdict {
				v := undecided()
				for i, p := range l.places {
					if p.kernel != GEMM || p.m.Variant != "fused-cast" {
						continue
					}
					v = failIf(i > 0 && p.shape.K%512 != 0,
						"K is %d, not a multiple of 512, and the GEMM is launch %d of its program", p.shape.K, i)
					v.launch = i
					if v.failed {
						return v
					}
				}
				return v
			}),
	}
}

// index returns the index of the first launch of a kernel, or -1.
func (l *linked) index(k Kernel) int {
	return slices.IndexFunc(l.places, func(p *place) bool { return p.kernel == k })
}

// programAdvice returns advice for a program that violates a rule.
func programAdvice(id string, l *linked, v verdict) string {
	switch id {
	case "R-ELF-1", "R-ELF-2":
		return sprintSplit(len(l.groups), int(v.available))
	case "R-ELF-3":
		return "move attention into its own program, and bind the adjacent programs' arguments to its values"
	case "R-ELF-16":
		return "fuse only these sequences, or leave Fused empty"
	case "R-BD-4":
		return "split the program after its third GEMM, or pad the dimensions to multiples of 1024"
	case "R-DMA-7":
		return "split the argument, for example by groups of layers"
	case "R-DMA-1/view":
		return "copy the part into its own argument"
	case "S-3":
		cols, _ := l.places[0].herd()
		return sprintBlocks(l.places[0].tile(0) * cols)
	case "S-8":
		return "make this the first launch of the program, or move it into its own program"
	}
	return "split the program"
}
