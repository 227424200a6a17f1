package oracle

import (
	"context"
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu/op"
)

// ForwardOptions configure one pass. The zero value of each field is its default.
type ForwardOptions struct {
	// Picks are the rows whose logits are computed, in this order. Nil means all rows. If it is
	// empty but not nil, the LM head is skipped.
	Picks []int

	// Tap receives every op's output. It requires the logits of all picks in memory at once.
	//
	// The name is the name of a device's launch prefixed with its step, such as
	// "layer.3.attn.q_rope"; the package documentation lists all names. Shape is that of the op's
	// output, except that for k_write and v_write it is the used part of the cache, [kvHeads,
	// positions, headDim]. The values are valid during the call only. If Tap returns an error, the
	// pass ends.
	//
	// A tap may overwrite the values, and the pass continues with them, except for k_write and
	// v_write, where they are a copy. If a tap replaces every output by a device's, every op of the
	// oracle computes from the device's inputs. The difference at each tap is then the error of
	// that op alone.
	Tap func(name string, shape []int, values []float32) error
}

// Forward runs ids through the model at the positions after those in the state, and adds them to
// it. It calls emit with the logits [vocab] and the position of each picked row. The logits are
// valid during the call only. Emit may be nil.
//
// If Forward returns an error, the state is unchanged.
func (m *Model) Forward(
	ctx context.Context, s *State, ids []int32, opts *ForwardOptions, emit func(pos int, logits []float32) error,
) error {
	if opts == nil {
		opts = &ForwardOptions{}
	}
	picks := opts.Picks
	if picks == nil {
		for r := range ids {
			picks = append(picks, r)
		}
	}
	if err := m.check(s, ids, picks); err != nil {
		return err
	}
	if len(ids) == 0 {
		return nil
	}
	s.reserve(s.pos + len(ids))
	c := m.cfg
	p := &pass{ctx: ctx, State: s, rows: len(ids), tapFunc: opts.Tap}
	p.rope = p.buffer("rope", p.rows*c.HeadDim) // [rows, headDim] cosines and sines
	ropeTable(p.rope, m.freq, p.rows, s.pos)

	p.step = "embed."
	x := p.embed(ids) // [rows, hidden] the residual stream
	for l := range m.layers {
		p.step = fmt.Sprintf("layer.%d.", l)
		x = p.layer(&m.layers[l], s.k[l], s.v[l], x)
	}
	p.step = "head."
	if err := p.head(x, picks, emit); err != nil {
		return err
	}
	s.pos += len(ids)
	return nil
}

// check returns an error if the inputs of a pass are invalid.
func (m *Model) check(s *State, ids []int32, picks []int) error {
	if s == nil {
		return fmt.Errorf("oracle: state is nil: use NewState")
	}
	if s.m != m {
		return fmt.Errorf("oracle: state belongs to another model")
	}
	if _, err := m.ck.Tensor("model.norm.weight"); err != nil { // reading unmapped weights would crash
		return fmt.Errorf("oracle: %s: %w", m.ck.Path(), err)
	}
	if len(ids) > m.cfg.Context-s.pos {
		return fmt.Errorf("oracle: %d ids at position %d exceed the context of %s, %d",
			len(ids), s.pos, m.cfg.Name, m.cfg.Context)
	}
	for i, id := range ids {
		if id < 0 || int(id) >= m.cfg.Vocab {
			return fmt.Errorf("oracle: id %d is %d, want 0 to %d", i, id, m.cfg.Vocab-1)
		}
	}
	for i, r := range picks {
		if r < 0 || r >= len(ids) {
			return fmt.Errorf("oracle: pick %d is row %d, want 0 to %d", i, r, len(ids)-1)
		}
	}
	return nil
}

// pass runs rows through a model. Its methods compute one op each, pass the result to the tap and
// return it. After an error they return nil and do nothing, so that formulas need no error checks.
type pass struct {
	*State
	ctx     context.Context
	rows    int
	rope    []float32 // [rows, headDim]
	step    string    // step of the plan, the prefix of tap names
	tapFunc func(name string, shape []int, values []float32) error
	err     error
}

