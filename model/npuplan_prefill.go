package model

import (
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// npuWidths are the widths of a layer's activations in prefill, with what is added so that tiles divide.
//
// A matrix product on the whole array writes columns in multiples of 4 rows of cores times a tile of at least 64: 256. Where a launch
// behind it can leave columns out again, as a bias or a residual addition does, a width is rounded up to the next 1024. Queries, keys and
// values of models without a bias go to attention as they are: for them whole heads are added, as many key heads as are needed, each with
// its group of query heads, so that the true heads keep their partners. Added weights are zeros; so is what added heads attend to.
type npuWidths struct {
	rows           int
	heads, kvHeads int // of attention
	q, kv          int // heads side by side
	qOut, kvOut    int // of the products
	hidden         int // of the products that write the residual stream
	ffn            int
}

// tileWidth is the number of columns that products write in multiples of, paddedWidth what others are rounded up to.
const (
	tileWidth   = 256
	paddedWidth = 1024
)

func roundWidth(n int) int {
	if n%tileWidth == 0 {
		return n
	}
	return (n + paddedWidth - 1) / paddedWidth * paddedWidth
}

func (b *npuPlanner) widths(rows int) npuWidths {
	c := b.cfg
	w := npuWidths{rows: rows, heads: c.Heads, kvHeads: c.KVHeads, hidden: roundWidth(c.Hidden), ffn: c.FFN}
	if !c.QKVBias {
		group := c.Heads / c.KVHeads
		for n := c.KVHeads; n < c.KVHeads+tileWidth; n++ {
			if n*c.HeadDim%tileWidth == 0 {
				w.heads, w.kvHeads = n*group, n
				break
			}
		}
	}
	w.q, w.kv = w.heads*c.HeadDim, w.kvHeads*c.HeadDim
	w.qOut, w.kvOut = roundWidth(w.q), roundWidth(w.kv)
	return w
}

// fewProducts is the size M*K*N below which a product that drains BF16 from the cores is the faster one, above it one that writes FP32
// and casts it in a second launch; the rule of the published artefacts.
const fewProducts = 4_000_000_000

// gemmVariant chooses among the three kinds of matrix products.
//
// A drain alone in its program writes stale blocks from the second run on (rule S-3), so that there one of the others takes its place.
// The fused cast needs columns in multiples of 512, tiles of 128 on four rows of cores: with narrower tiles it overflows a core's memory
// in deployed shapes. What is left is the direct product, which keeps its sums in BF16 and is less exact.
func gemmVariant(m, k, n int, alone bool) string {
	switch {
	case m*k*n < fewProducts && !alone:
		return "drain"
	case n%512 == 0:
		return "fused-cast"
	}
	return "direct"
}

// product is a matrix product with its cast, if it has one.
func (b *npuPlanner) product(name string, x npuOperand, w, y *npuTensor, k, n int, alone bool) npuUnit {
	return b.variantProduct(name, x, w, y, k, n, gemmVariant(y.shape[0], k, n, alone))
}

func (b *npuPlanner) variantProduct(name string, x npuOperand, w, y *npuTensor, k, n int, variant string) npuUnit {
	m := y.shape[0]
	o := op.MatMul{M: m, K: k, N: n}
	if variant != "fused-cast" {
		return npuUnit{name, []npuLaunch{{name: name, op: o, args: []npuOperand{x, w.whole(), y.whole()},
			mapping: b.mapping(name, o, variant, dtype.BF16, dtype.BF16, dtype.BF16)}}}
	}
	sums := &npuTensor{name: y.name + ".f32", typ: dtype.F32, shape: []int{m, n}, late: true}
	mapping := b.mapping(name, o, variant, dtype.BF16, dtype.BF16, dtype.F32)
	return npuUnit{name, []npuLaunch{
		{name: name + ".f32", op: o, args: []npuOperand{x, w.whole(), sums.whole()}, mapping: mapping},
		{name: name, op: op.Cast{Rows: m, Width: n}, args: []npuOperand{sums.whole(), y.whole()}, mapping: castMapping(mapping)},
	}}
}

// simple is a unit of one launch in BF16.
func (b *npuPlanner) simple(name, stage string, o op.Op, args ...npuOperand) npuUnit {
	types := make([]dtype.Type, len(args))
	for i, a := range args {
		types[i] = a.typ
	}
	return npuUnit{name, []npuLaunch{{name: name, op: o, args: args, stage: stage, mapping: b.mapping(name, o, "", types...)}}}
}

// prefill adds the pass of so many rows.
func (b *npuPlanner) prefill(rows int) {
	c, w := b.cfg, b.widths(rows)
	p := npuPrefill{npuPlanner: b, npuWidths: w, prefix: fmt.Sprintf("p%d.", rows)}
	if rows != b.longest {
		p.suffix = fmt.Sprintf(".%d", rows)
	}
	p.attention()
	if b.err != nil {
		return
	}
	pass := Pass{Rows: rows}
	b.embed(&pass.Steps, p.value("x", "x.0", c.Hidden))
	for l := range c.Layers {
		b.steps(&pass.Steps, fmt.Sprintf("layer.%d", l), p.layer(l))
	}
	b.head(&pass, p.value("x", fmt.Sprintf("x.%d", c.Layers%2), c.Hidden), p.prefix, p.suffix)
	b.plan.Prefill = append(b.plan.Prefill, pass)
}

// npuPrefill makes the layers of a prefill pass.
type npuPrefill struct {
	*npuPlanner
	npuWidths
	prefix string // of values
	suffix string // of programs

	core    op.Attention
	onArray npu.Mapping
}

// value is an activation of all rows.
func (p *npuPrefill) value(name, value string, width int) *npuTensor {
	return npuValue(name, p.prefix+value, p.rows, width)
}

// attention chooses the kernel: one that reads and writes what the neighbouring programs do where there is one, which is for heads of 64,
// and for heads of 128 in groups that the temporal kernel can map; else one that wants head after head, with values and result in parts
// of 64 columns.
func (p *npuPrefill) attention() {
	c := p.cfg
	o := op.Attention{Rows: p.rows, Heads: p.heads, KVHeads: p.kvHeads, HeadDim: c.HeadDim}
	bf16 := []dtype.Type{dtype.BF16, dtype.BF16, dtype.BF16, dtype.BF16}
	p.core = o
	if p.knobs.Attention == HostAttention {
		return
	}
	if p.knobs.Layout == ProgramOrder {
		for _, variant := range []string{"flash", "temporal"} {
			if m, err := p.findMapping(o, variant, bf16); err == nil {
				p.onArray = m
				return
			}
		}
	}
	o.HeadFirst = true
	if c.HeadDim > 64 && c.HeadDim%64 == 0 {
		o.Split = c.HeadDim / 64
	}
	p.core, p.onArray = o, p.mapping("attn.core", o, "flash", bf16...)
}

// layer is the blocks of one layer, in the order of their dispatch.
func (p *npuPrefill) layer(l int) []*npuBlock {
	c := p.cfg
	x, y := p.value("x", fmt.Sprintf("x.%d", l%2), c.Hidden), p.value("y", fmt.Sprintf("x.%d", 1-l%2), c.Hidden)
	y.shape, y.leaves = []int{p.rows * c.Hidden}, true // flat, as artefacts have it
	q, k, v := p.value("q_rope", "q_rope", p.q), p.value("k_rope", "k_rope", p.kv), p.value(npuValueName(c), npuValueName(c), p.kv)
	attn := p.value("attn", "attn", p.q)

	blocks := p.group(p.input(l, x, q, k, v), p.knobs.MergePre, []npuCut{{npuInputName(c, false), "", 0}}, p.suffixOf(p.knobs.MergePre))
	args := []npuOperand{q.whole(), k.whole(), v.whole(), attn.whole()}
	switch {
	case p.knobs.Attention == HostAttention:
		core := p.core
		core.Rows = op.Rows
		blocks = append(blocks, &npuBlock{program: "host_attention" + p.suffix, on: OnHost,
			launches: []npuLaunch{{name: "attn.core", op: core, args: args}}})
	case p.core.HeadFirst:
		blocks = append(blocks, p.headFirst(q, k, v, attn)...)
	default:
		blocks = append(blocks, p.flash(args))
	}
	blocks = append(blocks, p.output(l, attn, x, y)...)
	kcache, vcache := npuCache(c.KVHeads, c.HeadDim, fmt.Sprintf("k.%d", l)), npuCache(c.KVHeads, c.HeadDim, fmt.Sprintf("v.%d", l))
	write := op.KVWrite{Rows: op.Rows, KVHeads: c.KVHeads, HeadDim: c.HeadDim}
	return append(blocks, &npuBlock{program: "kv_write" + p.suffix, on: OnHost, launches: []npuLaunch{
		{name: "attn.k_write", op: write, args: []npuOperand{k.cols(c.KVHeads * c.HeadDim), kcache.whole()}},
		{name: "attn.v_write", op: write, args: []npuOperand{v.cols(c.KVHeads * c.HeadDim), vcache.whole()}},
	}})
}

// suffixOf is what distinguishes a pass's programs from those of other passes: programs of one op always have their number of rows.
func (p *npuPrefill) suffixOf(merged bool) string {
	if merged {
		return p.suffix
	}
	return fmt.Sprintf(".%d", p.rows)
}

// flash is the dispatch of attention on the array.
func (p *npuPrefill) flash(args []npuOperand) *npuBlock {
	name := "attn.core"
	if p.core.HeadFirst {
		name = "attn.core_heads"
	}
	return &npuBlock{program: "flash_attn" + p.suffix, instance: "attention_bf16", on: OnDevice,
		launches: []npuLaunch{{name: name, op: p.core, args: args, mapping: p.onArray}}}
}

// headFirst is attention between permutations on the host. They move all rows, true or not, for the kernel's layout depends on their
// number.
func (p *npuPrefill) headFirst(q, k, v, attn *npuTensor) []*npuBlock {
	hd, split := p.cfg.HeadDim, max(1, p.core.Split)
	var before []npuLaunch
	var args []npuOperand
	for _, t := range []struct {
		name         string
		x            *npuTensor
		heads, width int
	}{{"q_heads", q, p.heads, hd}, {"k_heads", k, p.kvHeads, hd}, {"v_heads", v, p.kvHeads * split, hd / split}} {
		y := npuValue(t.name, p.prefix+t.name, t.heads, p.rows, t.width)
		before = append(before, npuLaunch{name: "attn." + t.name, op: op.Permute{Shape: []int{p.rows, t.heads, t.width}, Perm: []int{1, 0, 2}},
			args: []npuOperand{t.x.as(p.rows, t.heads, t.width), y.whole()}, stage: "heads"})
		args = append(args, y.whole())
	}
	y := npuValue("attn_heads", p.prefix+"attn_heads", p.heads*split, p.rows, hd/split)
	after := []npuLaunch{{name: "attn.core", op: op.Permute{Shape: y.shape, Perm: []int{1, 0, 2}},
		args: []npuOperand{y.whole(), attn.as(p.rows, p.heads*split, hd/split)}}}
	return []*npuBlock{
		{program: "heads_first" + p.suffix, on: OnHost, launches: before, allRows: true},
		p.flash(append(args, y.whole())),
		{program: "rows_first" + p.suffix, on: OnHost, launches: after, allRows: true},
	}
}

// input is the units before attention: norm, products, and what turns them into rotated queries and keys.
func (p *npuPrefill) input(l int, x, qRope, kRope, v *npuTensor) []npuUnit {
	c, alone := p.cfg, !p.knobs.MergePre
	t := npuLayerTensors(l)
	h := p.value("attn_norm", "attn_norm", c.Hidden)
	units := []npuUnit{p.simple("attn.norm", "", op.RMSNorm{Rows: p.rows, Width: c.Hidden, Eps: c.NormEps},
		x.whole(), npuWeight("attn_norm.weight", t("input_layernorm.weight"), c.Hidden).whole(), h.whole())}

	heads := []npuHeads{{"q", p.heads, p.q, p.qOut, qRope}, {"k", p.kvHeads, p.kv, p.kvOut, kRope}, {"v", p.kvHeads, p.kv, p.kvOut, v}}
	results := make([]npuOperand, len(heads))
	for i, a := range heads {
		y := p.value(a.name, a.name, a.out)
		if a.name == "v" && !c.QKVBias {
			y = v
		}
		layout := layoutTranspose(t("self_attn." + a.name + "_proj.weight"))
		if a.stored(c) != a.out {
			layout = layoutPad(layout, c.Hidden, a.out)
		}
		units = append(units, p.product("attn."+a.name, h.whole(), npuWeight(a.name+".weight", layout, c.Hidden, a.out), y, c.Hidden, a.out, alone))
		results[i] = y.cols(a.width)
	}
	if c.QKVBias {
		for i, a := range heads {
			y := p.value(a.name+"_bias", a.name+"_bias", a.width)
			if a.name == "v" {
				y = v
			}
			bias := npuWeight(a.name+".bias", t("self_attn."+a.name+"_proj.bias"), a.width)
			units = append(units, p.simple("attn."+a.name+"_bias", "bias", op.Add{Rows: p.rows, Width: a.width, Broadcast: true},
				results[i], bias.whole(), y.whole()))
			results[i] = y.whole()
		}
	}
	if c.QKNorm {
		for i, a := range heads[:2] {
			y := p.value(a.name+"_norm", a.name+"_norm", a.width)
			weight := npuWeight(a.name+"_norm.weight", t("self_attn."+a.name+"_norm.weight"), c.HeadDim)
			units = append(units, p.simple("attn."+a.name+"_norm", "norm", op.RMSNorm{Rows: p.rows, Width: c.HeadDim, Heads: a.heads, Eps: c.NormEps},
				results[i], weight.whole(), y.whole()))
			results[i] = y.whole()
		}
	}
	for i, a := range heads[:2] {
		// Flat in the artefact; one row for each position, repeated for each head.
		table := npuWeight("rope_"+a.name, layoutRepeat(layoutRows(npu.T(TensorRoPE), 0, p.rows), a.heads), p.rows*a.width)
		units = append(units, p.simple("attn."+a.name+"_rope", "rope", op.RoPE{Rows: p.rows, Heads: a.heads, HeadDim: c.HeadDim, TableHeads: a.heads},
			results[i], table.as(p.rows, a.width), a.result.whole()))
	}
	return units
}

// npuHeads is one of q, k and v.
type npuHeads struct {
	name       string
	heads      int
	width, out int // of the heads side by side, of the product
	result     *npuTensor
}

// stored is the width in the checkpoint.
func (a npuHeads) stored(c *checkpoint.Config) int {
	if a.name == "q" {
		return c.Heads * c.HeadDim
	}
	return c.KVHeads * c.HeadDim
}

// npuValueName is the argument's name of the values that attention reads: the last launch that computes them names them.
func npuValueName(c *checkpoint.Config) string {
	if c.QKVBias {
		return "v_bias"
	}
	return "v"
}

// npuLayerTensors names the tensors of a layer.
func npuLayerTensors(l int) func(string) npu.Layout {
	return func(name string) npu.Layout { return npu.T(fmt.Sprintf("model.layers.%d.%s", l, name)) }
}

// npuInputName is the name of the published program with the launches before attention.
func npuInputName(c *checkpoint.Config, decode bool) string {
	name := "rms_qkv"
	if c.QKVBias {
		name += "_bias"
	}
	if c.QKNorm {
		name += "_qknorm"
	}
	switch {
	case name == "rms_qkv" && decode:
		return "rms_gemv_rope"
	case name == "rms_qkv":
		return "rms_gemms_rope"
	case decode:
		return name + "_rope_gemv"
	}
	return name + "_rope"
}

// output is the dispatches behind attention: projection and residual, norm, the gated feed-forward block, residual.
func (p *npuPrefill) output(l int, attn, x, y *npuTensor) []*npuBlock {
	c, t := p.cfg, npuLayerTensors(l)
	cuts := p.outputCuts()
	alone := func(unit int) bool {
		return !p.knobs.MergePost || slices.ContainsFunc(cuts, func(a npuCut) bool { return a.from == unit }) &&
			slices.ContainsFunc(cuts, func(a npuCut) bool { return a.from == unit+1 })
	}
	weight := func(name string, rows, cols, paddedRows, paddedCols int) *npuTensor {
		layout := layoutTranspose(t(name))
		if rows != paddedRows || cols != paddedCols {
			layout = layoutPad(layout, paddedRows, paddedCols)
		}
		short := strings.TrimSuffix(name[strings.Index(name, ".")+1:], "_proj.weight")
		return npuWeight(short+".weight", layout, paddedRows, paddedCols)
	}
	o, sum, h := p.value("o", "o", p.hidden), p.value("sum", "sum", c.Hidden), p.value("ffn_norm", "ffn_norm", c.Hidden)
	gate, up, act := p.value("gate", "gate", p.ffn), p.value("up", "up", p.ffn), p.value("act", "act", p.ffn)
	down := p.value("down", "down", p.hidden)
	add := op.Add{Rows: p.rows, Width: c.Hidden}
	units := []npuUnit{
		p.product("attn.o", attn.whole(), weight("self_attn.o_proj.weight", c.Heads*c.HeadDim, c.Hidden, p.q, p.hidden), o, p.q, p.hidden, alone(0)),
		p.simple("attn.residual", "", add, o.cols(c.Hidden), x.whole(), sum.whole()),
		p.simple("ffn.norm", "", op.RMSNorm{Rows: p.rows, Width: c.Hidden, Eps: c.NormEps},
			sum.whole(), npuWeight("ffn_norm.weight", t("post_attention_layernorm.weight"), c.Hidden).whole(), h.whole()),
		p.product("ffn.gate", h.whole(), weight("mlp.gate_proj.weight", c.Hidden, c.FFN, c.Hidden, p.ffn), gate, c.Hidden, p.ffn, alone(3)),
		p.product("ffn.up", h.whole(), weight("mlp.up_proj.weight", c.Hidden, c.FFN, c.Hidden, p.ffn), up, c.Hidden, p.ffn, alone(4)),
		p.simple("ffn.act", "", op.SiLUMul{Rows: p.rows, Width: p.ffn}, gate.whole(), up.whole(), act.whole()),
		p.product("ffn.down", act.whole(), weight("mlp.down_proj.weight", c.FFN, c.Hidden, p.ffn, p.hidden), down, p.ffn, p.hidden, alone(6)),
		p.simple("ffn.residual", "", add, down.cols(c.Hidden), sum.whole(), y.as(p.rows, c.Hidden)),
	}
	return p.group(units, p.knobs.MergePost, cuts, p.suffixOf(p.knobs.MergePost))
}

// Limits of what is merged behind attention.
const (
	wholeWidth     = 1024 // four products share a program when all widths are multiples of it (rule R-BD-4)
	activationTile = 5120 // widest row that the gate's kernel takes as one tile (rule R-L1-3)

	// panelsTogether bounds the panels of weights that gate and up read in one program. It is ours, drawn between the published programs:
	// with 840 the two are one program (Qwen2.5-1.5B), with 1376 and 1520 two (Qwen2.5-3B, Qwen3-4B). Each panel takes a buffer
	// descriptor.
	panelsTogether = 1024
)

// outputCuts says which of the eight units behind attention (o, residual, norm, gate, up, act, down, residual) begin a program.
//
// Widths that are multiples of 1024 let all of them be one. Others are cut into more buffer descriptors: the down product, whose K then
// is odd too, must be the first launch of its program (rule S-8), and more than three products do not fit one; wide ones are cut further.
func (p *npuPrefill) outputCuts() []npuCut {
	switch {
	case p.q%wholeWidth == 0 && p.hidden == p.cfg.Hidden && p.hidden%wholeWidth == 0 && p.ffn%wholeWidth == 0:
		if p.cfg.QKNorm {
			return []npuCut{{"o_ffn_qwen", "", 0}}
		}
		return []npuCut{{"o_ffn", "", 0}}
	case p.ffn <= activationTile:
		return []npuCut{{"o_ffn_head", "", 0}, {"down_add", "", 6}}
	}
	cuts := []npuCut{{"o_res_norm", "", 0}, {"gate_up", "", 3}}
	if p.gatePanels() > panelsTogether {
		cuts = []npuCut{{"o_res_norm", "", 0}, {"gate", "", 3}, {"up", "", 4}}
	}
	return append(cuts, npuCut{"swiglu", "silu_and_mul_2d", 5}, npuCut{"down_add", "", 6})
}

// gatePanels is the number of panels of the weights that gate and up read together.
func (p *npuPrefill) gatePanels() int {
	o := op.MatMul{M: p.rows, K: p.cfg.Hidden, N: p.ffn}
	variant := gemmVariant(o.M, o.K, o.N, false)
	out := dtype.BF16
	if variant == "fused-cast" {
		out = dtype.F32
	}
	m := p.mapping("ffn.gate", o, variant, dtype.BF16, dtype.BF16, out)
	if p.err != nil {
		return 0
	}
	return 2 * (o.N / (m.Tile[3] * m.Herd[1])) * (o.K / m.Tile[1])
}
