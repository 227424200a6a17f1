package cpu

import (
	"fmt"
	"unsafe"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// lower appends the commands of one launch.
func (b *builder) lower(l *launch) error {
	b.newReads, b.newWrites = b.newReads[:0], b.newWrites[:0]
	dim := func(n int) int64 { return int64(b.size.Resolve(n)) }
	arg := func(i int) ref { return b.at(&l.operands[i]) }
	switch o := l.op.(type) {
	case op.MatMul:
		a, w := b.factors(o, l)
		x := product{a: a, w: w, y: arg(2)}
		if err := b.apart(); err != nil {
			return err
		}
		return b.matMul(o, x)
	case op.Embed:
		ids, table, y := arg(0), b.weight(&l.operands[1], int64(o.Width)), arg(2)
		if err := checkIndex("id", ids, dim(o.Rows), int64(o.Vocab)); err != nil {
			return err
		}
		if err := b.apart(); err != nil {
			return err
		}
		b.push(command{kind: kindEmbed, m: dim(o.Rows), n: int64(o.Width), k: int64(o.Vocab),
			a: ids.p, at: ids.code, b: table.p, bt: table.code, ldb: table.stride, y: y.p, yt: y.code, ldy: y.stride})
	case op.Pick:
		index, x, y := arg(0), arg(1), arg(2)
		if err := checkIndex("index", index, dim(o.Picks), dim(o.Rows)); err != nil {
			return err
		}
		if err := b.apart(); err != nil {
			return err
		}
		// A pick is an embedding whose table is the rows.
		b.push(command{kind: kindEmbed, m: dim(o.Picks), n: int64(o.Width), k: dim(o.Rows),
			a: index.p, at: index.code, b: x.p, bt: x.code, ldb: x.stride, y: y.p, yt: y.code, ldy: y.stride})
	case op.RMSNorm:
		x, w, y := arg(0), arg(1), arg(2)
		if err := b.inPlace(y, x); err != nil {
			return err
		}
		b.push(command{kind: kindRMSNorm, m: dim(o.Rows), n: int64(o.Width), k: int64(max(1, o.Heads)), f: [4]float32{float32(o.Eps)},
			a: x.p, at: x.code, lda: x.stride, b: w.p, bt: w.code, y: y.p, yt: y.code, ldy: y.stride})
	case op.LayerNorm:
		x, w, shift, y := arg(0), arg(1), arg(2), arg(3)
		if err := b.inPlace(y, x); err != nil {
			return err
		}
		b.push(command{kind: kindLayerNorm, m: dim(o.Rows), n: int64(o.Width), f: [4]float32{float32(o.Eps)},
			a: x.p, at: x.code, lda: x.stride, b: w.p, bt: w.code, c: shift.p, ct: shift.code, y: y.p, yt: y.code, ldy: y.stride})
	case op.RoPE:
		x, table, y := arg(0), arg(1), arg(2)
		if err := b.inPlace(y, x); err != nil {
			return err
		}
		step := int64(0) // from head to head in a row of the table
		if o.TableHeads > 1 {
			step = int64(o.HeadDim)
		}
		b.push(command{kind: kindRoPE, m: dim(o.Rows), n: int64(o.Heads), k: int64(o.HeadDim), p: [12]int64{step},
			a: x.p, at: x.code, lda: x.stride, b: table.p, bt: table.code, ldb: table.stride, y: y.p, yt: y.code, ldy: y.stride})
	case op.KVWrite:
		return b.kvWrite(o, dim(o.Rows), arg(0), &l.operands[1])
	case op.Attention:
		return b.attention(o, dim(o.Rows), l)
	case op.SiLUMul:
		x, up, y := arg(0), arg(1), arg(2)
		if err := b.inPlace(y, x, up); err != nil {
			return err
		}
		b.push(command{kind: kindSiLUMul, m: dim(o.Rows), n: int64(o.Width), a: x.p, at: x.code, lda: x.stride,
			b: up.p, bt: up.code, ldb: up.stride, y: y.p, yt: y.code, ldy: y.stride})
	case op.GELU:
		x, y := arg(0), arg(1)
		if err := b.inPlace(y, x); err != nil {
			return err
		}
		c := command{kind: kindGELU, m: dim(o.Rows), n: int64(o.Width), a: x.p, at: x.code, lda: x.stride, y: y.p, yt: y.code, ldy: y.stride}
		if o.Tanh {
			c.flags = flagTanh
		}
		b.push(c)
	case op.Add:
		x, z, y := arg(0), arg(1), arg(2)
		if err := b.inPlace(y, x, z); err != nil {
			return err
		}
		if o.Broadcast {
			z.stride = 0
		}
		b.push(command{kind: kindAdd, m: dim(o.Rows), n: int64(o.Width), a: x.p, at: x.code, lda: x.stride,
			b: z.p, bt: z.code, ldb: z.stride, y: y.p, yt: y.code, ldy: y.stride})
	case op.Cast:
		x, y := arg(0), arg(1)
		if err := b.inPlace(y, x); err != nil {
			return err
		}
		b.copy(x, y, [4]int64{1, 1, dim(o.Rows), int64(o.Width)}, [4]int64{0, 0, x.stride, 1}, [4]int64{0, 0, y.stride, 1})
	case op.Slice:
		x, y := arg(0), arg(1)
		if err := b.apart(); err != nil {
			return err
		}
		x.p = element(x.p, x.code, int64(o.From))
		b.copy(x, y, [4]int64{1, 1, dim(o.Rows), int64(o.N)}, [4]int64{0, 0, x.stride, 1}, [4]int64{0, 0, y.stride, 1})
	case op.Concat:
		return b.concat(o, dim(o.Rows), l)
	case op.Permute:
		return b.permute(o, arg(0), arg(1))
	default:
		return fmt.Errorf("no kernel for %s", l.op.Kind())
	}
	return nil
}

// checkIndex reports an index outside [0, n): the rows to gather come from outside.
func checkIndex(what string, r ref, rows, n int64) error {
	for i, v := range unsafe.Slice((*int32)(r.p), rows) {
		if int64(v) < 0 || int64(v) >= n {
			return fmt.Errorf("%s %d is %d, want 0 to %d", what, i, v, n-1)
		}
	}
	return nil
}

// product is the operands of a matrix product, and what its results go on to be.
type product struct {
	a, w, y ref
	joined  int32 // the flag, or 0
	other   ref
}

// matMul is a GEMV for few rows, and a GEMM for many, which brings activations into panels. Of BF16 with BF16 there is one between them that leaves the weights where they lie.
func (b *builder) matMul(o op.MatMul, x product) error {
	m, a, w, y := int64(b.size.Resolve(o.M)), x.a, x.w, x.y
	c := command{m: m, n: int64(o.N), k: int64(o.K), a: a.p, at: a.code, lda: a.stride,
		b: w.p, bt: w.code, ldb: w.stride, p: [12]int64{w.group}, y: y.p, yt: y.code, ldy: y.stride,
		c: x.other.p, ct: x.other.code, ldc: x.other.stride}
	if o.TransB && m <= b.engine.gemvRows(a.code, w.code) {
		c.kind, c.flags = kindGEMV, b.engine.multipliesFew(a.code, w.code)|x.joined
		b.push(c)
		return nil
	}
	kind, flags := kindGEMM, b.engine.multiplies(a.code, w.code, o.TransB)
	if o.TransB && m <= b.engine.inPlaceRows(w.code, flags) && c.k%2 == 0 {
		kind, flags = kindInPlace, flags|flagWide
	}
	key := command{kind: kindPack, m: m, k: c.k, a: a.p, at: a.code, lda: a.stride, flags: flags}
	bytes := b.engine.packBytes(m, c.k, flags)
	if b.packed.panels == nil || b.packed.key != key {
		panels, err := b.between(bytes)
		if err != nil {
			return err
		}
		// The packing comes first and reads a alone.
		b.newReads, b.newWrites = a.appendTo(b.newReads[:0]), b.newWrites[:0]
		b.writing(panels, bytes)
		pack := key
		pack.y = panels
		b.push(pack)
		b.packed.key, b.packed.source, b.packed.panels = key, a.extent, panels
	}
	// What the product itself touches.
	b.newReads, b.newWrites = x.other.appendTo(w.appendTo(b.newReads[:0])), y.appendTo(b.newWrites[:0])
	b.reading(b.packed.panels, bytes)
	c.kind, c.flags, c.a = kind, flags|x.joined, b.packed.panels
	if !o.TransB {
		c.flags |= flagKN
	}
	b.push(c)
	return nil
}

// list makes the segments of a command, in memory that C may read.
func (b *builder) list(n int) ([]segment, error) {
	p, err := b.lists.alloc(n * int(unsafe.Sizeof(segment{})))
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*segment)(p), n), nil
}

