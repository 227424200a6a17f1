package plan

import (
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

// npuDecode plans the layers of the decode pass. It pads nothing, because a GEMV writes any number
// of columns.
type npuDecode struct{ npuLayers }

// decode adds the decode pass.
func (b *npuPlanner) decode() {
	c := b.cfg
	if b.knobs.DecodeAttention == OnDevice {
		o := op.Attention{Rows: 1, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Cached: true}
		b.fail(ofLaunch("attn.core", xdna2.CheckLaunch(o, nil, npu.Mapping{}, b.array)))
		return
	}
	d := npuDecode{npuLayers{npuPlanner: b, npuWidths: b.exactWidths(), rows: 1, prefix: "d."}}
	pass := Pass{Rows: 1}
	b.embed(&pass.Steps, d.stream("x", 0))
	for l := range c.Layers {
		b.steps(&pass.Steps, fmt.Sprintf("layer.%d", l), d.layer(l))
	}
	b.head(&pass, d.stream("x", c.Layers), d.prefix, ".1")
	b.plan.Decode = pass
}

// layer returns the blocks of one layer in dispatch order.
func (d *npuDecode) layer(l int) []*npuBlock {
	c := d.cfg
	x, y := d.stream("x", l), d.stream("y", l+1)
	y.output = true
	in, attn := d.attentionInput(), d.value("attn", "attn", d.q)

	blocks := d.group(d.input(l, x, in), d.knobs.MergePre, []npuCut{{npuInputName(c, true), "", 0}},
		d.suffixOf(d.knobs.MergePre))
	write, kcache, vcache := d.cacheWrite(l, in)
	core := op.Attention{
		Rows:    op.Rows,
		Heads:   c.Heads,
		KVHeads: c.KVHeads,
		HeadDim: c.HeadDim,
		Cached:  true,
	}
	blocks = append(blocks, &npuBlock{program: "decode_attention", on: OnHost, launches: append(write,
		npuLaunch{name: "attn.core", op: core,
			args: []npuOperand{in.q.whole(), kcache.whole(), vcache.whole(), attn.whole()}})})
	switch {
	case !d.cascades():
		return append(blocks, d.split(l, attn, x, y)...)
	case d.knobs.MergePost:
		return append(blocks, d.cascade(l, attn, x, y))
	}
	return append(blocks, d.group(d.output(l, attn, x, y, nil), false, nil, d.suffixOf(false))...)
}

// Limits of the fused kernel after attention: three cascades of cores down the columns of the
// array.
const (
	cascadeWidth = 2048 // of the residual stream: 512 per core, and a column has four cores (rule R-DIV-8)
	cascadeK     = 512  // K of products with a residual is a multiple of it (rule R-DIV-7)
	cascadeGroup = 128  // at least two cores of a column share K, in multiples of 64 (rule R-DIV-5)
)

// cascades reports whether the fused kernel can run the launches after attention. In other models
// each product is a dispatch, and the host runs the ops between them.
func (d *npuDecode) cascades() bool {
	c := d.cfg
	return c.Hidden <= cascadeWidth && c.Hidden%cascadeGroup == 0 && d.q%cascadeK == 0 &&
		c.FFN%cascadeK == 0
}

// cascade returns the published program o_gemv_ffn: three kernels of several ops each. On the array
// seven of its fifteen arguments are unused; a software device, which runs single ops, keeps the
// values between ops in five of them. Row 0 of the packed argument is the residual sum after
// attention, and row 1 the weight of the norm. Gate and up are interleaved row by row.
func (d *npuDecode) cascade(l int, attn, x, y *npuTensor) *npuBlock {
	c, t := d.cfg, d.outputTensors(l)
	packed := npuWeight("packed", layoutStack(layoutZeros(1, c.Hidden), *t.norm.layout), 2, c.Hidden)
	packed.scratchRows = 1
	gateUp := npuWeight("gate_up.weight", layoutInterleave(*t.wgate.layout, *t.wup.layout), 2*c.FFN,
		c.Hidden)
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

	b := &npuBlock{program: "o_gemv_ffn", on: OnDevice,
		args: []*npuTensor{
			t.wo,
			attn,
			t.o,
			x,
			unused4,
			t.normed,
			packed,
			gateUp,
			t.gate,
			unused9,
			t.up,
			t.act,
			t.wdown,
			t.down,
			y,
		}}
	kernel := "cascade.o"
	launch := func(name string, o op.Op, args ...npuOperand) {
		m := npu.Mapping{Fused: kernel}
		if product, ok := o.(op.MatMul); ok {
			m = d.cascadeMapping(name, product, kernel)
		}
		b.launches = append(b.launches, npuLaunch{name: name, op: o, args: args, mapping: m})
	}
	gate := op.MatMul{M: 1, K: c.Hidden, N: c.FFN, TransB: true}
	launch("attn.o", op.MatMul{M: 1, K: d.q, N: c.Hidden, TransB: true}, attn.whole(), t.wo.whole(),
		t.o.whole())
	launch("attn.residual", op.Add{Rows: 1, Width: c.Hidden}, t.o.whole(), x.whole(), row(0))
	kernel = "cascade.swiglu"
	launch("ffn.norm", d.norm(c.Hidden, 0), row(0), row(1), t.normed.whole())
	launch("ffn.gate", gate, t.normed.whole(), every(0), t.gate.whole())
	launch("ffn.up", gate, t.normed.whole(), every(1), t.up.whole())
	launch("ffn.act", op.SiLUMul{Rows: 1, Width: c.FFN}, t.gate.whole(), t.up.whole(), t.act.whole())
	kernel = "cascade.down"
	launch("ffn.down", op.MatMul{M: 1, K: c.FFN, N: c.Hidden, TransB: true},
		t.act.whole(), t.wdown.whole(), t.down.whole())
	launch("ffn.residual", op.Add{Rows: 1, Width: c.Hidden}, t.down.whole(), row(0), y.whole())
	return b
}

// cascadeMapping returns the mapping of a stage: the largest tile of weight rows that fits the mem
// tiles (rules R-L2-2, R-L2-3), of which a core reads two at once.
func (d *npuDecode) cascadeMapping(name string, o op.MatMul, kernel string) npu.Mapping {
	columns, tiles, rows := d.array.Columns, []int{8, 4, 2}, o.N
	bytes := func(tile int) int { return columns * (2*tile*o.K + 4*tile) }
	if kernel == "cascade.swiglu" {
		tiles, rows = []int{64, 32}, 2*o.N // gate and up; half a tile is a multiple of 16 (rule R-DIV-6)
		bytes = func(tile int) int { return 2 * tile * o.K }
	}
	for _, tile := range tiles {
		if rows%(tile*columns) == 0 && bytes(tile) <= d.array.MemTile {
			return npu.Mapping{Variant: "cascade", Tile: []int{tile, 2}, Herd: []int{columns, d.array.Rows},
				Fused: kernel}
		}
	}
	d.fail(fmt.Errorf("%s: no tile of a cascade on %d columns divides %d rows of %d and fits a mem tile",
		name, columns, rows, o.K))
	return npu.Mapping{}
}

// split returns the dispatches of models that the fused kernel cannot run: four products, with host
// ops between them. The residual sum after attention stays in FP32.
func (d *npuDecode) split(l int, attn, x, y *npuTensor) []*npuBlock {
	c, t := d.cfg, d.outputTensors(l)
	t.sum.typ = dtype.F32
	gemv := func(program, name string, x, w, y *npuTensor, k, n int) *npuBlock {
		return &npuBlock{program: program, on: OnDevice, weightFirst: true,
			launches: d.project(name, x.whole(), w, y, k, n, position{}).launches}
	}
	host := func(program string, launches ...npuLaunch) *npuBlock {
		return &npuBlock{program: program, on: OnHost, launches: launches}
	}
	add, norm := op.Add{Rows: op.Rows, Width: c.Hidden}, d.norm(c.Hidden, 0)
	norm.Rows = op.Rows
	act := op.SiLUMul{Rows: op.Rows, Width: c.FFN}
	return []*npuBlock{
		gemv("o_gemv", "attn.o", attn, t.wo, t.o, d.q, c.Hidden),
		host("decode_residual_norm",
			npuLaunch{name: "attn.residual", op: add,
				args: []npuOperand{t.o.whole(), x.whole(), t.sum.whole()}},
			npuLaunch{name: "ffn.norm", op: norm,
				args: []npuOperand{t.sum.whole(), t.norm.whole(), t.normed.whole()}}),
		gemv("gate_gemv", "ffn.gate", t.normed, t.wgate, t.gate, c.Hidden, c.FFN),
		gemv("up_gemv", "ffn.up", t.normed, t.wup, t.up, c.Hidden, c.FFN),
		host("decode_act", npuLaunch{name: "ffn.act", op: act,
			args: []npuOperand{t.gate.whole(), t.up.whole(), t.act.whole()}}),
		gemv("down_gemv", "ffn.down", t.act, t.wdown, t.down, c.FFN, c.Hidden),
		host("decode_residual", npuLaunch{name: "ffn.residual", op: add,
			args: []npuOperand{t.down.whole(), t.sum.whole(), y.whole()}}),
	}
}