// embed gathers the embeddings of ids.
func (p *pass) embed(ids []int32) []float32 {
	e, n := p.m.embed, p.m.cfg.Hidden
	return p.do("embed", n, func(dst []float32) error {
		return parallel(p.ctx, p.rows, func() func(int) error {
			return func(r int) error { return e.read(dst[r*n:][:n], int(ids[r]), int(ids[r])+1) }
		})
	})
}

// layer computes one decoder layer: x + attention(norm(x)), then the same with the feed-forward
// block.
//
//	x              [rows, hidden]
//	kcache, vcache [kvHeads, capacity, headDim]
func (p *pass) layer(l *layer, kcache, vcache, x []float32) []float32 {
	c := p.m.cfg

	h := p.norm("attn.norm", x, l.attnNorm)                   // [rows, hidden]
	q := p.project("attn.q", h, l.q, l.qBias)                 // [rows, heads*headDim]
	q = p.rotate("attn.q", q, l.qNorm, c.Heads)               // [rows, heads*headDim]
	k := p.project("attn.k", h, l.k, l.kBias)                 // [rows, kvHeads*headDim]
	k = p.rotate("attn.k", k, l.kNorm, c.KVHeads)             // [rows, kvHeads*headDim]
	v := p.project("attn.v", h, l.v, l.vBias)                 // [rows, kvHeads*headDim]
	p.write("attn.k_write", kcache, k)                        //
	p.write("attn.v_write", vcache, v)                        //
	a := p.attend("attn.core", q, kcache, vcache)             // [rows, heads*headDim]
	x = p.add("attn.residual", p.linear("attn.o", a, l.o), x) // [rows, hidden]

	h = p.norm("ffn.norm", x, l.ffnNorm)                             // [rows, hidden]
	gate := p.linear("ffn.gate", h, l.gate)                          // [rows, ffn]
	up := p.linear("ffn.up", h, l.up)                                // [rows, ffn]
	a = p.gate("ffn.act", gate, up)                                  // [rows, ffn]
	return p.add("ffn.residual", p.linear("ffn.down", a, l.down), x) // [rows, hidden]
}

// project computes a linear layer, with a bias if the family has one.
func (p *pass) project(name string, x []float32, w weight, bias []float32) []float32 {
	y := p.linear(name, x, w)
	if bias == nil {
		return y
	}
	n := w.Shape[0]
	return p.do(name+"_bias", n, func(dst []float32) error {
		return add(p.ctx, op.Add{Rows: p.rows, Width: n, Broadcast: true}, dst, y, bias)
	})
}

// rotate applies QK-norm, if the family has it, and RoPE to each head.
func (p *pass) rotate(name string, x, norm []float32, heads int) []float32 {
	c := p.m.cfg
	if norm != nil {
		y := x
		x = p.do(name+"_norm", heads*c.HeadDim, func(dst []float32) error {
			return rmsNorm(p.ctx, op.RMSNorm{Rows: p.rows, Width: c.HeadDim, Heads: heads, Eps: c.NormEps}, dst, y,
				norm)
		})
	}
	return p.do(name+"_rope", heads*c.HeadDim, func(dst []float32) error {
		return rope(p.ctx, op.RoPE{Rows: p.rows, Heads: heads, HeadDim: c.HeadDim}, dst, x, p.rope)
	})
}

// write writes keys or values into the cache at the rows' positions.
func (p *pass) write(name string, cache, x []float32) {
	c := p.m.cfg
	if p.err != nil {
		return
	}
	o := op.KVWrite{Rows: p.rows, KVHeads: c.KVHeads, HeadDim: c.HeadDim}
	if p.err = kvWrite(p.ctx, o, cache, x, p.pos, p.capacity); p.err != nil || p.tapFunc == nil {
		return
	}
	held := p.pos + p.rows
	shown := make([]float32, 0, c.KVHeads*held*c.HeadDim)
	for h := range c.KVHeads {
		shown = append(shown, cache[h*p.capacity*c.HeadDim:][:held*c.HeadDim]...)
	}
	p.tap(name, []int{c.KVHeads, held, c.HeadDim}, shown)
}

