// Package passcost counts the bytes and operations that passes of a plan need at least.
package passcost

import (
	"slices"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// Cost is what passes through a model must do at least: read every weight once a pass and the
// visible part of the KV cache, and compute. What moves between launches is left out: it stays in
// the processor's caches.
type Cost struct {
	Bytes  float64 // read
	Stored float64 // read by a device that compresses no weights
	Cache  float64 // read of the KV cache, included in both
	FLOPs  float64
}

// add counts one pass over so many rows from a position on; with logits, its last row goes through
// the LM head.
func (c *Cost) add(p *plan.Plan, pass plan.Pass, info npu.Info, rows, pos int, logits bool) {
	size := op.Size{Rows: rows, Pos: pos, Capacity: pos + rows, Picks: 1}
	steps := pass.Steps
	if logits {
		steps = slices.Concat(pass.Steps, pass.Head)
	}
	for _, s := range steps {
		program := p.Program(s.Program)
		for _, l := range program.Launches {
			c.FLOPs += l.Op.FLOPs(size)
			for _, v := range l.Args {
				arg := program.Args[v.Arg]
				shape, _ := program.Shape(v)
				switch {
				case arg.Kind == npu.Const && l.Op.Kind() == "Embed": // reads the rows of its ids
					n := float64(rows * info.Held(arg.Type).Bytes(shape[len(shape)-1]))
					c.Bytes += n
					c.Stored += n
				case arg.Kind == npu.Const:
					c.Bytes += float64(info.WeightBytes(arg.Type, shape))
					c.Stored += float64(info.Held(arg.Type).Bytes(size.Elements(shape)))
				case arg.Kind == npu.State && l.Op.Kind() == "Attention":
					n := float64(arg.Type.Bytes(size.Elements(shape)))
					c.Bytes += n
					c.Stored += n
					c.Cache += n
				}
			}
		}
	}
}

// Prefill is the cost of a prompt behind so many tokens, in as many passes as the plan's chunk
// makes of it.
func Prefill(p *plan.Plan, info npu.Info, depth, tokens int) (c Cost) {
	for pos := 0; pos < tokens; pos += p.Chunk {
		rows := min(p.Chunk, tokens-pos)
		c.add(p, p.Prefill[0], info, rows, depth+pos, pos+rows == tokens)
	}
	return c
}

// Decode is the cost of so many tokens behind others, one a pass.
func Decode(p *plan.Plan, info npu.Info, depth, tokens int) (c Cost) {
	for i := range tokens {
		c.add(p, p.Decode, info, 1, depth+i, true)
	}
	return c
}