// state is a segment's memory for an operand, and its capacity in positions.
func (b *builder) state(s *npu.Segment, o *operand) (ref, int64) {
	arg := &b.exec.p.Args[o.arg]
	buf := s.State[b.exec.states[o.arg]].(*buffer)
	r := ref{p: buf.ptr(), code: typeCodes[arg.Type]}
	if o.write {
		b.writing(r.p, int64(len(buf.data)))
	} else {
		b.reading(r.p, int64(len(buf.data)))
	}
	return r, int64(npu.StateCapacity(*arg, len(buf.data)))
}

func (b *builder) kvWrite(o op.KVWrite, rows int64, x ref, cache *operand) error {
	segs, err := b.list(len(b.run.Segments))
	if err != nil {
		return err
	}
	c := command{kind: kindKVWrite, m: rows, n: int64(o.KVHeads), k: int64(o.HeadDim), a: x.p, at: x.code, lda: x.stride}
	row := int64(0)
	for i := range b.run.Segments {
		s := &b.run.Segments[i]
		k, capacity := b.state(s, cache)
		segs[i] = segment{row: row, rows: int64(s.Rows), pos: int64(s.Pos), k: k.p, khead: capacity * c.k}
		c.bt = k.code
		row += int64(s.Rows)
	}
	if err := b.apart(); err != nil {
		return err
	}
	return b.pushSegments(c, segs, row)
}

