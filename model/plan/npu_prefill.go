package plan

import (
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// npuWidths are the widths of a layer's activations, with what is added so that tiles divide. Decode adds nothing.
//
// A matrix product on the whole array writes columns in multiples of 4 rows of cores times a tile of at least 64: 256. Where a launch
// behind it can leave columns out again, as a bias or a residual addition does, a width is rounded up to the next 1024. Queries, keys and
// values of models without a bias go to attention as they are: for them whole heads are added, as many key heads as are needed, each with
// its group of query heads, so that the true heads keep their partners. The feed-forward block is zero where it is wider than the
// checkpoint's: there 256 are enough. Added weights are zeros; so is what added heads attend to.
type npuWidths struct {
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

// exactWidths are those of the checkpoint.
func (b *npuPlanner) exactWidths() npuWidths {
	c := b.cfg
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	return npuWidths{heads: c.Heads, kvHeads: c.KVHeads, q: q, kv: kv, qOut: q, kvOut: kv, hidden: c.Hidden, ffn: c.FFN}
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

// npuPrefill makes the layers of a prefill pass.
type npuPrefill struct {
	npuLayers
	core    op.Attention
	onArray npu.Mapping
}

// prefill adds the pass of so many rows.
func (b *npuPlanner) prefill(rows int) {
	p := npuPrefill{npuLayers: npuLayers{npuPlanner: b, npuWidths: b.paddedWidths(), rows: rows, prefix: fmt.Sprintf("p%d.", rows)}}
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

// chooseAttention chooses the kernel: one that reads and writes what the neighbouring programs do where there is one, which is for heads
// of 64, and for heads of 128 in groups that the temporal kernel can map; else one that wants head after head, with values and result in
// parts of 64 columns.
func (p *npuPrefill) chooseAttention() {
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
	x, y := p.stream("x", l), p.stream("y", l+1)
	y.shape, y.leaves = []int{p.rows * p.cfg.Hidden}, true // flat, as artefacts have it
	in, attn := p.attentionInput(), p.value("attn", "attn", p.q)

	blocks := p.group(p.input(l, x, in), p.knobs.MergePre, []npuCut{{npuInputName(p.cfg, false), "", 0}}, p.suffixOf(p.knobs.MergePre))
	args := []npuOperand{in.q.whole(), in.k.whole(), in.v.whole(), attn.whole()}
	switch {
	case p.knobs.Attention == HostAttention:
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
	blocks = append(blocks, p.group(p.output(l, attn, x, y, cuts), p.knobs.MergePost, cuts, p.suffixOf(p.knobs.MergePost))...)
	write, _, _ := p.cacheWrite(l, in)
	return append(blocks, &npuBlock{program: "kv_write" + p.suffix, on: OnHost, launches: write})
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
func (p *npuPrefill) headFirst(in attentionInput, attn *npuTensor) []*npuBlock {
	hd, split := p.cfg.HeadDim, max(1, p.core.Split)
	var before []npuLaunch
	var args []npuOperand
	for _, t := range []struct {
		name         string
		x            *npuTensor
		heads, width int
	}{{"q_heads", in.q, p.heads, hd}, {"k_heads", in.k, p.kvHeads, hd}, {"v_heads", in.v, p.kvHeads * split, hd / split}} {
		y := npuValue(t.name, p.prefix+t.name, t.heads, p.rows, t.width)
		o := op.Permute{Shape: []int{p.rows, t.heads, t.width}, Perm: []int{1, 0, 2}}
		before = append(before, npuLaunch{name: "attn." + t.name, op: o, args: []npuOperand{t.x.as(o.Shape...), y.whole()}, stage: "heads"})
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

// gatePanels is the number of panels of the weights that gate and up read together.
func (p *npuPrefill) gatePanels() int {
	t := p.outputTensors(0)
	u := p.project("ffn.gate", t.normed.whole(), t.wgate, t.gate, p.cfg.Hidden, p.ffn, seat{first: true})
	if p.err != nil {
		return 0
	}
	m := u.launches[0].mapping
	return 2 * (p.ffn / (m.Tile[3] * m.Herd[1])) * (p.cfg.Hidden / m.Tile[1])
}
