package defect

import (
	"github.com/npukit/npukit/internal/fault"
	"github.com/npukit/npukit/npu/op"
)

// caches are the bugs of KVWrite.
func caches() []*Defect {
	return []*Defect{
		{
			Name: "k-one-late", Op: "KVWrite", Model: llama,
			Description: "keys are written one position after their own",
			Launches:    []string{"layer.*.attn.k_write"}, First: "layer.0.attn.k_write", Seen: "layer.0.attn.core",
			replace: write(func(o op.KVWrite, head int) int { return head }, 1),
		},
		{
			Name: "v-heads-swapped", Op: "KVWrite", Model: sharer, Applies: func(m Model) bool { return m.KVHeads > 1 },
			Description: "values go to the heads in the opposite order",
			Launches:    []string{"layer.*.attn.v_write"}, First: "layer.0.attn.v_write", Seen: "layer.0.attn.core",
			replace: write(func(o op.KVWrite, head int) int { return o.KVHeads - 1 - head }, 0),
		},
		{
			Name: "v-cache-gets-k", Op: "KVWrite", Model: qwen2,
			Description: "the cache of the values is filled with the keys",
			Launches:    []string{"layer.*.attn.v_write"}, First: "layer.0.attn.v_write", Seen: "layer.0.attn.core",
			rewrite: func(s *fault.Step) {
				if k := s.Other("attn.k_write"); k != nil {
					s.Launch.Args[0] = k[0]
				}
			},
		},
	}
}

// write stores rows in the head and at the given distance after the right positions; rows without room
// are lost.
func write(to func(o op.KVWrite, head int) int, after int) func(*Kernel) {
	return func(k *Kernel) {
		o := k.Op.(op.KVWrite)
		for _, s := range k.Segments {
			cache := s.Caches[1]
			capacity := cache.Rows / o.KVHeads
			for r := range s.Rows {
				x := k.in(0, s.Row+r)
				at := s.Pos + r + after
				for h := range o.KVHeads {
					if at < capacity {
						cache.SetRow(to(o, h)*capacity+at, x[h*o.HeadDim:][:o.HeadDim])
					}
				}
			}
		}
	}
}