// pushSegments completes a command that works by segments.
func (b *builder) pushSegments(c command, segs []segment, rows int64) error {
	if len(segs) == 0 || rows > c.m {
		return fmt.Errorf("the run's %d segments have %d rows, the op has %d: it needs segments with no more rows than its own", len(segs), rows, c.m)
	}
	c.segs, c.nsegs = &segs[0], int64(len(segs))
	if c.kind == kindAttention {
		c.flags = b.engine.attends(c.bt, c.ct, c.yt, c.k)
		if n := b.engine.attentionBytes(&c); n > 0 {
			p, err := b.between(n)
			if err != nil {
				return err
			}
			c.scratch = p
			b.writing(p, n)
		}
	}
	b.push(c)
	return nil
}

// attention works on q [Rows, Heads, HeadDim] and on keys and values wherever their rows and heads lie.
func (b *builder) attention(o op.Attention, rows int64, l *launch) error {
	hd := int64(o.HeadDim)
	c := command{kind: kindAttention, m: rows, n: int64(o.Heads), k: hd, f: [4]float32{float32(o.Softmax())}}
	c.p[0] = int64(o.KVHeads)
	if o.Cached {
		return b.cachedAttention(c, l)
	}
	if o.HeadFirst && o.Split > 1 {
		return b.splitAttention(o, c, l)
	}
	q, k, v, y := b.at(&l.operands[0]), b.at(&l.operands[1]), b.at(&l.operands[2]), b.at(&l.operands[3])
	if err := b.apart(); err != nil {
		return err
	}
	if o.HeadFirst {
		q.stride, k.stride, v.stride, y.stride = hd, hd, hd, hd
		return b.plainAttention(c, q, k, v, y, rows*hd)
	}
	return b.plainAttention(c, q, k, v, y, hd)
}

func (b *builder) cachedAttention(c command, l *launch) error {
	q, y := b.at(&l.operands[0]), b.at(&l.operands[3])
	c.a, c.at, c.lda, c.p[1] = q.p, q.code, q.stride, c.k
	c.y, c.yt, c.ldy, c.p[2] = y.p, y.code, y.stride, c.k
	c.ldb, c.ldc = c.k, c.k
	segs, err := b.list(len(b.run.Segments))
	if err != nil {
		return err
	}
	row := int64(0)
	for i := range b.run.Segments {
		s := &b.run.Segments[i]
		k, kcap := b.state(s, &l.operands[1])
		v, vcap := b.state(s, &l.operands[2])
		segs[i] = segment{row: row, rows: int64(s.Rows), pos: int64(s.Pos), k: k.p, v: v.p, khead: kcap * c.k, vhead: vcap * c.k}
		c.bt, c.ct = k.code, v.code
		row += int64(s.Rows)
	}
	if err := b.apart(); err != nil {
		return err
	}
	return b.pushSegments(c, segs, row)
}

