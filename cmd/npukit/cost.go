package main

import (
	"slices"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// cost is what passes through a model must do at least: read every weight once a pass and the
// visible part of the KV cache, and compute. What moves between launches is left out: it stays in
// the processor's caches.
type cost struct {
	bytes  float64
	stored float64 // the same with weights as big as a device has them that compresses none
	cache  float64 // of them, those of the KV cache
	flops  float64
}

// add counts one pass over so many rows from a position on; with logits, its last row goes through
// the LM head.
func (c *cost) add(p *plan.Plan, pass plan.Pass, info npu.Info, rows, pos int, logits bool) {
	size := op.Size{Rows: rows, Pos: pos, Capacity: pos + rows, Picks: 1}
	steps := pass.Steps
	if logits {
		steps = slices.Concat(pass.Steps, pass.Head)
	}
	for _, s := range steps {
		program := p.Program(s.Program)
		for _, l := range program.Launches {
			c.flops += l.Op.FLOPs(size)
			for _, v := range l.Args {
				arg := program.Args[v.Arg]
				shape, _ := program.Shape(v)
				switch {
				case arg.Kind == npu.Const && l.Op.Kind() == "Embed": // reads the rows of its ids
					n := float64(rows * info.Held(arg.Type).Bytes(shape[len(shape)-1]))
					c.bytes += n
					c.stored += n
				case arg.Kind == npu.Const:
					c.bytes += float64(info.WeightBytes(arg.Type, shape))
					c.stored += float64(info.Held(arg.Type).Bytes(size.Elements(shape)))
				case arg.Kind == npu.State && l.Op.Kind() == "Attention":
					n := float64(arg.Type.Bytes(size.Elements(shape)))
					c.bytes += n
					c.stored += n
					c.cache += n
				}
			}
		}
	}
}

// prefillCost is the cost of a prompt behind so many tokens, in as many passes as the plan's chunk
// makes of it.
func prefillCost(p *plan.Plan, info npu.Info, depth, tokens int) (c cost) {
	for pos := 0; pos < tokens; pos += p.Chunk {
		rows := min(p.Chunk, tokens-pos)
		c.add(p, p.Prefill[0], info, rows, depth+pos, pos+rows == tokens)
	}
	return c
}

// decodeCost is the cost of so many tokens behind others, one a pass.
func decodeCost(p *plan.Plan, info npu.Info, depth, tokens int) (c cost) {
	for i := range tokens {
		c.add(p, p.Decode, info, 1, depth+i, true)
	}
	return c
}
