package cpu

import (
	"fmt"
	"unsafe"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu/internal/kernel"
	"github.com/npukit/npukit/npu/op"
)

// segmentLowering lowers the ops that work by segments: attention and cache writes. Each sequence of
// a run has a segment of rows, and its own keys and values.
type segmentLowering struct{ *builder }

// list allocates the segments of a command, in memory that C may read.
func (b segmentLowering) list(n int) ([]kernel.Segment, error) {
	p, err := b.lists.alloc(n * int(unsafe.Sizeof(kernel.Segment{})))
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*kernel.Segment)(p), n), nil
}

// state returns a segment's memory for an operand, and its capacity in positions.
func (b segmentLowering) state(s *npu.Segment, o *operand) (ref, int64) {
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

func (b segmentLowering) kvWrite(o op.KVWrite, rows int64, x ref, cache *operand) error {
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
func (b segmentLowering) pushSegments(c kernel.Command, segs []kernel.Segment, rows int64) error {
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
func (b segmentLowering) attention(o op.Attention, rows int64, l *launch) error {
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

func (b segmentLowering) cachedAttention(c kernel.Command, l *launch) error {
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
func (b segmentLowering) plainAttention(c kernel.Command, q, k, v, y ref, head int64) error {
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
func (b segmentLowering) splitAttention(o op.Attention, c kernel.Command, l *launch) error {
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
	moveLowering(b).copy(v, v2, [4]int64{int64(o.KVHeads), split, rows, part}, parted, joined)

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
	moveLowering(b).copy(y2, b.at(&l.operands[3]), [4]int64{int64(o.Heads), split, rows, part}, joined, parted)
	return nil
}
