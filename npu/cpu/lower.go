package cpu

import (
	"fmt"
	"unsafe"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu/internal/kernel"
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
		b.push(kernel.Command{Kind: kernel.Embed, M: dim(o.Rows), N: int64(o.Width),
			K: int64(o.Vocab),
			A: ids.p, AT: ids.code, B: table.p, BT: table.code, LDB: table.stride,
			Y: y.p, YT: y.code, LDY: y.stride})
	case op.Pick:
		index, x, y := arg(0), arg(1), arg(2)
		if err := checkIndex("index", index, dim(o.Picks), dim(o.Rows)); err != nil {
			return err
		}
		if err := b.apart(); err != nil {
			return err
		}
		// A pick is an embedding whose table is the rows.
		b.push(kernel.Command{Kind: kernel.Embed, M: dim(o.Picks), N: int64(o.Width),
			K: dim(o.Rows),
			A: index.p, AT: index.code, B: x.p, BT: x.code, LDB: x.stride,
			Y: y.p, YT: y.code, LDY: y.stride})
	case op.RMSNorm:
		x, w, y := arg(0), arg(1), arg(2)
		if err := b.inPlace(y, x); err != nil {
			return err
		}
		b.push(kernel.Command{Kind: kernel.RMSNorm, M: dim(o.Rows), N: int64(o.Width),
			K: int64(max(1, o.Heads)), Epsilon: float32(o.Eps),
			A: x.p, AT: x.code, LDA: x.stride, B: w.p, BT: w.code,
			Y: y.p, YT: y.code, LDY: y.stride})
	case op.LayerNorm:
		x, w, shift, y := arg(0), arg(1), arg(2), arg(3)
		if err := b.inPlace(y, x); err != nil {
			return err
		}
		b.push(kernel.Command{Kind: kernel.LayerNorm, M: dim(o.Rows), N: int64(o.Width),
			Epsilon: float32(o.Eps),
			A:       x.p, AT: x.code, LDA: x.stride, B: w.p, BT: w.code, C: shift.p, CT: shift.code,
			Y: y.p, YT: y.code, LDY: y.stride})
	case op.RoPE:
		x, table, y := arg(0), arg(1), arg(2)
		if err := b.inPlace(y, x); err != nil {
			return err
		}
		step := int64(0) // from head to head in a row of the table
		if o.TableHeads > 1 {
			step = int64(o.HeadDim)
		}
		b.push(kernel.Command{Kind: kernel.RoPE, M: dim(o.Rows), N: int64(o.Heads),
			K: int64(o.HeadDim), BHead: step,
			A: x.p, AT: x.code, LDA: x.stride, B: table.p, BT: table.code, LDB: table.stride,
			Y: y.p, YT: y.code, LDY: y.stride})
	case op.KVWrite:
		return b.kvWrite(o, dim(o.Rows), arg(0), &l.operands[1])
	case op.Attention:
		return b.attention(o, dim(o.Rows), l)
	case op.SiLUMul:
		x, up, y := arg(0), arg(1), arg(2)
		if err := b.inPlace(y, x, up); err != nil {
			return err
		}
		b.push(kernel.Command{Kind: kernel.SiLUMul, M: dim(o.Rows), N: int64(o.Width),
			A: x.p, AT: x.code, LDA: x.stride,
			B: up.p, BT: up.code, LDB: up.stride, Y: y.p, YT: y.code, LDY: y.stride})
	case op.GELU:
		x, y := arg(0), arg(1)
		if err := b.inPlace(y, x); err != nil {
			return err
		}
		c := kernel.Command{Kind: kernel.GELU, M: dim(o.Rows), N: int64(o.Width),
			A: x.p, AT: x.code, LDA: x.stride, Y: y.p, YT: y.code, LDY: y.stride}
		if o.Tanh {
			c.Flags = kernel.FlagTanh
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
		b.push(kernel.Command{Kind: kernel.Add, M: dim(o.Rows), N: int64(o.Width),
			A: x.p, AT: x.code, LDA: x.stride,
			B: z.p, BT: z.code, LDB: z.stride, Y: y.p, YT: y.code, LDY: y.stride})
	case op.Cast:
		x, y := arg(0), arg(1)
		if err := b.inPlace(y, x); err != nil {
			return err
		}
		b.copy(x, y, [4]int64{1, 1, dim(o.Rows), int64(o.Width)}, [4]int64{0, 0, x.stride, 1},
			[4]int64{0, 0, y.stride, 1})
	case op.Slice:
		x, y := arg(0), arg(1)
		if err := b.apart(); err != nil {
			return err
		}
		x.p = kernel.Element(x.p, x.code, int64(o.From))
		b.copy(x, y, [4]int64{1, 1, dim(o.Rows), int64(o.N)}, [4]int64{0, 0, x.stride, 1},
			[4]int64{0, 0, y.stride, 1})
	case op.Concat:
		return b.concat(o, dim(o.Rows), l)
	case op.Permute:
		return b.permute(o, arg(0), arg(1))
	default:
		return fmt.Errorf("no kernel for %s", l.op.Kind())
	}
	return nil
}

