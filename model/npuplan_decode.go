package model

import (
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

// decode adds the pass of one row. Nothing is padded in it: a vector-matrix product writes any number of columns.
func (b *npuPlanner) decode() {
	if b.knobs.DecodeAttention == OnNPUSide {
		c := b.cfg
		o := op.Attention{Rows: 1, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Cached: true}
		b.fail(xdna2.CheckLaunch(o, nil, npu.Mapping{}, b.array))
	}
	c := b.cfg
	d := npuDecode{npuPlanner: b, q: c.Heads * c.HeadDim, kv: c.KVHeads * c.HeadDim}
	pass := Pass{Rows: 1}
	b.embed(&pass.Steps, d.value("x", "x.0", c.Hidden))
	for l := range c.Layers {
		b.steps(&pass.Steps, fmt.Sprintf("layer.%d", l), d.layer(l))
	}
	b.head(&pass, d.value("x", fmt.Sprintf("x.%d", c.Layers%2), c.Hidden), "d.", ".1")
	b.plan.Decode = pass
}

// npuDecode makes the layers of the decode pass.
type npuDecode struct {
	*npuPlanner
	q, kv int // heads side by side
}

// value is an activation of the one row.
func (d *npuDecode) value(name, value string, width int) *npuTensor {
	return npuValue(name, "d."+value, width)
}

// layer is the blocks of one layer, in the order of their dispatch.
func (d *npuDecode) layer(l int) []*npuBlock {
	c := d.cfg
	x, y := d.value("x", fmt.Sprintf("x.%d", l%2), c.Hidden), d.value("y", fmt.Sprintf("x.%d", 1-l%2), c.Hidden)
	y.leaves = true
	q, k, v := d.value("q_rope", "q_rope", d.q), d.value("k_rope", "k_rope", d.kv), d.value(npuValueName(c), npuValueName(c), d.kv)
	attn := d.value("attn", "attn", d.q)

	blocks := d.group(d.input(l, x, q, k, v), d.knobs.MergePre, []npuCut{{npuInputName(c, true), "", 0}}, d.suffix(d.knobs.MergePre))
	kcache, vcache := npuCache(c.KVHeads, c.HeadDim, fmt.Sprintf("k.%d", l)), npuCache(c.KVHeads, c.HeadDim, fmt.Sprintf("v.%d", l))
	write := op.KVWrite{Rows: op.Rows, KVHeads: c.KVHeads, HeadDim: c.HeadDim}
	blocks = append(blocks, &npuBlock{program: "decode_attention", on: OnHost, launches: []npuLaunch{
		{name: "attn.k_write", op: write, args: []npuOperand{k.whole(), kcache.whole()}},
		{name: "attn.v_write", op: write, args: []npuOperand{v.whole(), vcache.whole()}},
		{name: "attn.core", op: op.Attention{Rows: op.Rows, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Cached: true},
			args: []npuOperand{q.whole(), kcache.whole(), vcache.whole(), attn.whole()}},
	}})
	switch {
	case !d.cascades():
		return append(blocks, d.split(l, attn, x, y)...)
	case d.knobs.MergePost:
		return append(blocks, d.cascade(l, attn, x, y))
	}
	return append(blocks, d.group(d.output(l, attn, x, y), false, nil, d.suffix(false))...)
}

func (d *npuDecode) suffix(merged bool) string {
	if merged {
		return ""
	}
	return ".1"
}

// product is a vector-matrix product: weights lie as the checkpoint has them.
func (d *npuDecode) product(name string, x, w, y npuOperand, k, n int) npuUnit {
	o := op.MatMul{M: 1, K: k, N: n, TransB: true}
	return npuUnit{name, []npuLaunch{{name: name, op: o, args: []npuOperand{x, w, y},
		mapping: d.mapping(name, o, "gemv", dtype.BF16, dtype.BF16, dtype.BF16)}}}
}

// input is the units before attention.
func (d *npuDecode) input(l int, x, qRope, kRope, v *npuTensor) []npuUnit {
	c, t := d.cfg, npuLayerTensors(l)
	h := d.value("attn_norm", "attn_norm", c.Hidden)
	units := []npuUnit{d.simple("attn.norm", "", op.RMSNorm{Rows: 1, Width: c.Hidden, Eps: c.NormEps},
		x.whole(), npuWeight("attn_norm.weight", t("input_layernorm.weight"), c.Hidden).whole(), h.whole())}

	heads := []npuHeads{{"q", c.Heads, d.q, d.q, qRope}, {"k", c.KVHeads, d.kv, d.kv, kRope}, {"v", c.KVHeads, d.kv, d.kv, v}}
	results := make([]npuOperand, len(heads))
	for i, a := range heads {
		y := d.value(a.name, a.name, a.width)
		if a.name == "v" && !c.QKVBias {
			y = v
		}
		weight := npuWeight(a.name+".weight", t("self_attn."+a.name+"_proj.weight"), a.width, c.Hidden)
		units = append(units, d.product("attn."+a.name, h.whole(), weight.whole(), y.whole(), c.Hidden, a.width))
		results[i] = y.whole()
	}
	if c.QKVBias {
		for i, a := range heads {
			y := d.value(a.name+"_bias", a.name+"_bias", a.width)
			if a.name == "v" {
				y = v
			}
			bias := npuWeight(a.name+".bias", t("self_attn."+a.name+"_proj.bias"), a.width)
			units = append(units, d.simple("attn."+a.name+"_bias", "bias", op.Add{Rows: 1, Width: a.width, Broadcast: true},
				results[i], bias.whole(), y.whole()))
			results[i] = y.whole()
		}
	}
	if c.QKNorm {
		for i, a := range heads[:2] {
			y := d.value(a.name+"_norm", a.name+"_norm", a.width)
			weight := npuWeight(a.name+"_norm.weight", t("self_attn."+a.name+"_norm.weight"), c.HeadDim)
			units = append(units, d.simple("attn."+a.name+"_norm", "norm", op.RMSNorm{Rows: 1, Width: c.HeadDim, Heads: a.heads, Eps: c.NormEps},
				results[i], weight.whole(), y.whole()))
			results[i] = y.whole()
		}
	}
	for i, a := range heads[:2] {
		// The row of the position, repeated for each head: the host writes it for every token.
		table := &npuTensor{name: "rope_" + a.name, typ: dtype.BF16, shape: []int{a.width}, value: ValueRoPE + "." + a.name}
		units = append(units, d.simple("attn."+a.name+"_rope", "rope", op.RoPE{Rows: 1, Heads: a.heads, HeadDim: c.HeadDim, TableHeads: a.heads},
			results[i], table.whole(), a.result.whole()))
	}
	return units
}

// Limits of the fused kernel behind attention, three cascades of cores down the columns of the array.
const (
	cascadeWidth = 2048 // of the residual stream: 512 of it take a core, a column has four (rule R-DIV-8)
	cascadeK     = 512  // products with a residual want K in multiples of it (rule R-DIV-7)
)

// cascades reports whether the launches behind attention can be the fused kernel. Other models run the four products one by one, and the
// host does what lies between them.
func (d *npuDecode) cascades() bool {
	return d.cfg.Hidden <= cascadeWidth && d.q%cascadeK == 0 && d.cfg.FFN%cascadeK == 0
}

// npuOutput are the tensors behind attention.
type npuOutput struct {
	wo, norm, gate, up, down *npuTensor // weights
	o, sum, h, g, u, act, d  *npuTensor // results
}

func (d *npuDecode) outputTensors(l int) npuOutput {
	c, t := d.cfg, npuLayerTensors(l)
	return npuOutput{
		wo:   npuWeight("o.weight", t("self_attn.o_proj.weight"), c.Hidden, d.q),
		norm: npuWeight("ffn_norm.weight", t("post_attention_layernorm.weight"), c.Hidden),
		gate: npuWeight("gate.weight", t("mlp.gate_proj.weight"), c.FFN, c.Hidden),
		up:   npuWeight("up.weight", t("mlp.up_proj.weight"), c.FFN, c.Hidden),
		down: npuWeight("down.weight", t("mlp.down_proj.weight"), c.Hidden, c.FFN),
		o:    d.value("o", "o", c.Hidden), sum: d.value("sum", "sum", c.Hidden), h: d.value("ffn_norm", "ffn_norm", c.Hidden),
		g: d.value("gate", "gate", c.FFN), u: d.value("up", "up", c.FFN), act: d.value("act", "act", c.FFN),
		d: d.value("down", "down", c.Hidden),
	}
}

// output is the units behind attention, each by itself.
func (d *npuDecode) output(l int, attn, x, y *npuTensor) []npuUnit {
	c, t := d.cfg, d.outputTensors(l)
	add := op.Add{Rows: 1, Width: c.Hidden}
	return []npuUnit{
		d.product("attn.o", attn.whole(), t.wo.whole(), t.o.whole(), d.q, c.Hidden),
		d.simple("attn.residual", "", add, t.o.whole(), x.whole(), t.sum.whole()),
		d.simple("ffn.norm", "", op.RMSNorm{Rows: 1, Width: c.Hidden, Eps: c.NormEps}, t.sum.whole(), t.norm.whole(), t.h.whole()),
		d.product("ffn.gate", t.h.whole(), t.gate.whole(), t.g.whole(), c.Hidden, c.FFN),
		d.product("ffn.up", t.h.whole(), t.up.whole(), t.u.whole(), c.Hidden, c.FFN),
		d.simple("ffn.act", "", op.SiLUMul{Rows: 1, Width: c.FFN}, t.g.whole(), t.u.whole(), t.act.whole()),
		d.product("ffn.down", t.act.whole(), t.down.whole(), t.d.whole(), c.FFN, c.Hidden),
		d.simple("ffn.residual", "", add, t.d.whole(), t.sum.whole(), y.whole()),
	}
}

// cascade is the published program o_gemv_ffn: three kernels of several ops each. Of its fifteen arguments seven are dead on the array;
// as single ops, on a software device, the values between ops lie in five of them. Row 0 of the packed argument is the sum behind
// attention, row 1 the weight of the norm; gate and up are interleaved row by row.
func (d *npuDecode) cascade(l int, attn, x, y *npuTensor) *npuBlock {
	c, t := d.cfg, d.outputTensors(l)
	packed := npuWeight("packed", layoutStack(layoutZeros(1, c.Hidden), *t.norm.layout), 2, c.Hidden)
	packed.scratchRows = 1
	gateUp := npuWeight("gate_up.weight", layoutInterleave(*t.gate.layout, *t.up.layout), 2*c.FFN, c.Hidden)
	row := func(i int) npuOperand {
		return npuOperand{packed, func(r npu.Ref) npu.Ref { return r.Rows(i, 1) }}
	}
	every := func(i int) npuOperand {
		return npuOperand{gateUp, func(r npu.Ref) npu.Ref { return r.Every(i, 2) }}
	}
	dead := func(name string, shape ...int) *npuTensor {
		return &npuTensor{name: name, typ: dtype.BF16, shape: shape}
	}
	unused4, unused9 := dead("dead4", c.Hidden), dead("dead9", c.FFN, c.Hidden)

	add := op.Add{Rows: 1, Width: c.Hidden}
	o, gate, down := op.MatMul{M: 1, K: d.q, N: c.Hidden, TransB: true}, op.MatMul{M: 1, K: c.Hidden, N: c.FFN, TransB: true},
		op.MatMul{M: 1, K: c.FFN, N: c.Hidden, TransB: true}
	inside := func(kernel string) npu.Mapping { return npu.Mapping{Fused: kernel} }
	launches := []npuLaunch{
		{name: "attn.o", op: o, args: []npuOperand{attn.whole(), t.wo.whole(), t.o.whole()}, mapping: d.cascadeMapping("attn.o", o, "cascade.o")},
		{name: "attn.residual", op: add, args: []npuOperand{t.o.whole(), x.whole(), row(0)}, mapping: inside("cascade.o")},

		{name: "ffn.norm", op: op.RMSNorm{Rows: 1, Width: c.Hidden, Eps: c.NormEps}, args: []npuOperand{row(0), row(1), t.h.whole()},
			mapping: inside("cascade.swiglu")},
		{name: "ffn.gate", op: gate, args: []npuOperand{t.h.whole(), every(0), t.g.whole()}, mapping: d.cascadeMapping("ffn.gate", gate, "cascade.swiglu")},
		{name: "ffn.up", op: gate, args: []npuOperand{t.h.whole(), every(1), t.u.whole()}, mapping: d.cascadeMapping("ffn.up", gate, "cascade.swiglu")},
		{name: "ffn.act", op: op.SiLUMul{Rows: 1, Width: c.FFN}, args: []npuOperand{t.g.whole(), t.u.whole(), t.act.whole()}, mapping: inside("cascade.swiglu")},

		{name: "ffn.down", op: down, args: []npuOperand{t.act.whole(), t.down.whole(), t.d.whole()}, mapping: d.cascadeMapping("ffn.down", down, "cascade.down")},
		{name: "ffn.residual", op: add, args: []npuOperand{t.d.whole(), row(0), y.whole()}, mapping: inside("cascade.down")},
	}
	return &npuBlock{program: "o_gemv_ffn", on: OnDevice, launches: launches,
		args: []*npuTensor{t.wo, attn, t.o, x, unused4, t.h, packed, gateUp, t.g, unused9, t.u, t.act, t.down, t.d, y}}
}

// cascadeMapping is the tile of a stage: as many rows of the weight as its mem tiles take (rules R-L2-2, R-L2-3), of two that a core
// reads at once.
func (d *npuDecode) cascadeMapping(name string, o op.MatMul, kernel string) npu.Mapping {
	tiles, rows := []int{8, 4, 2}, o.N
	bytes := func(tile int) int { return 8 * (2*tile*o.K + 4*tile) }
	if kernel == "cascade.swiglu" {
		tiles, rows = []int{64, 32}, 2*o.N // gate and up; halves of a tile are multiples of 16 (rule R-DIV-6)
		bytes = func(tile int) int { return 2 * tile * o.K }
	}
	for _, tile := range tiles {
		if rows%(tile*8) == 0 && bytes(tile) <= d.array.MemTile {
			return npu.Mapping{Variant: "cascade", Tile: []int{tile, 2}, Herd: []int{8, d.array.Rows}, Fused: kernel}
		}
	}
	d.fail(fmt.Errorf("%s: no tile of a cascade on 8 columns divides %d rows of %d and fits a mem tile", name, rows, o.K))
	return npu.Mapping{}
}

// split is the dispatches of models that the fused kernel does not take: four products, and on the host what lies between them. The sum
// behind attention stays in FP32 there.
func (d *npuDecode) split(l int, attn, x, y *npuTensor) []*npuBlock {
	c, t := d.cfg, d.outputTensors(l)
	t.sum.typ = dtype.F32
	gemv := func(program, name string, x, w, y *npuTensor, k, n int) *npuBlock {
		return &npuBlock{program: program, on: OnDevice, weightFirst: true, launches: d.product(name, x.whole(), w.whole(), y.whole(), k, n).launches}
	}
	host := func(program string, launches ...npuLaunch) *npuBlock {
		return &npuBlock{program: program, on: OnHost, launches: launches}
	}
	add := op.Add{Rows: op.Rows, Width: c.Hidden}
	return []*npuBlock{
		gemv("o_gemv", "attn.o", attn, t.wo, t.o, d.q, c.Hidden),
		host("decode_residual_norm",
			npuLaunch{name: "attn.residual", op: add, args: []npuOperand{t.o.whole(), x.whole(), t.sum.whole()}},
			npuLaunch{name: "ffn.norm", op: op.RMSNorm{Rows: op.Rows, Width: c.Hidden, Eps: c.NormEps},
				args: []npuOperand{t.sum.whole(), t.norm.whole(), t.h.whole()}}),
		gemv("gate_gemv", "ffn.gate", t.h, t.gate, t.g, c.Hidden, c.FFN),
		gemv("up_gemv", "ffn.up", t.h, t.up, t.u, c.Hidden, c.FFN),
		host("decode_act", npuLaunch{name: "ffn.act", op: op.SiLUMul{Rows: op.Rows, Width: c.FFN},
			args: []npuOperand{t.g.whole(), t.u.whole(), t.act.whole()}}),
		gemv("down_gemv", "ffn.down", t.act, t.down, t.d, c.FFN, c.Hidden),
		host("decode_residual", npuLaunch{name: "ffn.residual", op: add, args: []npuOperand{t.d.whole(), t.sum.whole(), y.whole()}}),
	}
}
