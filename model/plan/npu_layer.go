package plan

import (
	"fmt"
	"slices"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/internal/hostvalue"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// npuLayers builds the launches of decoder layers for a number of rows. Prefill and decode share
// it.
type npuLayers struct {
	*npuPlanner
	npuWidths
	rows   int
	prefix string // of values
	suffix string // of programs
}

// suffixOf returns the suffix that keeps a pass's program names distinct from those of other
// passes. Programs of one op always have their number of rows.
func (p *npuLayers) suffixOf(merged bool) string {
	if merged {
		return p.suffix
	}
	return fmt.Sprintf(".%d", p.rows)
}

// value returns an activation: a matrix with all rows, or a vector in decode.
func (p *npuLayers) value(name, value string, width int) *npuTensor {
	if p.rows == 1 {
		return npuValue(name, p.prefix+value, width)
	}
	return npuValue(name, p.prefix+value, p.rows, width)
}

// stream returns the residual stream. Layers alternate between two buffers.
func (p *npuLayers) stream(name string, l int) *npuTensor {
	return p.value(name, fmt.Sprintf("x.%d", l%2), p.cfg.Hidden)
}

// tensor returns a tensor of a layer.
func (p *npuLayers) tensor(l int, name string) npu.Layout {
	return npu.T(fmt.Sprintf("model.layers.%d.%s", l, name))
}

// vector returns a norm weight or a bias.
func (p *npuLayers) vector(l int, name, tensor string, width int) npuOperand {
	return npuWeight(name, p.tensor(l, tensor), width).whole()
}

// matrix returns the weight of a projection, which the checkpoint stores as [stored out, stored
// in]. A GEMV reads it as stored, a matrix product as [in, out], padded with zeros.
func (p *npuLayers) matrix(l int, name, tensor string, stored [2]int, out, in int) *npuTensor {
	layout := p.tensor(l, tensor)
	if p.rows == 1 {
		return npuWeight(name, layout, out, in)
	}
	layout = layoutTranspose(layout)
	if stored != [2]int{out, in} {
		layout = layoutPad(layout, in, out)
	}
	return npuWeight(name, layout, in, out)
}

// smallProduct is the size M*K*N below which a product that drains BF16 from the cores is faster;
// above it, one that writes FP32 and casts it in a second launch is. Source: the published
// artifacts.
const smallProduct = 4_000_000_000

// position is the position of a product in its program.
type position struct{ first, alone bool }

// productVariant returns the kind of matrix product to use.
//
// A drain that is alone in its program writes stale blocks from its second run on (rule S-3), so
// another kind takes its place. The fused cast needs columns in multiples of 512, tiles of 128 on
// four rows of cores: with narrower tiles it overflows a core's memory in deployed shapes. After
// other launches it also needs K in multiples of 512 (rule S-8). In the remaining cases it is the
// direct product, which keeps its sums in BF16 and is less exact.
func productVariant(m, k, n int, at position) string {
	switch {
	case m == 1:
		return "gemv"
	case !at.alone && (m*k*n < smallProduct || n%512 == 0 && k%512 != 0 && !at.first):
		return "drain"
	case n%512 == 0:
		return "fused-cast"
	}
	return "direct"
}

// product returns a matrix product and, for the fused-cast variant, its cast.
func (b *npuPlanner) product(name string, x npuOperand, w, y *npuTensor, o op.MatMul, variant string,
) npuUnit {
	bf16 := dtype.BF16
	if variant != "fused-cast" {
		mapping := b.mapping(name, o, variant, bf16, bf16, bf16)
		args := []npuOperand{x, w.whole(), y.whole()}
		return npuUnit{name, []npuLaunch{{name: name, op: o, args: args, mapping: mapping}}}
	}
	sums := &npuTensor{name: y.name + ".f32", typ: dtype.F32, shape: y.shape, trailing: true,
		value: y.value + ".f32"}
	mapping := b.mapping(name, o, variant, bf16, bf16, dtype.F32)
	return npuUnit{name, []npuLaunch{
		{name: name + ".f32", op: o, args: []npuOperand{x, w.whole(), sums.whole()}, mapping: mapping},
		{name: name, op: op.Cast{Rows: o.M, Width: o.N}, args: []npuOperand{sums.whole(), y.whole()},
			mapping: castMapping(mapping)},
	}}
}

// project returns the product of all rows with a weight of the layer.
func (p *npuLayers) project(name string, x npuOperand, w, y *npuTensor, k, n int, at position) npuUnit {
	return p.product(name, x, w, y, op.MatMul{M: p.rows, K: k, N: n, TransB: p.rows == 1},
		productVariant(p.rows, k, n, at))
}

// simple returns a unit of one launch.
func (b *npuPlanner) simple(name, stage string, o op.Op, args ...npuOperand) npuUnit {
	types := make([]dtype.Type, len(args))
	for i, a := range args {
		types[i] = a.typ
	}
	return npuUnit{name, []npuLaunch{{name: name, op: o, args: args, stage: stage,
		mapping: b.mapping(name, o, "", types...)}}}
}

// norm returns an RMSNorm over heads of the given width.
func (p *npuLayers) norm(width, heads int) op.RMSNorm {
	return op.RMSNorm{Rows: p.rows, Width: width, Heads: heads, Eps: p.cfg.NormEps}
}

// attentionInput is the rotated queries and keys, and the values.
type attentionInput struct{ q, k, v *npuTensor }

func (p *npuLayers) attentionInput() attentionInput {
	v := "v"
	if p.cfg.QKVBias {
		v = "v_bias" // named after the last launch that computes it
	}
	return attentionInput{p.value("q_rope", "q_rope", p.q), p.value("k_rope", "k_rope", p.kv),
		p.value(v, v, p.kv)}
}

// input returns the units before attention: norm, projections, and the ops from those to rotated
// queries and keys.
func (p *npuLayers) input(l int, x *npuTensor, to attentionInput) []npuUnit {
	c := p.cfg
	h := p.value("attn_norm", "attn_norm", c.Hidden)
	units := []npuUnit{p.simple("attn.norm", "", p.norm(c.Hidden, 0),
		x.whole(), p.vector(l, "attn_norm.weight", "input_layernorm.weight", c.Hidden), h.whole())}

	heads := []struct {
		name          string
		heads, stored int // in attention, in the checkpoint
		width, out    int // of all heads, of the product
		result        *npuTensor
	}{
		{"q", p.heads, c.Heads, p.q, p.qOut, to.q},
		{"k", p.kvHeads, c.KVHeads, p.kv, p.kvOut, to.k},
		{"v", p.kvHeads, c.KVHeads, p.kv, p.kvOut, to.v},
	}
	y := make([]npuOperand, len(heads)) // the latest result of each
	for i, a := range heads {
		z := p.value(a.name, a.name, a.out)
		if a.name == to.v.name {
			z = to.v
		}
		w := p.matrix(l, a.name+".weight", "self_attn."+a.name+"_proj.weight",
			[2]int{a.stored * c.HeadDim, c.Hidden}, a.out, c.Hidden)
		at := position{!p.knobs.MergePre, !p.knobs.MergePre}
		units = append(units, p.project("attn."+a.name, h.whole(), w, z, c.Hidden, a.out, at))
		y[i] = z.cols(a.width)
	}
	for i, a := range heads {
		if !c.QKVBias {
			break
		}
		z := p.value(a.name+"_bias", a.name+"_bias", a.width)
		if z.name == to.v.name {
			z = to.v
		}
		units = append(units, p.simple("attn."+a.name+"_bias", "bias",
			op.Add{Rows: p.rows, Width: a.width, Broadcast: true},
			y[i], p.vector(l, a.name+".bias", "self_attn."+a.name+"_proj.bias", a.width), z.whole()))
		y[i] = z.whole()
	}
	for i, a := range heads[:2] {
		if !c.QKNorm {
			break
		}
		z := p.value(a.name+"_norm", a.name+"_norm", a.width)
		units = append(units, p.simple("attn."+a.name+"_norm", "norm", p.norm(c.HeadDim, a.heads),
			y[i], p.vector(l, a.name+"_norm.weight", "self_attn."+a.name+"_norm.weight", c.HeadDim),
			z.whole()))
		y[i] = z.whole()
	}
	for i, a := range heads[:2] {
		o := op.RoPE{Rows: p.rows, Heads: a.heads, HeadDim: c.HeadDim, TableHeads: a.heads}
		units = append(units, p.simple("attn."+a.name+"_rope", "rope", o,
			y[i], p.rope(a.name, a.heads), a.result.whole()))
	}
	return units
}

// rope returns the cosines and sines of the rows' positions, repeated for each head. In prefill
// they are a constant, because the rows start at position 0; in decode the host writes a row for
// every token. Both are flat, as in the artifacts.
func (p *npuLayers) rope(name string, heads int) npuOperand {
	width := heads * p.cfg.HeadDim
	if p.rows == 1 {
		return (&npuTensor{name: "rope_" + name, typ: dtype.BF16, shape: []int{width},
			value: hostvalue.RoPE + "." + name}).whole()
	}
	table := layoutRepeat(layoutRows(npu.T(hostvalue.RoPETable), 0, p.rows), heads)
	return npuWeight("rope_"+name, table, p.rows*width).as(p.rows, width)
}

// npuInputName returns the name of the published program with the launches before attention.
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

// npuOutput is the tensors after attention: weights, and results in launch order.
type npuOutput struct {
	wo, norm, wgate, wup, wdown         *npuTensor
	o, sum, normed, gate, up, act, down *npuTensor
}

func (p *npuLayers) outputTensors(l int) npuOutput {
	c := p.cfg
	mlp := func(name string, out, in, storedOut, storedIn int) *npuTensor {
		return p.matrix(l, name+".weight", "mlp."+name+"_proj.weight", [2]int{storedOut, storedIn}, out, in)
	}
	return npuOutput{
		wo: p.matrix(l, "o.weight", "self_attn.o_proj.weight",
			[2]int{c.Hidden, c.Heads * c.HeadDim}, p.hidden, p.q),
		norm:  npuWeight("ffn_norm.weight", p.tensor(l, "post_attention_layernorm.weight"), c.Hidden),
		wgate: mlp("gate", p.ffn, c.Hidden, c.FFN, c.Hidden),
		wup:   mlp("up", p.ffn, c.Hidden, c.FFN, c.Hidden),
		wdown: mlp("down", p.hidden, p.ffn, c.Hidden, c.FFN),

		o:      p.value("o", "o", p.hidden),
		sum:    p.value("sum", "sum", c.Hidden),
		normed: p.value("ffn_norm", "ffn_norm", c.Hidden),
		gate:   p.value("gate", "gate", p.ffn),
		up:     p.value("up", "up", p.ffn),
		act:    p.value("act", "act", p.ffn),
		down:   p.value("down", "down", p.hidden),
	}
}

// output returns the eight units after attention: projection and residual, norm, the gated
// feed-forward block, residual. cuts tell which units begin a program.
func (p *npuLayers) output(l int, attn, x, y *npuTensor, cuts []npuCut) []npuUnit {
	c, t := p.cfg, p.outputTensors(l)
	at := func(unit int) position {
		begins := func(i int) bool { return slices.ContainsFunc(cuts, func(a npuCut) bool { return a.from == i }) }
		first := !p.knobs.MergePost || begins(unit)
		return position{first, !p.knobs.MergePost || first && begins(unit+1)}
	}
	add := op.Add{Rows: p.rows, Width: c.Hidden}
	return []npuUnit{
		p.project("attn.o", attn.whole(), t.wo, t.o, p.q, p.hidden, at(0)),
		p.simple("attn.residual", "", add, t.o.cols(c.Hidden), x.whole(), t.sum.whole()),
		p.simple("ffn.norm", "", p.norm(c.Hidden, 0), t.sum.whole(), t.norm.whole(), t.normed.whole()),
		p.project("ffn.gate", t.normed.whole(), t.wgate, t.gate, c.Hidden, p.ffn, at(3)),
		p.project("ffn.up", t.normed.whole(), t.wup, t.up, c.Hidden, p.ffn, at(4)),
		p.simple("ffn.act", "", op.SiLUMul{Rows: p.rows, Width: p.ffn},
			t.gate.whole(), t.up.whole(), t.act.whole()),
		p.project("ffn.down", t.act.whole(), t.wdown, t.down, p.ffn, p.hidden, at(6)),
		p.simple("ffn.residual", "", add, t.down.cols(c.Hidden), t.sum.whole(), y.as(p.rows, c.Hidden)),
	}
}

// cacheWrite returns the two host launches that append keys and values to the cache.
func (p *npuLayers) cacheWrite(l int, to attentionInput) (launches []npuLaunch, kcache, vcache *npuTensor) {
	c := p.cfg
	kcache = npuCache(c.KVHeads, c.HeadDim, fmt.Sprintf("k.%d", l))
	vcache = npuCache(c.KVHeads, c.HeadDim, fmt.Sprintf("v.%d", l))
	write, width := op.KVWrite{Rows: op.Rows, KVHeads: c.KVHeads, HeadDim: c.HeadDim}, c.KVHeads*c.HeadDim
	return []npuLaunch{
		{name: "attn.k_write", op: write, args: []npuOperand{to.k.cols(width), kcache.whole()}},
		{name: "attn.v_write", op: write, args: []npuOperand{to.v.cols(width), vcache.whole()}},
	}, kcache, vcache
}
