package plan

import (
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// npuWidths are the widths of a layer's activations, padded so that tiles divide them. Decode pads
// nothing.
//
// A matrix product on the whole array writes columns in multiples of 256: 4 rows of cores times a
// tile of at least 64. If the next launch can drop columns, as a bias or a residual addition does,
// a width is rounded up to the next 1024. Without a bias, queries, keys and values go to attention
// unchanged. For them whole heads are added: as many key heads as needed, each with its group of
// query heads, so that the real heads keep their groups. The feed-forward block is padded to a
// multiple of 256. Added weights are zeros, and so are the keys and values of added heads.
type npuWidths struct {
	heads, kvHeads int // in attention
	q, kv          int // all heads
	qOut, kvOut    int // of the q, k and v products
	hidden         int // of the products that write the residual stream
	ffn            int
}

// tileWidth divides the number of columns that a product writes. Widths that it does not divide are
// rounded up to a multiple of paddedWidth.
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

// exactWidths returns the checkpoint's widths.
func (b *npuPlanner) exactWidths() npuWidths {
	c := b.cfg
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	return npuWidths{heads: c.Heads, kvHeads: c.KVHeads, q: q, kv: kv, qOut: q, kvOut: kv,
		hidden: c.Hidden, ffn: c.FFN}
}

func (b *npuPlanner) paddedWidths() npuWidths {
	c, w := b.cfg, b.exactWidths()
	if !c.QKVBias {
		for n := c.KVHeads; n < c.KVHeads+tileWidth; n++ {
			if n*c.HeadDim%tileWidth == 0 {
				w.heads, w.kvHeads = n*(c.Heads/c.KVHeads), n
				break
			}
		}
	}
	w.q, w.kv = w.heads*c.HeadDim, w.kvHeads*c.HeadDim
	w.qOut, w.kvOut, w.hidden = roundWidth(w.q), roundWidth(w.kv), roundWidth(c.Hidden)
	w.ffn = (c.FFN + tileWidth - 1) / tileWidth * tileWidth
	return w
}

// npuPrefill plans the layers of a prefill pass.
type npuPrefill struct {
	npuLayers
	core    op.Attention
	onArray npu.Mapping
}

// prefill adds the pass of a number of rows.
func (b *npuPlanner) prefill(rows int) {
	p := npuPrefill{npuLayers: npuLayers{npuPlanner: b, npuWidths: b.paddedWidths(), rows: rows,
		prefix: fmt.Sprintf("p%d.", rows)}}
	if rows != b.longest {
		p.suffix = fmt.Sprintf(".%d", rows)
	}
	p.chooseAttention()
	if b.err != nil {
		return
	}
	pass := Pass{Rows: rows}
	b.embed(&pass.Steps, p.stream("x", 0))
	for l := range b.cfg.Layers {
		b.steps(&pass.Steps, fmt.Sprintf("layer.%d", l), p.layer(l))
	}
	b.head(&pass, p.stream("x", b.cfg.Layers), p.prefix, p.suffix)
	b.plan.Prefill = append(b.plan.Prefill, pass)
}

// chooseAttention chooses the attention kernel. It prefers one with the layout of the neighboring
// programs; such kernels exist for heads of 64, and for heads of 128 in groups that the temporal
// kernel can map. Otherwise it takes the head-first kernel, with values and results in parts of 64
// columns.
func (p *npuPrefill) chooseAttention() {
	c := p.cfg
	o := op.Attention{Rows: p.rows, Heads: p.heads, KVHeads: p.kvHeads, HeadDim: c.HeadDim}
	bf16 := []dtype.Type{dtype.BF16, dtype.BF16, dtype.BF16, dtype.BF16}
	p.core = o
	if p.knobs.Attention == OnHost {
		return
	}
	if p.knobs.Layout == seqFirst {
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

// layer returns the blocks of one layer in dispatch order.
func (p *npuPrefill) layer(l int) []*npuBlock {
	x, y := p.stream("x", l), p.stream("y", l+1)
	y.shape, y.output = []int{p.rows * p.cfg.Hidden}, true // flat, as in the artifacts
	in, attn := p.attentionInput(), p.value("attn", "attn", p.q)

	blocks := p.group(p.input(l, x, in), p.knobs.MergePre, []npuCut{{npuInputName(p.cfg, false), "", 0}},
		p.suffixOf(p.knobs.MergePre))
	args := []npuOperand{in.q.whole(), in.k.whole(), in.v.whole(), attn.whole()}
	switch {
	case p.knobs.Attention == OnHost:
		core := p.core
		core.Rows = op.Rows
		blocks = append(blocks, &npuBlock{program: "host_attention" + p.suffix, on: OnHost,
			launches: []npuLaunch{{name: "attn.core", op: core, args: args}}})
	case p.core.HeadFirst:
		blocks = append(blocks, p.headFirst(in, attn)...)
	default:
		blocks = append(blocks, p.flash(args))
	}
	cuts := p.outputCuts()
	output := p.output(l, attn, x, y, cuts)
	blocks = append(blocks, p.group(output, p.knobs.MergePost, cuts, p.suffixOf(p.knobs.MergePost))...)
	write, _, _ := p.cacheWrite(l, in)
	return append(blocks, &npuBlock{program: "kv_write" + p.suffix, on: OnHost, launches: write})
}

// flash returns the dispatch of attention on the array.
func (p *npuPrefill) flash(args []npuOperand) *npuBlock {
	name := "attn.core"
	if p.core.HeadFirst {
		name = "attn.core_heads"
	}
	return &npuBlock{program: "flash_attn" + p.suffix, instance: "attention_bf16", on: OnDevice,
		launches: []npuLaunch{{name: name, op: p.core, args: args, mapping: p.onArray}}}
}

// headFirst returns attention between two permutations on the host. They move all rows, padding
// included, because the kernel's layout depends on the number of rows.
func (p *npuPrefill) headFirst(in attentionInput, attn *npuTensor) []*npuBlock {
	hd, split := p.cfg.HeadDim, max(1, p.core.Split)
	var before []npuLaunch
	var args []npuOperand
	for _, t := range []struct {
		name         string
		x            *npuTensor
		heads, width int
	}{
		{"q_heads", in.q, p.heads, hd},
		{"k_heads", in.k, p.kvHeads, hd},
		{"v_heads", in.v, p.kvHeads * split, hd / split},
	} {
		y := npuValue(t.name, p.prefix+t.name, t.heads, p.rows, t.width)
		o := op.Permute{Shape: []int{p.rows, t.heads, t.width}, Perm: []int{1, 0, 2}}
		before = append(before, npuLaunch{name: "attn." + t.name, op: o, stage: "heads",
			args: []npuOperand{t.x.as(o.Shape...), y.whole()}})
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

// Limits on merging after attention.
const (
	wholeWidth     = 1024 // four products share a program if it divides all widths (rule R-BD-4)
	activationTile = 5120 // widest row that the gate's kernel can take as one tile (rule R-L1-3)

	// panelsTogether bounds the panels of weights that gate and up read in one program. Each panel
	// takes a buffer descriptor. The value is between those of published programs: with 840
	// panels the two share a program (Qwen2.5-1.5B), with 1376 and 1520 they do not (Qwen2.5-3B,
	// Qwen3-4B).
	panelsTogether = 1024
)

// outputCuts returns the cuts of the eight units after attention: o, residual, norm, gate, up, act,
// down, residual.
//
// If all widths are multiples of 1024 they share one program. Other widths take more buffer
// descriptors: the down product, whose K is then odd too, must be the first launch of its program
// (rule S-8), and one program has room for three products. Wide models are cut further.
func (p *npuPrefill) outputCuts() []npuCut {
	c := p.cfg
	switch {
	case p.q%wholeWidth == 0 && c.Hidden%wholeWidth == 0 && p.ffn%wholeWidth == 0:
		name := "o_ffn"
		if c.QKNorm {
			name = "o_ffn_qwen"
		}
		return []npuCut{{name, "", 0}}
	case p.ffn <= activationTile:
		return []npuCut{{"o_ffn_head", "", 0}, {"down_add", "", 6}}
	}
	cuts := []npuCut{{"o_res_norm", "", 0}, {"gate_up", "", 3}}
	if p.gatePanels() > panelsTogether {
		cuts = []npuCut{{"o_res_norm", "", 0}, {"gate", "", 3}, {"up", "", 4}}
	}
	return append(cuts, npuCut{"swiglu", "silu_and_mul_2d", 5}, npuCut{"down_add", "", 6})
}

// gatePanels returns the number of weight panels that gate and up read together.
func (p *npuPrefill) gatePanels() int {
	t := p.outputTensors(0)
	u := p.project("ffn.gate", t.normed.whole(), t.wgate, t.gate, p.cfg.Hidden, p.ffn,
		position{first: true})
	if p.err != nil {
		return 0
	}
	m := u.launches[0].mapping
	return 2 * (p.ffn / (m.Tile[3] * m.Herd[1])) * (p.cfg.Hidden / m.Tile[1])
}