// checkIndex returns an error if an index is outside [0, n): indices come from the host.
func checkIndex(what string, r ref, rows, n int64) error {
	for i, v := range unsafe.Slice((*int32)(r.p), rows) {
		if int64(v) < 0 || int64(v) >= n {
			return fmt.Errorf("%s %d is %d, want 0 to %d", what, i, v, n-1)
		}
	}
	return nil
}

// product is the operands of a matrix product, and the op that it is fused with.
type product struct {
	a, w, y ref
	fused   int32 // the flag, or 0
	other   ref   // the other input of that op
}

// matMul appends a product. Kernels other than GEMV read activations in packed panels, which products
// with the same activations share.
func (b *builder) matMul(o op.MatMul, x product) error {
	m, a, w, y := int64(b.size.Resolve(o.M)), x.a, x.w, x.y
	choice := b.engine.Select(kernel.Product{
		A: a.code, W: w.code, M: m, K: int64(o.K), Transposed: o.TransB,
	})
	c := kernel.Command{Kind: choice.Kind, Table: choice.Table, Flags: x.fused,
		M: m, N: int64(o.N), K: int64(o.K), A: a.p, AT: a.code, LDA: a.stride, B: w.p, BT: w.code, LDB: w.stride,
		Block: w.block,
		C:     x.other.p, CT: x.other.code, LDC: x.other.stride, Y: y.p, YT: y.code, LDY: y.stride}
	if choice.Kind == kernel.GEMV {
		b.push(c)
		return nil
	}
	key := kernel.Command{Kind: kernel.Pack, Table: choice.Table, Flags: choice.PackFlags,
		M: m, K: c.K,
		A: a.p, AT: a.code, LDA: a.stride}
	bytes := b.engine.PackBytes(&key)
	if b.packed.panels == nil || b.packed.key != key {
		panels, err := b.between(bytes)
		if err != nil {
			return err
		}
		// The packing comes first and reads a alone.
		b.newReads, b.newWrites = a.appendTo(b.newReads[:0]), b.newWrites[:0]
		b.writing(panels, bytes)
		pack := key
		pack.Y = panels
		b.push(pack)
		b.packed.key, b.packed.source, b.packed.panels = key, a.extent, panels
	}
	// What the product itself accesses.
	b.newReads, b.newWrites = x.other.appendTo(w.appendTo(b.newReads[:0])), y.appendTo(b.newWrites[:0])
	b.reading(b.packed.panels, bytes)
	c.A = b.packed.panels
	if !o.TransB {
		c.Flags |= kernel.FlagKN
	}
	b.push(c)
	return nil
}

// list allocates the segments of a command, in memory that C may read.
func (b *builder) list(n int) ([]kernel.Segment, error) {
	p, err := b.lists.alloc(n * int(unsafe.Sizeof(kernel.Segment{})))
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*kernel.Segment)(p), n), nil
}

// state returns a segment's memory for an operand, and its capacity in positions.
func (b *builder) state(s *npu.Segment, o *operand) (ref, int64) {
	arg := &b.exec.p.Args[o.arg]
	buf := s.State[b.exec.states[o.arg]].(*buffer)
	r := ref{p: buf.ptr(), code: kernel.Types[arg.Type]}
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
	c := kernel.Command{Kind: kernel.KVWrite, M: rows, N: int64(o.KVHeads), K: int64(o.HeadDim),
		A: x.p, AT: x.code, LDA: x.stride}
	row := int64(0)
	for i := range b.run.Segments {
		s := &b.run.Segments[i]
		k, capacity := b.state(s, cache)
		segs[i] = kernel.Segment{Row: row, Rows: int64(s.Rows), Pos: int64(s.Pos),
			K: k.p, KHead: capacity * c.K}
		c.BT = k.code
		row += int64(s.Rows)
	}
	if err := b.apart(); err != nil {
		return err
	}
	return b.pushSegments(c, segs, row)
}

