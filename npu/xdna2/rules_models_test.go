package xdna2

import (
	"fmt"
	"slices"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// deployed is one of the nine published models.
type deployed struct {
	name                       string
	emb, heads, kv, hd, hidden int
	pad                        int    // padded width of Q, K, V, O and Down in prefill, 0 for none
	tiers                      string // GEMM variant of Q, KV, O, gate and up, down: F fused-cast, d drain, L direct
	attn                       string // "", "bias", "qk-norm"
	split                      string // of the feed-forward block: see deployments
	fused                      bool   // decode uses the fused block
	parts, rows                int    // LM head launches, rows of each
	input, decode, block       int    // launches: attention input in prefill and decode, first program after attention
}

var deployments = []deployed{
	{"llama32_1b", 2048, 32, 8, 64, 8192, 0, "FdFFF", "", "whole", true, 8, 16384, 7, 6, 12},
	{"smollm2_1_7b", 2048, 32, 32, 64, 8192, 0, "FFFFF", "", "whole", true, 8, 16384, 9, 6, 12},
	{"llama32_3b", 3072, 24, 8, 128, 8192, 0, "FFFFF", "", "whole", false, 8, 16384, 9, 6, 12},
	{"qwen25_0_5b", 896, 14, 2, 64, 4864, 1024, "dddLF", "bias", "down separate", false, 19, 8192, 9, 9, 6},
	{"qwen25_1_5b", 1536, 12, 2, 128, 8960, 0, "FdFLF", "bias", "gate and up together", false, 19, 8192, 10, 9, 4},
	{"qwen25_3b", 2048, 16, 2, 128, 11008, 0, "FdFLF", "bias", "all separate", false, 19, 8192, 10, 9, 4},
	{"qwen3_0_6b", 1024, 16, 8, 128, 3072, 0, "FdFFF", "qk-norm", "whole", true, 19, 8192, 9, 8, 12},
	{"qwen3_1_7b", 2048, 16, 8, 128, 6144, 0, "FFFFF", "qk-norm", "whole", true, 19, 8192, 11, 8, 12},
	{"qwen3_4b", 2560, 32, 8, 128, 9728, 0, "FFFFF", "qk-norm", "all separate", false, 19, 8192, 11, 8, 4},
}

// Every program of the nine published models fits and has the published number of launches. Tiles
// are those of the registry row of the same shape, or else of the nearest shape that fits.
func TestPublishedProgramsFit(t *testing.T) {
	for _, d := range deployments {
		for _, p := range d.programs(t) {
			if err := Check(p, NPU2()); err != nil {
				t.Errorf("%s: %v", d.name, err)
			}
			want := map[string]int{
				"input": d.input, "decode input": d.decode, "block": d.block, "o_gemv_ffn": 3, "lm_head": d.parts,
			}[p.Name]
			if got := physicalLaunches(p); want != 0 && got != want {
				t.Errorf("%s: %s has %d launches, published %d", d.name, p.Name, got, want)
			}
		}
	}
}

// linker builds a program and chooses its mappings.
type linker struct {
	*npu.Program
	t *testing.T
	n int // names generated so far
}

func (l *linker) name(kind string) string { l.n++; return fmt.Sprintf("%s%d", kind, l.n) }

func (l *linker) w(shape ...int) npu.Ref { return l.Const(l.name("w"), dtype.BF16, shape...) }
func (l *linker) x(shape ...int) npu.Ref { return l.In(l.name("x"), dtype.BF16, shape...) }
func (l *linker) y(shape ...int) npu.Ref { return l.Out(l.name("y"), dtype.BF16, shape...) }

// add launches an op with the registry's mapping.
func (l *linker) add(variant string, o op.Op, args ...npu.Ref) {
	l.Launch(l.name("l"), o, args...)
	if len(l.Launches) == 0 {
		l.t.Fatalf("%s: %v", l.Name, l.Err())
	}
	types := make([]dtype.Type, 0, len(args))
	for _, v := range l.Launches[len(l.Launches)-1].Args {
		types = append(types, l.Args[v.Arg].Type)
	}
	l.Map(registryMapping(l.t, o, types, variant))
}

// registryMapping returns the mapping of the nearest published row that fits. Small vector kernels
// have no rows; their mapping assigns each core an equal share.
func registryMapping(t *testing.T, o op.Op, types []dtype.Type, variant string) npu.Mapping {
	a := NPU2()
	if variant == "temporal" {
		return temporalMap(256, 32, 8, 1)
	}
	if _, ok := o.(op.Cast); ok {
		return npu.Mapping{Variant: "fused-cast", Herd: []int{8, 4}}
	}
	layout := ""
	if o, ok := o.(op.Attention); ok {
		layout = map[bool]string{true: "head-first", false: "seq-first"}[o.HeadFirst]
	}
	list, err := PublishedRegistry().Candidates(o, dtype.BF16, op.Size{})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range list {
		m := row.Mapping
		m.Layout = layout // both layouts are measured with the same tiles
		if m.Variant == variant && !slices.Contains(m.Tile, 0) && Fits(o, types, m, a) {
			return m
		}
	}
	_, s, err := ShapeOf(o, op.Size{})
	if err != nil {
		t.Fatal(err)
	}
	for cores := 8; cores >= 1; cores-- {
		for _, m := range []npu.Mapping{vecMap(0, cores, 1), vecMap(s.N/cores, cores, 1)} {
			if Fits(o, types, m, a) {
				return m
			}
		}
	}
	t.Fatalf("nothing fits %#v %q: %v", o, variant, CheckLaunch(o, types, vecMap(0, 1, 1), a))
	return npu.Mapping{}
}

// project multiplies by a weight with one of the three variants, into the first columns of dst.
func (l *linker) project(tier byte, a npu.Ref, m, k, n int, dst npu.Ref) {
	o := op.MatMul{M: m, K: k, N: n, TransB: m == 1}
	switch {
	case m == 1:
		l.add("gemv", o, a, l.w(n, k), dst)
	case tier == 'F':
		sums := l.Scratch(l.name("f"), dtype.F32, m, n)
		l.add("fused-cast", o, a, l.w(k, n), sums)
		l.add("fused-cast", op.Cast{Rows: m, Width: n}, sums, dst)
	case tier == 'd':
		l.add("drain", o, a, l.w(k, n), dst)
	default:
		l.add("direct", o, a, l.w(k, n), dst)
	}
}

func (d deployed) programs(t *testing.T) []*npu.Program {
	const S = 2048
	programs := []*npu.Program{
		d.attention(t, S), d.attentionInput("input", t, S), d.attentionInput("decode input", t, 1),
	}
	programs = append(programs, d.after(t, S)...)
	if d.fused {
		programs = append(programs, d.cascade(t))
	} else {
		for _, s := range [][2]int{{d.heads * d.hd, d.emb}, {d.emb, d.hidden}, {d.hidden, d.emb}} {
			l := &linker{Program: npu.NewProgram("gemv"), t: t}
			l.project(0, l.x(s[0]), 1, s[0], s[1], l.y(s[1]))
			programs = append(programs, l.Program)
		}
	}
	l := &linker{Program: npu.NewProgram("lm_head"), t: t}
	x := l.x(d.emb)
	for range d.parts {
		l.project(0, x, 1, d.emb, d.rows, l.y(d.rows))
	}
	return append(programs, l.Program)
}

// attentionInput returns norm, projections, bias or QK-norm, and rotation as one program.
func (d deployed) attentionInput(name string, t *testing.T, rows int) *npu.Program {
	l := &linker{Program: npu.NewProgram(name), t: t}
	normed := l.Scratch("normed", dtype.BF16, rows, d.emb)
	l.add("", op.RMSNorm{Rows: rows, Width: d.emb, Eps: 1e-5}, l.x(rows, d.emb), l.w(d.emb), normed)
	var projected []npu.Ref
	widths := []int{d.heads * d.hd, d.kv * d.hd, d.kv * d.hd}
	for i, n := range widths {
		wide := n
		if rows > 1 && d.pad > 0 {
			wide = d.pad
		}
		dst := l.Arg(npu.Out, l.name("q"), dtype.BF16, rows, wide)
		l.project(d.tiers[min(i, 1)], normed, rows, d.emb, wide, dst)
		if d.attn == "bias" {
			if wide > n {
				dst = dst.Cols(0, n)
			}
			biased := l.y(rows, n)
			l.add("", op.Add{Rows: rows, Width: n, Broadcast: true}, dst, l.w(n), biased)
			dst = biased
		}
		projected = append(projected, dst)
	}
	for i, heads := range []int{d.heads, d.kv} {
		x := projected[i]
		if d.attn == "qk-norm" {
			y := l.y(rows, heads*d.hd)
			l.add("", op.RMSNorm{Rows: rows, Width: d.hd, Heads: heads, Eps: 1e-6}, x, l.w(d.hd), y)
			x = y
		}
		table := l.w(rows*heads*d.hd).As(rows, heads*d.hd)
		l.add("", op.RoPE{Rows: rows, Heads: heads, HeadDim: d.hd, TableHeads: heads}, x, table, l.y(rows, heads*d.hd))
	}
	return l.Program
}

func (d deployed) attention(t *testing.T, rows int) *npu.Program {
	l := &linker{Program: npu.NewProgram("flash_attn"), t: t}
	o := op.Attention{Rows: rows, Heads: d.heads, KVHeads: d.kv, HeadDim: d.hd}
	variant := "flash"
	switch {
	case d.name == "llama32_3b":
		variant = "temporal"
	case d.hd == 128:
		o.HeadFirst, o.Split = true, 2
	}
	var args []npu.Ref
	for _, operand := range o.Operands() {
		if operand.Write {
			args = append(args, l.y(operand.Shape...))
		} else {
			args = append(args, l.x(operand.Shape...))
		}
	}
	l.add(variant, o, args...)
	return l.Program
}

// after returns the programs from attention's output to the end of the layer.
func (d deployed) after(t *testing.T, rows int) []*npu.Program {
	wide := max(d.emb, d.pad)
	var programs []*npu.Program
	begin := func(name string) *linker {
		l := &linker{Program: npu.NewProgram(name), t: t}
		programs = append(programs, l.Program)
		return l
	}
	emb := func(r npu.Ref) npu.Ref {
		if wide > d.emb {
			return r.Cols(0, d.emb)
		}
		return r
	}
	l := begin("block")
	proj, sum, normed := l.y(rows, wide), l.y(rows, d.emb), l.y(rows, d.emb)
	l.project(d.tiers[2], l.x(rows, d.heads*d.hd), rows, d.heads*d.hd, wide, proj)
	l.add("", op.Add{Rows: rows, Width: d.emb}, emb(proj), l.x(rows, d.emb), sum)
	l.add("", op.RMSNorm{Rows: rows, Width: d.emb, Eps: 1e-5}, sum, l.w(d.emb), normed)
	separate := d.split == "all separate" || d.split == "gate and up together"
	if separate {
		l = begin("gate")
		normed = l.x(rows, d.emb)
	}
	gate := l.y(rows, d.hidden)
	l.project(d.tiers[3], normed, rows, d.emb, d.hidden, gate)
	if d.split == "all separate" {
		l = begin("up")
		normed = l.x(rows, d.emb)
	}
	up := l.y(rows, d.hidden)
	l.project(d.tiers[3], normed, rows, d.emb, d.hidden, up)
	if separate {
		l = begin("swiglu")
		gate, up = l.x(rows, d.hidden), l.x(rows, d.hidden)
	}
	act := l.y(rows, d.hidden)
	l.add("", op.SiLUMul{Rows: rows, Width: d.hidden}, gate, up, act)
	if d.split != "whole" {
		l = begin("down_add")
		act, sum = l.x(rows, d.hidden), l.x(rows, d.emb)
	}
	down := l.y(rows, wide)
	l.project(d.tiers[4], act, rows, d.hidden, wide, down)
	l.add("", op.Add{Rows: rows, Width: d.emb}, emb(down), sum, l.y(rows*d.emb).As(rows, d.emb))
	return programs
}

// cascade returns the fused decode block: three kernels over single rows.
func (d deployed) cascade(t *testing.T) *npu.Program {
	l := &linker{Program: npu.NewProgram("o_gemv_ffn"), t: t}
	stage := func(name string, tm, mi int, o op.Op, args ...npu.Ref) {
		l.Launch(l.name(name), o, args...)
		m := npu.Mapping{Fused: "cascade." + name}
		if tm > 0 {
			m.Variant, m.Tile, m.Herd = "cascade", []int{tm, mi}, []int{8, 1}
		}
		l.Map(m)
	}
	q := d.heads * d.hd
	proj, sum, normed, down := l.y(d.emb), l.y(d.emb), l.y(d.emb), l.y(d.emb)
	gate, up, act := l.y(d.hidden), l.y(d.hidden), l.y(d.hidden)
	both := l.w(2*d.hidden, d.emb)
	stage("o", 8, 8, op.MatMul{M: 1, K: q, N: d.emb, TransB: true}, l.x(q), l.w(d.emb, q), proj)
	stage("o", 0, 0, op.Add{Rows: 1, Width: d.emb}, proj, l.x(d.emb), sum)
	stage("swiglu", 0, 0, op.RMSNorm{Rows: 1, Width: d.emb, Eps: 1e-5}, sum, l.w(d.emb), normed)
	stage("swiglu", 64, 2, op.MatMul{M: 1, K: d.emb, N: d.hidden, TransB: true}, normed, both.Every(0, 2), gate)
	stage("swiglu", 64, 2, op.MatMul{M: 1, K: d.emb, N: d.hidden, TransB: true}, normed, both.Every(1, 2), up)
	stage("swiglu", 0, 0, op.SiLUMul{Rows: 1, Width: d.hidden}, gate, up, act)
	stage("down", 2, 2, op.MatMul{M: 1, K: d.hidden, N: d.emb, TransB: true}, act, l.w(d.emb, d.hidden), down)
	stage("down", 0, 0, op.Add{Rows: 1, Width: d.emb}, down, sum, l.y(d.emb))
	return l.Program
}

// physicalLaunches counts the launches of a program, those of a fused kernel as one.
func physicalLaunches(p *npu.Program) (n int) {
	for i, l := range p.Launches {
		if i == 0 || l.Mapping.Fused == "" || p.Launches[i-1].Mapping.Fused != l.Mapping.Fused {
			n++
		}
	}
	return n
}
