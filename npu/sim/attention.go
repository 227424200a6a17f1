package sim

import (
	"math"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// FlashAttention with the array's arithmetic. For every chunk of keys:
//
//	S  = Q K^T             matrix unit: block floating point along the head, rounded to BF16
//	                       after each chunk of it
//	u' = max(u, max S)     BF16
//	G  = exp2((S-u') c)    BF16, c = log2(e)/sqrt(headDim) in BF16
//	r  = exp2((u-u') c)    BF16
//	s  = r s + sum G       BF16
//	O  = r O + G V         matrix unit: block floating point along the keys, rounded to BF16
//	                       after r O and after the sum
//
// All rounding is to nearest. Each of the four cascade stages owns a quarter of the keys. Their
// results are merged from the last to the first in the same way, and O is multiplied by 1/s at the
// end. Both products use the kernels of npu/cpu.
//
// Source: Xilinx/mlir-air e972f2942d41, attention kernels. Published errors are 3.8e-2 to 5.5e-2,
// nearly all of them due to exp2.
const (
	cascadeStages = 4
	flashRows     = 256 // query rows per block: scores over 2048 keys take 1 MB
	defaultChunk  = 64  // keys per chunk if the mapping has no tile
)

// lowest is the finite value that maxima start from.
const lowest = -0x1.fep127

// flash describes one attention.
type flash struct {
	rows, keys     int // equal if causal
	heads, kvHeads int
	headDim        int
	chunk          int // keys per chunk
	causal         bool
	scale          float64

	q, k, v, y func(head int) headView

	// Temporary memory of the software device: one head each of q (flashRows of it), k and v,
	// quantized; scores and partial sums.
	qs, ks, vs, scores, parts npu.Buffer
}

// headView is one head of an operand: each row has one or more parts of width elements.
type headView struct {
	bf       []dtype.BFloat16
	stride   int // from row to row
	parts    int
	width    int // of a part
	distance int // from part to part
}

// load copies rows to dst, starting at row from, with the parts contiguous.
func (v *headView) load(dst []dtype.BFloat16, from, rows int) {
	for r := range rows {
		for p := range v.parts {
			copy(dst[(r*v.parts+p)*v.width:][:v.width], v.bf[(from+r)*v.stride+p*v.distance:])
		}
	}
}

// store writes row r, rounded to nearest.
func (v *headView) store(r int, x []float32) {
	for p := range v.parts {
		dtype.F32ToBF16(v.bf[r*v.stride+p*v.distance:][:v.width], x[p*v.width:][:v.width])
	}
}

// attention adds the step of an attention over the run's own rows.
func (l *lowering) attention(launch int, o op.Attention, m npu.Mapping, x []operand) error {
	chunk := defaultChunk
	if len(m.Tile) > 1 && m.Tile[1] > 0 {
		chunk = m.Tile[1]
	}
	t := flash{rows: o.Rows, keys: o.Rows, heads: o.Heads, kvHeads: o.KVHeads, headDim: o.HeadDim,
		chunk:  chunk,
		causal: true, scale: o.Softmax()}
	var temps []operand
	for _, s := range t.temporary() {
		temps = append(temps, l.temp(x[0].slot, s.typ, s.shape...))
	}
	return l.on(launch, func(f *frame) error {
		if len(f.run.Segments) > 1 {
			return errSegments
		}
		t := t
		var m [4]matrix
		for i := range x {
			m[i] = f.matrix(x[i])
		}
		for i, b := range []*npu.Buffer{&t.qs, &t.ks, &t.vs, &t.scores, &t.parts} {
			*b = f.bufs[temps[i].slot]
		}
		view := func(m *matrix, split int) func(head int) headView {
			if !o.HeadFirst {
				return func(head int) headView {
					return headView{m.bf[head*o.HeadDim:], m.stride, 1, o.HeadDim, 0}
				}
			}
			part := o.HeadDim / split
			return func(head int) headView {
				return headView{m.bf[head*o.Rows*o.HeadDim:], part, split, part, o.Rows * part}
			}
		}
		split := max(1, o.Split)
		t.q, t.k, t.v, t.y = view(&m[0], 1), view(&m[1], 1), view(&m[2], split), view(&m[3], split)
		return f.flash(&t)
	})
}

// temporary returns the temporary memory that t needs, in the order of its fields.
func (t *flash) temporary() []slot {
	rows, chunks := min(t.rows, flashRows), (t.keys+t.chunk-1)/t.chunk
	return []slot{
		{typ: dtype.BF16, shape: []int{rows, t.headDim}},
		{typ: dtype.BF16, shape: []int{t.keys, t.headDim}},
		{typ: dtype.BF16, shape: []int{t.keys, t.headDim}},
		{typ: dtype.BF16, shape: []int{rows, t.keys}},
		{typ: dtype.F32, shape: []int{chunks, rows, t.headDim}},
	}
}

// flash computes an attention head by head.
func (f *frame) flash(t *flash) error {
	hd := t.headDim
	qs, ks, vs := dtype.BFloat16s(t.qs.Bytes()), dtype.BFloat16s(t.ks.Bytes()),
		dtype.BFloat16s(t.vs.Bytes())
	scores, parts := dtype.BFloat16s(t.scores.Bytes()), dtype.Float32s(t.parts.Bytes())
	group := t.heads / t.kvHeads
	for head := range t.heads {
		if head%group == 0 {
			k, v := t.k(head/group), t.v(head/group)
			k.load(ks, 0, t.keys)
			f.quantize(ks, ks, form{stride: hd, rows: t.keys, width: hd, transposed: true})
			v.load(vs, 0, t.keys)
			f.quantize(vs, vs, form{stride: hd, rows: t.keys, width: hd})
		}
		q, y := t.q(head), t.y(head)
		for from := 0; from < t.rows; from += flashRows {
			n := min(flashRows, t.rows-from)
			keys := t.keys
			if t.causal { // whole chunks, up to the last row's key
				keys = min(keys, (from+n+t.chunk-1)/t.chunk*t.chunk)
			}
			q.load(qs, from, n)
			f.quantize(qs, qs, form{stride: hd, rows: n, width: hd, transposed: true})
			key := helperKey{kind: "scores", m: n, k: hd, n: keys, step: min(hd, t.chunk)}
			if err := f.helper(key, key.scores, t.qs, t.ks, t.scores, t.scores, nil); err != nil {
				return err
			}
			states := make([]softmax, n)
			parallel(f.ctx, f.threads, n, keys, func(a, b int) {
				for r := a; r < b; r++ {
					visible := keys
					if t.causal {
						visible = from + r + 1
					}
					states[r].exp(t, scores[r*keys:][:keys], visible)
				}
			})
			key = helperKey{kind: "values", m: n, k: keys, n: hd, step: t.chunk}
			if err := f.helper(key, key.values, t.scores, t.vs, t.parts); err != nil {
				return err
			}
			parallel(f.ctx, f.threads, n, keys, func(a, b int) {
				sum, stage := make([]float32, hd), make([]float32, hd)
				for r := a; r < b; r++ {
					states[r].combine(t, sum, stage, parts[r*hd:], n*hd)
					y.store(from+r, sum)
				}
			})
			if err := f.ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// scores builds S = q k^T, rounded to BF16 after each step of the head's elements.
func (h helperKey) scores(p *npu.Program) {
	p.In("q", dtype.BF16, h.m, h.k)
	p.In("k", dtype.BF16, h.n, h.k)
	read := p.In("s read", dtype.BF16, h.m, h.n)
	written := p.Scratch("s", dtype.BF16, h.m, h.n)
	part := p.Scratch("part", dtype.F32, h.m, h.n)
	for k := 0; k < h.k; k += h.step {
		o := op.MatMul{M: h.m, K: min(h.step, h.k-k), N: h.n, TransB: true}
		y := npu.View{Arg: 4}
		if k == 0 {
			y.Arg = 3
		}
		p.Launches = append(p.Launches, npu.Launch{Name: name("k", k), Op: o, Args: []npu.View{
			{Arg: 0, Offset: k, Shape: []int{h.m, o.K}, Stride: h.k}, {Arg: 1, Offset: k,
				Shape: []int{h.n, o.K}, Stride: h.k}, y}})
		if k > 0 {
			p.Launch(name("sum", k), op.Add{Rows: h.m, Width: h.n}, read, part, written)
		}
	}
}

// values builds the products G V of every chunk of keys, in FP32.
func (h helperKey) values(p *npu.Program) {
	p.In("g", dtype.BF16, h.m, h.k)
	p.In("v", dtype.BF16, h.k, h.n)
	p.Scratch("parts", dtype.F32, (h.k+h.step-1)/h.step*h.m, h.n)
	for k := 0; k < h.k; k += h.step {
		o := op.MatMul{M: h.m, K: min(h.step, h.k-k), N: h.n}
		p.Launches = append(p.Launches, npu.Launch{Name: name("k", k), Op: o, Args: []npu.View{
			{Arg: 0, Offset: k, Shape: []int{h.m, o.K}, Stride: h.k},
			{Arg: 1, Offset: k * h.n, Shape: []int{o.K, h.n}},
			{Arg: 2, Offset: k / h.step * h.m * h.n, Shape: []int{h.m, h.n}}}})
	}
}

// softmax is the state of a row between its two products.
type softmax struct {
	rescale []float32 // r of every chunk
	stages  [cascadeStages]struct{ top, sum float32 }
	chunks  int // that the row attends to
	scale   float32
	nan     bool // a score is NaN
}

// stageOf returns the cascade stage that owns a chunk.
func (t *flash) stageOf(chunk int) int {
	chunks := (t.keys + t.chunk - 1) / t.chunk
	return chunk / ((chunks + cascadeStages - 1) / cascadeStages)
}

// exp replaces a row's scores by their weights G, quantized for the second product. The weights of
// masked keys are zero.
func (s *softmax) exp(t *flash, row []dtype.BFloat16, visible int) {
	s.scale = nearest(float32(math.Log2E * t.scale))
	s.chunks = (visible + t.chunk - 1) / t.chunk
	s.rescale = make([]float32, s.chunks)
	for i := range s.stages {
		s.stages[i].top = lowest
	}
	for c := range s.chunks {
		g := row[c*t.chunk : min((c+1)*t.chunk, visible)]
		stage := &s.stages[t.stageOf(c)]
		var highest int16 = math.MinInt16
		var magnitude dtype.BFloat16
		for _, v := range g {
			highest = max(highest, ordered(v))
			magnitude = max(magnitude, v&0x7fff)
		}
		if magnitude > infinity { // the output must be NaN
			s.nan = true
			return
		}
		top := max(stage.top, unordered(highest))
		var sum float32
		for i, v := range g {
			e := exp2((math.Float32frombits(uint32(v)<<16) - top) * s.scale)
			sum += math.Float32frombits(uint32(e) << 16)
			g[i] = e
		}
		s.rescale[c] = exp2((stage.top - top) * s.scale).Float32()
		stage.sum = nearest(s.rescale[c]*stage.sum + nearest(sum))
		stage.top = top
	}
	clear(row[visible:])
	quantizeRow(row, row[:min(len(row), s.chunks*t.chunk)])
}

// infinity is the BF16 encoding of +Inf.
const infinity = 0x7f80

// ordered maps a BF16 to an integer with the same order.
func ordered(v dtype.BFloat16) int16 { return int16(v) ^ int16(v)>>15&0x7fff }

func unordered(i int16) float32 { return dtype.BFloat16(i ^ i>>15&0x7fff).Float32() }

// combine writes a row's output to dst: the sum of its partial products, which are distance
// elements apart. stage is a scratch buffer of the same length.
func (s *softmax) combine(t *flash, dst, stage, parts []float32, distance int) {
	clear(dst)
	if s.nan {
		for j := range dst {
			dst[j] = float32(math.NaN())
		}
		return
	}
	var top, sum float32 = lowest, 0
	for c := s.chunks - 1; c >= 0; {
		last := c
		n := t.stageOf(c)
		for c > 0 && t.stageOf(c-1) == n {
			c--
		}
		clear(stage)
		for i := c; i <= last; i++ {
			part := parts[i*distance:][:len(stage)]
			r := s.rescale[i]
			if r == 1 { // common case: the maximum is unchanged
				for j, v := range part {
					stage[j] = nearest(stage[j] + v)
				}
				continue
			}
			for j, v := range part {
				stage[j] = nearest(nearest(stage[j]*r) + v)
			}
		}
		u := max(top, s.stages[n].top)
		a, b := exp2((top-u)*s.scale).Float32(), exp2((s.stages[n].top-u)*s.scale).Float32()
		for j, v := range stage {
			dst[j] = nearest(nearest(dst[j]*a) + nearest(v*b))
		}
		sum = nearest(sum*a + s.stages[n].sum*b)
		top = u
		c--
	}
	inverse := nearest(1 / sum)
	for j := range dst {
		dst[j] *= inverse
	}
}
