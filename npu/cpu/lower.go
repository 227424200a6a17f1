package cpu

import (
	"fmt"
	"unsafe"

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
		return segmentLowering{b}.kvWrite(o, dim(o.Rows), arg(0), &l.operands[1])
	case op.Attention:
		return segmentLowering{b}.attention(o, dim(o.Rows), l)
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
		moveLowering{b}.copy(x, y, [4]int64{1, 1, dim(o.Rows), int64(o.Width)}, [4]int64{0, 0, x.stride, 1},
			[4]int64{0, 0, y.stride, 1})
	case op.Slice:
		x, y := arg(0), arg(1)
		if err := b.apart(); err != nil {
			return err
		}
		x.p = kernel.Element(x.p, x.code, int64(o.From))
		moveLowering{b}.copy(x, y, [4]int64{1, 1, dim(o.Rows), int64(o.N)}, [4]int64{0, 0, x.stride, 1},
			[4]int64{0, 0, y.stride, 1})
	case op.Concat:
		return moveLowering{b}.concat(o, dim(o.Rows), l)
	case op.Permute:
		return moveLowering{b}.permute(o, arg(0), arg(1))
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
	// The extents of the product itself.
	b.newReads, b.newWrites = x.other.appendTo(w.appendTo(b.newReads[:0])), y.appendTo(b.newWrites[:0])
	b.reading(b.packed.panels, bytes)
	c.A = b.packed.panels
	if !o.TransB {
		c.Flags |= kernel.FlagKN
	}
	b.push(c)
	return nil
}

// moveLowering lowers the ops that only move elements to strided copies.
type moveLowering struct{ *builder }

// copy pushes a strided copy: extents, and the strides of source and destination in elements.
func (b moveLowering) copy(x, y ref, extents, from, to [4]int64) {
	b.push(kernel.Command{Kind: kernel.Copy, A: x.p, AT: x.code, Y: y.p, YT: y.code,
		Extents: extents, AStrides: from, YStrides: to})
}

func (b moveLowering) concat(o op.Concat, rows int64, l *launch) error {
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

func (b moveLowering) permute(o op.Permute, x, y ref) error {
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