// plainAttention has its keys and values in rows of this run, head elements from head to head. Each segment is a sequence of its own.
func (b *builder) plainAttention(c command, q, k, v, y ref, head int64) error {
	c.a, c.at, c.lda, c.p[1] = q.p, q.code, q.stride, head
	c.y, c.yt, c.ldy, c.p[2] = y.p, y.code, y.stride, head
	c.bt, c.ldb, c.ct, c.ldc = k.code, k.stride, v.code, v.stride
	runs := b.run.Segments
	if len(runs) < 2 { // padding after the true rows sees them and is not seen by them
		pos := 0
		if len(runs) == 1 {
			pos = runs[0].Pos
		}
		runs = []npu.Segment{{Rows: int(c.m), Pos: pos}}
	}
	segs, err := b.list(len(runs))
	if err != nil {
		return err
	}
	row := int64(0)
	for i, s := range runs {
		if s.Pos != 0 {
			return fmt.Errorf("segment %d starts at position %d: attention without a cache starts at 0", i, s.Pos)
		}
		segs[i] = segment{row: row, rows: int64(s.Rows), k: element(k.p, k.code, row*k.stride), v: element(v.p, v.code, row*v.stride),
			khead: head, vhead: head}
		row += int64(s.Rows)
	}
	return b.pushSegments(c, segs, row)
}

// splitAttention puts the parts of v side by side, and takes dst apart again.
func (b *builder) splitAttention(o op.Attention, c command, l *launch) error {
	rows, hd, split := c.m, c.k, int64(o.Split)
	part := hd / split
	whole := func(heads int64, code int32) (ref, int64, error) {
		n := heads * rows * hd * typeBytes[code]
		p, err := b.between(n)
		return ref{p: p, code: code, stride: hd}, n, err
	}
	v := b.at(&l.operands[2])
	v2, n, err := whole(int64(o.KVHeads), v.code)
	if err != nil {
		return err
	}
	b.writing(v2.p, n)
	joined := [4]int64{rows * hd, part, hd, 1}
	parted := [4]int64{split * rows * part, rows * part, part, 1}
	b.copy(v, v2, [4]int64{int64(o.KVHeads), split, rows, part}, parted, joined)

	q, k := b.at(&l.operands[0]), b.at(&l.operands[1])
	q.stride, k.stride = hd, hd
	b.reading(v2.p, n)
	y := b.bound[l.operands[3].arg]
	y2, n, err := whole(int64(o.Heads), y.code)
	if err != nil {
		return err
	}
	b.writing(y2.p, n)
	if err := b.plainAttention(c, q, k, v2, y2, rows*hd); err != nil {
		return err
	}
	b.reading(y2.p, n)
	b.copy(y2, b.at(&l.operands[3]), [4]int64{int64(o.Heads), split, rows, part}, joined, parted)
	return nil
}

// copy pushes a strided copy: extents, and the strides of source and destination in elements.
func (b *builder) copy(x, y ref, extents, from, to [4]int64) {
	c := command{kind: kindCopy, a: x.p, at: x.code, y: y.p, yt: y.code}
	copy(c.p[0:4], extents[:])
	copy(c.p[4:8], from[:])
	copy(c.p[8:12], to[:])
	b.push(c)
}

func (b *builder) concat(o op.Concat, rows int64, l *launch) error {
	last := len(o.Widths)
	column := int64(0)
	for i, w := range o.Widths {
		x := b.at(&l.operands[i])
		y := b.at(&l.operands[last])
		if err := b.apart(); err != nil {
			return err
		}
		y.p = element(y.p, y.code, column)
		b.newWrites = append(b.newWrites[:0], b.extent(y.p, rows, int64(w), y.stride, typeBytes[y.code]))
		b.copy(x, y, [4]int64{1, 1, rows, int64(w)}, [4]int64{0, 0, x.stride, 1}, [4]int64{0, 0, y.stride, 1})
		column += int64(w)
	}
	return nil
}

func (b *builder) permute(o op.Permute, x, y ref) error {
	if err := b.apart(); err != nil {
		return err
	}
	n := len(o.Shape)
	shape := make([]int64, n)
	for i, d := range o.Shape {
		shape[i] = int64(b.size.Resolve(d))
	}
	dense := func(shape []int64, row int64) []int64 {
		s := make([]int64, n)
		step := int64(1)
		for i := n - 1; i >= 0; i-- {
			s[i] = step
			step *= shape[i]
		}
		if n == 2 {
			s[0] = row // of a view
		}
		return s
	}
	moved := make([]int64, n)
	for i, p := range o.Perm {
		moved[i] = shape[p]
	}
	from, to := dense(shape, x.stride), dense(moved, y.stride)
	extents, src, dst := [4]int64{1, 1, 1, 1}, [4]int64{}, [4]int64{}
	for i, p := range o.Perm {
		at := 4 - n + i
		extents[at], src[at], dst[at] = moved[i], from[p], to[i]
	}
	b.copy(x, y, extents, src, dst)
	return nil
}
