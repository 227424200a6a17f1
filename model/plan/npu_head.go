package plan

import (
	"fmt"

	"github.com/npukit/npukit/model/internal/hostvalue"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// embed adds the embedding lookup, on the host.
func (b *npuPlanner) embed(to *[]Step, x *npuTensor) {
	c := b.cfg
	x.output = true
	ids := &npuTensor{name: "ids", typ: dtype.I32, shape: []int{op.Rows}, value: hostvalue.IDs}
	table := npuWeight("table", npu.T("model.embed_tokens.weight"), c.Vocab, c.Hidden)
	b.steps(to, "embed", []*npuBlock{{program: "embed", on: OnHost, launches: []npuLaunch{
		{name: "embed", op: op.Embed{Rows: op.Rows, Vocab: c.Vocab, Width: c.Hidden},
			args: []npuOperand{ids.whole(), table.whole(), x.whole()}},
	}}})
}

// npuLMHead is the division of the LM head's rows among launches.
type npuLMHead struct {
	parts, rows int
	layout      npu.Layout // of the whole weight
	vocab       int
	hidden      int
}

// Parts of the published LM heads. A launch sends its vector at most 256 times (rule R-DMA-5),
// which bounds its rows. 8 launches of 16384 rows serve vocabularies up to 131072, such as
// SmolLM2's, of whose 8 parts 5 are zeros. Larger vocabularies are cut into parts of 8192.
const (
	lmRows, lmParts = 16384, 8
	lmRowsLarge     = 8192
)

func (b *npuPlanner) lmHead() npuLMHead {
	c := b.cfg
	h := npuLMHead{parts: lmParts, rows: lmRows, layout: npu.T("lm_head.weight"),
		vocab: c.Vocab, hidden: c.Hidden}
	if c.TieEmbeddings {
		h.layout = npu.T("model.embed_tokens.weight")
	}
	switch {
	case c.Vocab > lmRows*lmParts:
		h.rows = lmRowsLarge
		h.parts = (c.Vocab + h.rows - 1) / h.rows
	case c.Hidden%paddedWidth != 0 || c.Vocab <= lmRowsLarge:
		// No published program has this width, so there is no need for parts of zeros.
		for h.rows > 1024 && h.rows/2 >= c.Vocab {
			h.rows /= 2
		}
		h.parts = (c.Vocab + h.rows - 1) / h.rows
	}
	return h
}

// held returns how many rows of a part belong to the vocabulary.
func (h npuLMHead) held(part int) int { return max(0, min(h.rows, h.vocab-part*h.rows)) }

// weight returns the layout of a part. Zeros take their type from the layout that they are stacked
// with, so a part of zeros is a slice of a stack.
func (h npuLMHead) weight(part int) npu.Layout {
	from := part * h.rows
	switch n := h.held(part); {
	case n == 0:
		return layoutRows(layoutStack(layoutZeros(h.rows, h.hidden), layoutRows(h.layout, 0, 1)), 0, h.rows)
	case n < h.rows:
		return layoutPad(layoutRows(h.layout, from, h.vocab), h.rows, h.hidden)
	}
	return layoutRows(h.layout, from, from+h.rows)
}

// head adds the steps after the last layer: pick a row, normalize it, multiply it by the LM head,
// join the parts of the logits. If the logits of all rows are wanted, norm and product belong to
// the steps of the pass, and its head only picks.
func (b *npuPlanner) head(pass *Pass, x *npuTensor, prefix, suffix string) {
	c := b.cfg
	rows := pass.Rows
	picks := &npuTensor{name: "picks", typ: dtype.I32, shape: []int{op.Picks}, value: hostvalue.Picks}
	logits := &npuTensor{
		name:   "logits",
		typ:    dtype.F32,
		shape:  []int{op.Picks, c.Vocab},
		value:  hostvalue.Logits,
		output: true,
	}
	norm := npuWeight("norm.weight", npu.T("model.norm.weight"), c.Hidden)
	pick := op.Pick{Picks: op.Picks, Rows: op.Rows, Width: c.Hidden}
	picked := func(name, value string) *npuTensor {
		t := npuValue(name, value, c.Hidden)
		t.host = []int{op.Picks, c.Hidden}
		return t
	}
	last, h := picked("last", "head.last"), picked("h", "head.h")
	rms := op.RMSNorm{Rows: op.Picks, Width: c.Hidden, Eps: c.NormEps}
	lm := b.lmHead()

	switch {
	case b.knobs.LMHead != OnDevice:
		table := npuWeight("lm_head.weight", lm.layout, c.Vocab, c.Hidden)
		b.steps(&pass.Head, "head", []*npuBlock{{program: "host_head", on: OnHost, launches: []npuLaunch{
			{name: "pick", op: pick, args: []npuOperand{picks.whole(), x.whole(), last.whole()}},
			{name: "norm", op: rms, args: []npuOperand{last.whole(), norm.whole(), h.whole()}},
			{name: "lm_head", op: op.MatMul{M: op.Picks, K: c.Hidden, N: c.Vocab, TransB: true},
				args: []npuOperand{h.whole(), table.whole(), logits.whole()}},
		}}})
	case b.knobs.LMRows != lastRow && rows > 1:
		b.headOfAll(pass, lm, x, norm, picks, logits, prefix, suffix)
	default:
		var blocks []*npuBlock
		before := []npuLaunch{{name: "pick", op: pick,
			args: []npuOperand{picks.whole(), x.whole(), last.whole()}}}
		normalize := npuLaunch{name: "norm", op: rms,
			args: []npuOperand{last.whole(), norm.whole(), h.whole()}}
		if b.knobs.FinalNorm == OnDevice {
			one := op.RMSNorm{Rows: 1, Width: c.Hidden, Eps: c.NormEps}
			blocks = []*npuBlock{{program: "pick", on: OnHost, launches: before},
				{program: "final_rms", on: OnDevice,
					launches: b.simple("norm", "", one, last.whole(), norm.whole(), h.whole()).launches}}
		} else {
			blocks = []*npuBlock{{program: "final_norm", on: OnHost, launches: append(before, normalize)}}
		}
		b.steps(&pass.Head, "head", append(blocks, b.gemvHead(lm, h, logits)...))
	}
}

// gemvHead returns the LM head of one row: a launch for each part, in as few programs as possible
// (rule R-ELF-1), and a host program that joins the results.
func (b *npuPlanner) gemvHead(lm npuLMHead, h, logits *npuTensor) (blocks []*npuBlock) {
	o := op.MatMul{M: 1, K: lm.hidden, N: lm.rows, TransB: true}
	m := b.mapping("lm_head", o, "gemv", dtype.BF16, dtype.BF16, dtype.BF16)
	programs := (lm.parts + b.array.Launches - 1) / b.array.Launches
	together := (lm.parts + programs - 1) / programs
	var concat npuLaunch
	var widths []int
	for i := range lm.parts {
		if i%together == 0 {
			name := "lm_head_gemv"
			if i > 0 {
				name = fmt.Sprintf("lm_head_gemv.%d", i/together)
			}
			blocks = append(blocks, &npuBlock{program: name, on: OnDevice})
		}
		w := npuWeight(fmt.Sprintf("lm_head.%d.weight", i), lm.weight(i), lm.rows, lm.hidden)
		y := npuValue(fmt.Sprintf("logits.%d", i), fmt.Sprintf("head.logits.%d", i), lm.rows)
		y.host, y.output = []int{op.Picks, lm.rows}, true
		last := blocks[len(blocks)-1]
		last.launches = append(last.launches, npuLaunch{name: fmt.Sprintf("lm_head.%d", i), op: o, mapping: m,
			args: []npuOperand{h.whole(), w.whole(), y.whole()}})
		if n := lm.held(i); n > 0 {
			widths = append(widths, n)
			concat.args = append(concat.args,
				npuOperand{y, func(r npu.Ref) npu.Ref { return r.Cols(0, n) }})
		}
	}
	concat.name, concat.op = "lm_head", op.Concat{Rows: op.Picks, Widths: widths}
	concat.args = append(concat.args, logits.whole())
	return append(blocks, &npuBlock{program: "logits", on: OnHost, launches: []npuLaunch{concat}})
}

// headOfAll adds the LM head of every row of the pass: a product on the whole array for each part.
// Programs of more than three products need widths in multiples of 1024 (rule R-BD-4).
func (b *npuPlanner) headOfAll(pass *Pass, lm npuLMHead, x, norm, picks, logits *npuTensor,
	prefix, suffix string,
) {
	rows := pass.Rows
	h := npuValue("h", prefix+"h", rows, lm.hidden)
	blocks := []*npuBlock{{program: "final_norm_all", on: OnHost, launches: []npuLaunch{
		{name: "norm", op: op.RMSNorm{Rows: op.Rows, Width: lm.hidden, Eps: b.cfg.NormEps},
			args: []npuOperand{x.whole(), norm.whole(), h.whole()}},
	}}}
	together := lm.parts
	if lm.hidden%wholeWidth != 0 || lm.rows%wholeWidth != 0 {
		together = 3
	}
	o := op.MatMul{M: rows, K: lm.hidden, N: lm.rows}
	var joined []npuLaunch
	concat := npuLaunch{name: "lm_head"}
	var widths []int
	for i := range lm.parts {
		if i%together == 0 {
			name := "lm_head_gemm" + suffix
			if lm.parts > together {
				name = fmt.Sprintf("lm_head_gemm.%d%s", i/together, suffix)
			}
			blocks = append(blocks, &npuBlock{program: name, on: OnDevice})
		}
		w := npuWeight(fmt.Sprintf("lm_head.%d.weight", i), layoutTranspose(lm.weight(i)),
			lm.hidden, lm.rows)
		y := npuValue(fmt.Sprintf("logits.%d", i), fmt.Sprintf("%slogits.%d", prefix, i), rows, lm.rows)
		y.output = true
		last := blocks[len(blocks)-1]
		variant := "drain"
		if i%together == 0 && i == lm.parts-1 {
			variant = productVariant(o.M, o.K, o.N, position{true, true})
		}
		u := b.product(fmt.Sprintf("lm_head.%d", i), h.whole(), w, y, o, variant)
		last.launches = append(last.launches, u.launches...)
		if n := lm.held(i); n > 0 {
			part := &npuTensor{
				name:  fmt.Sprintf("picked.%d", i),
				typ:   dtype.BF16,
				shape: []int{op.Picks, n},
			}
			joined = append(joined, npuLaunch{name: fmt.Sprintf("pick.%d", i),
				op: op.Pick{Picks: op.Picks, Rows: op.Rows, Width: n},
				args: []npuOperand{
					picks.whole(),
					{y, func(r npu.Ref) npu.Ref { return r.Cols(0, n) }},
					part.whole(),
				}})
			widths = append(widths, n)
			concat.args = append(concat.args, part.whole())
		}
	}
	concat.op, concat.args = op.Concat{Rows: op.Picks, Widths: widths}, append(concat.args, logits.whole())
	b.steps(&pass.Steps, "head", blocks)
	b.steps(&pass.Head, "head", []*npuBlock{{program: "logits_of_all" + suffix, on: OnHost,
		launches: append(joined, concat)}})
}
