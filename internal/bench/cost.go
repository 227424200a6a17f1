package bench

import (
	"slices"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// cost is the minimum work of passes through a model: each pass reads every weight and the visible
// part of the KV cache, and computes. Traffic between launches is not counted, because it stays in
// the processor's caches.
type cost struct {
	bytes  float64 // bytes read
	stored float64 // bytes read by a device that does not compress weights
	cache  float64 // bytes read from the KV cache, part of both
	flops  float64
}

// add counts one pass over rows positions that starts at pos. If logits is true, the last row also
// goes through the LM head.
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
				case arg.Kind == npu.Const && l.Op.Kind() == "Embed": // reads one row per id
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

// costOf returns the cost of a test in one session. A prompt is read in chunks of the plan's size.
func costOf(p *plan.Plan, info npu.Info, t Test) (c cost) {
	if t.Decode {
		for i := range t.Tokens {
			c.add(p, p.Decode, info, 1, t.Depth+i, true)
		}
		return c
	}
	for pos := 0; pos < t.Tokens; pos += p.Chunk {
		rows := min(p.Chunk, t.Tokens-pos)
		c.add(p, p.Prefill[0], info, rows, t.Depth+pos, pos+rows == t.Tokens)
	}
	return c
}

// times returns the cost of the same work in n concurrent sessions, which share each read of the
// weights.
func (c cost) times(n int) cost {
	others := float64(n-1) * c.cache
	return cost{
		bytes: c.bytes + others, stored: c.stored + others,
		cache: float64(n) * c.cache, flops: float64(n) * c.flops,
	}
}