// pushSegments completes a command that works by segments.
func (b *builder) pushSegments(c kernel.Command, segs []kernel.Segment, rows int64) error {
	if len(segs) == 0 || rows > c.M {
		return fmt.Errorf("the run's %d segments have %d rows, the op has %d: it needs segments with "+
			"no more rows than its own", len(segs), rows, c.M)
	}
	c.Segs, c.NSegs = &segs[0], int64(len(segs))
	if c.Kind == kernel.Attention {
		c.Table = b.engine.AttentionTable(c.BT, c.CT, c.YT, c.K)
		if n := b.engine.AttentionBytes(&c); n > 0 {
			p, err := b.between(n)
			if err != nil {
				return err
			}
			c.Scratch = p
			b.writing(p, n)
		}
	}
	b.push(c)
	return nil
}

// attention lowers q [Rows, Heads, HeadDim] with keys and values in any layout.
func (b *builder) attention(o op.Attention, rows int64, l *launch) error {
	hd := int64(o.HeadDim)
	c := kernel.Command{Kind: kernel.Attention, M: rows, N: int64(o.Heads),
		K: hd, Scale: float32(o.Softmax())}
	c.KVHeads = int64(o.KVHeads)
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

func (b *builder) cachedAttention(c kernel.Command, l *launch) error {
	q, y := b.at(&l.operands[0]), b.at(&l.operands[3])
	c.A, c.AT, c.LDA, c.AHead = q.p, q.code, q.stride, c.K
	c.Y, c.YT, c.LDY, c.YHead = y.p, y.code, y.stride, c.K
	c.LDB, c.LDC = c.K, c.K
	segs, err := b.list(len(b.run.Segments))
	if err != nil {
		return err
	}
	row := int64(0)
	for i := range b.run.Segments {
		s := &b.run.Segments[i]
		k, kcap := b.state(s, &l.operands[1])
		v, vcap := b.state(s, &l.operands[2])
		segs[i] = kernel.Segment{Row: row, Rows: int64(s.Rows), Pos: int64(s.Pos),
			K: k.p, V: v.p, KHead: kcap * c.K, VHead: vcap * c.K}
		c.BT, c.CT = k.code, v.code
		row += int64(s.Rows)
	}
	if err := b.apart(); err != nil {
		return err
	}
	return b.pushSegments(c, segs, row)
}

// plainAttention reads keys and values from rows of this run, head elements from head to head. Each
// segment is a sequence of its own.
func (b *builder) plainAttention(c kernel.Command, q, k, v, y ref, head int64) error {
	c.A, c.AT, c.LDA, c.AHead = q.p, q.code, q.stride, head
	c.Y, c.YT, c.LDY, c.YHead = y.p, y.code, y.stride, head
	c.BT, c.LDB, c.CT, c.LDC = k.code, k.stride, v.code, v.stride
	runs := b.run.Segments
	if len(runs) < 2 { // padding comes after the true rows: it sees them, and they do not see it
		pos := 0
		if len(runs) == 1 {
			pos = runs[0].Pos
		}
		runs = []npu.Segment{{Rows: int(c.M), Pos: pos}}
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
		segs[i] = kernel.Segment{Row: row, Rows: int64(s.Rows),
			K:     kernel.Element(k.p, k.code, row*k.stride),
			V:     kernel.Element(v.p, v.code, row*v.stride),
			KHead: head, VHead: head}
		row += int64(s.Rows)
	}
	return b.pushSegments(c, segs, row)
}

// splitAttention copies the parts of v side by side, and takes dst apart again.
func (b *builder) splitAttention(o op.Attention, c kernel.Command, l *launch) error {
	rows, hd, split := c.M, c.K, int64(o.Split)
	part := hd / split
	whole := func(heads int64, code int32) (ref, int64, error) {
		n := heads * rows * hd * kernel.TypeBytes[code]
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
	b.push(kernel.Command{Kind: kernel.Copy, A: x.p, AT: x.code, Y: y.p, YT: y.code,
		Extents: extents, AStrides: from, YStrides: to})
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
		y.p = kernel.Element(y.p, y.code, column)
		b.newWrites = append(b.newWrites[:0], b.extent(y.p, rows, int64(w), y.stride, kernel.TypeBytes[y.code]))
		b.copy(x, y, [4]int64{1, 1, rows, int64(w)}, [4]int64{0, 0, x.stride, 1},
			[4]int64{0, 0, y.stride, 1})
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
