package oracle

import (
	"context"
	"fmt"
	"slices"
)

// Block computes layer 0 alone for the rows of ids from a position on. It returns the layer's
// input, the embedding, and its output, both [len(ids)-from, hidden].
//
// For earlier rows it computes only keys and values, so late positions cost little more than early
// ones.
func (m *Model) Block(ctx context.Context, ids []int32, from int) (in, out []float32, err error) {
	if from < 0 || from >= len(ids) {
		return nil, nil, fmt.Errorf("oracle: block: from is %d, want 0 to %d", from, len(ids)-1)
	}
	s := m.NewState()
	if err := m.check(s, ids, nil); err != nil {
		return nil, nil, err
	}
	l := &m.layers[0]
	s.capacity = len(ids) // only one layer has a cache
	elements := s.capacity * m.cfg.KVHeads * m.cfg.HeadDim
	s.k[0], s.v[0] = make([]float32, elements), make([]float32, elements)
	begin := func(rows []int32) *pass {
		p := &pass{ctx: ctx, State: s, rows: len(rows)}
		p.rope = p.buffer("rope", p.rows*m.cfg.HeadDim)
		ropeTable(p.rope, m.freq, p.rows, s.pos)
		return p
	}
	if from > 0 {
		p := begin(ids[:from])
		h := p.norm("attn.norm", p.embed(ids[:from]), l.attnNorm)
		k := p.rotate("attn.k", p.project("attn.k", h, l.k, l.kBias), l.kNorm, m.cfg.KVHeads)
		v := p.project("attn.v", h, l.v, l.vBias)
		p.write("attn.k_write", s.k[0], k)
		p.write("attn.v_write", s.v[0], v)
		if p.err != nil {
			return nil, nil, p.err
		}
		s.pos = from
	}
	p := begin(ids[from:])
	x := p.embed(ids[from:])
	y := p.layer(l, s.k[0], s.v[0], x)
	if p.err != nil {
		return nil, nil, p.err
	}
	return slices.Clone(x), slices.Clone(y), nil
}
