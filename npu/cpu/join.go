package cpu

import (
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu/internal/kernel"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// If only the next launch reads the result of a product, and adds it to something or gates it, both
// are fused into one command: the product's result goes on in registers and is neither written nor
// read. Results are the same bit for bit.

// join is the launch that a product is fused with.
type join struct {
	flag     int32
	other, y operand // the launch's other input, and its output
}

// joinOf returns how launch i is fused with the next one, or nil if it cannot be.
func joinOf(p *npu.Program, launches []launch, i int) *join {
	product, next := &launches[i], &launches[i+1]
	m, ok := product.op.(op.MatMul)
	if !ok {
		return nil
	}
	result := product.operands[2]
	if result.arg >= len(p.Args) { // scratch rows of a Const
		return nil
	}
	arg := p.Args[result.arg]
	if arg.Kind != npu.Scratch || arg.Type != dtype.F32 || !whole(p, result) {
		return nil
	}
	for j := range launches {
		for _, o := range launches[j].operands {
			if o.arg == result.arg && o.read && j != i+1 {
				return nil
			}
		}
	}
	joined := func(flag int32, other, x operand) *join {
		if x.arg != result.arg || other.arg == result.arg || !whole(p, x) {
			return nil
		}
		return &join{flag: flag, other: other, y: next.operands[2]}
	}
	switch o := next.op.(type) {
	case op.SiLUMul:
		if o.Rows == m.M && o.Width == m.N {
			return joined(kernel.FlagGated, next.operands[0], next.operands[1])
		}
	case op.Add:
		if o.Rows != m.M || o.Width != m.N {
			return nil
		}
		x, other := next.operands[0], next.operands[1]
		if o.Broadcast {
			other.stride = 0
		} else if x.arg != result.arg {
			x, other = other, x
		}
		return joined(kernel.FlagPlus, other, x)
	}
	return nil
}

// whole reports whether an operand is all of its argument, row after row.
func whole(p *npu.Program, o operand) bool {
	shape := p.Args[o.arg].Shape
	return o.offset == 0 && len(shape) == 2 && slices.Equal(shape, o.shape) && o.stride == int64(shape[1])
}

// joined lowers a product and the launch after it as one command. It reports false if they cannot
// be fused in this run: the product's own result may be bound to a buffer, or the output may
// overlap an input of the product.
func (b *builder) joined(l *launch) (bool, error) {
	if b.run.Args[l.operands[2].arg] != nil {
		return false, nil
	}
	b.newReads, b.newWrites = b.newReads[:0], b.newWrites[:0]
	o := l.op.(op.MatMul)
	a, w := b.factors(o, l)
	inputs := len(b.newReads)
	other, y := b.at(&l.join.other), b.at(&l.join.y)
	if overlapAny(b.newReads[:inputs], y.extent) {
		return false, nil
	}
	if overlapAny(b.newReads[inputs:], y.extent) && !other.same(y) {
		return false, nil
	}
	return true, b.matMul(o, product{a: a, w: w, y: y, fused: l.join.flag, other: other})
}