func (p *pass) attend(name string, q, kcache, vcache []float32) []float32 {
	c := p.m.cfg
	o := op.Attention{Rows: p.rows, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.HeadDim, Cached: true}
	return p.do(name, c.Heads*c.HeadDim, func(dst []float32) error {
		return attention(p.ctx, o, dst, q, kcache, vcache, p.pos, p.capacity)
	})
}

func (p *pass) norm(name string, x, w []float32) []float32 {
	c := p.m.cfg
	return p.do(name, c.Hidden, func(dst []float32) error {
		return rmsNorm(p.ctx, op.RMSNorm{Rows: p.rows, Width: c.Hidden, Eps: c.NormEps}, dst, x, w)
	})
}

func (p *pass) gate(name string, gate, up []float32) []float32 {
	n := p.m.cfg.FFN
	return p.do(name, n, func(dst []float32) error {
		return siLUMul(p.ctx, op.SiLUMul{Rows: p.rows, Width: n}, dst, gate, up)
	})
}

// add computes the residual connection a + x.
func (p *pass) add(name string, a, x []float32) []float32 {
	n := p.m.cfg.Hidden
	return p.do(name, n, func(dst []float32) error {
		return add(p.ctx, op.Add{Rows: p.rows, Width: n}, dst, a, x)
	})
}

// linear computes x w^T, dequantizing a block of weight rows at a time.
func (p *pass) linear(name string, x []float32, w weight) []float32 {
	n, k := w.Shape[0], w.Shape[1]
	return p.do(name, n, func(dst []float32) error {
		return linear(p.ctx, dst, x, p.rows, k, n, func() weightRows {
			block := make([]float32, min(tile, n)*k)
			return func(from, to int) ([]float32, error) {
				dst := block[:(to-from)*k]
				return dst, w.read(dst, from, to)
			}
		})
	})
}

// logitsBytes bounds the logits in memory at once. Every group of rows reads the whole LM head
// again, so it should not be too small: 64 MiB hold 340 rows of a vocabulary of 49,152 and 110 of
// one of 152,000.
const logitsBytes = 64 << 20

// head computes the logits of the picked rows, a group of rows at a time.
func (p *pass) head(x []float32, picks []int, emit func(pos int, logits []float32) error) error {
	c := p.m.cfg
	group := max(1, logitsBytes/4/c.Vocab)
	if p.tapFunc != nil {
		group = max(1, len(picks))
	}
	for some := range slices.Chunk(picks, group) {
		p.rows = len(some)
		last := p.do("pick", c.Hidden, func(dst []float32) error { // [picks, hidden]
			for i, r := range some {
				copy(dst[i*c.Hidden:][:c.Hidden], x[r*c.Hidden:])
			}
			return nil
		})
		h := p.norm("norm", last, p.m.norm)        // [picks, hidden]
		logits := p.linear("lm_head", h, p.m.head) // [picks, vocab]
		if p.err != nil {
			break
		}
		for i, r := range some {
			if err := p.ctx.Err(); err != nil {
				return err
			}
			if emit != nil {
				if err := emit(p.pos+r, logits[i*c.Vocab:][:c.Vocab]); err != nil {
					return err
				}
			}
		}
	}
	return p.err
}

// do computes one op into a buffer [rows, width] and passes it to the tap. Buffers are named after
// ops and shared by all layers; no op reads its own output of the previous layer.
func (p *pass) do(name string, width int, compute func(dst []float32) error) []float32 {
	if p.err != nil {
		return nil
	}
	dst := p.buffer(name, p.rows*width)
	if p.err = p.ctx.Err(); p.err == nil {
		p.err = compute(dst)
	}
	p.tap(name, []int{p.rows, width}, dst)
	return dst
}

func (p *pass) tap(name string, shape []int, values []float32) {
	if p.err == nil && p.tapFunc != nil {
		p.err = p.tapFunc(p.step+name, shape, values)
	}
}
