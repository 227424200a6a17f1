package xdna2

import (
	"fmt"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// The resources that limit a kernel or a program.
const (
	boundStart   = "start"   // fixed costs: too little work per launch
	boundMemory  = "memory"  // DRAM and its streams
	boundCompute = "compute" // the cores' inner loops
)

// Cost is the predicted cost of one launch that runs alone. Times are microseconds. Memory and
// Compute overlap, so they do not add up to Time - Fixed.
type Cost struct {
	Op      op.Op
	Kernel  Kernel
	Shape   Shape
	Time    float64 // predicted
	Fixed   float64 // start of the launch and of its passes
	Memory  float64 // time if only memory mattered
	Compute float64 // time if only the cores mattered
	Bound   string  // "start" (too little work per launch), "memory" or "compute"

	FLOPs    float64  // floating-point operations of the op
	Bytes    float64  // minimum bytes moved
	Traffic  float64  // bytes that the kernel moves, including tiles read again
	Padding  float64  // fraction of a GEMM's multiply-adds on padding; the herd covers M and N in whole passes
	Roofline Roofline // lower bound of Time
	Note     string   // why the prediction is not backed by measured rows, if it is not
}

func micros(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }

// cost predicts one launch of o that runs alone; see [Clock.Launch].
func (m *Model) cost(o op.Op, types []dtype.Type, mapping npu.Mapping, size op.Size) (Cost, error) {
	kernel, shape, err := ShapeOf(o, size)
	if err != nil {
		return Cost{}, err
	}
	if types, err = operandTypes(o, types, mapping); err != nil {
		return Cost{}, err
	}
	size.Rows = max(size.Rows, rowsOf(o, size))
	p := point{kernel, shape, types[len(types)-1], mapping}
	t := m.terms(p)
	c := Cost{
		Op: o, Kernel: kernel, Shape: shape, Padding: t.padding, Time: t.time, Fixed: t.fixed, Memory: t.memory,
		Compute: t.compute,
		FLOPs:   o.FLOPs(size), Bytes: op.Bytes(o, types, size), Traffic: t.traffic, Bound: boundCompute,
	}
	switch {
	case t.fixed > t.time/2:
		c.Bound = boundStart
	case t.memory >= t.compute:
		c.Bound = boundMemory
	}
	c.Roofline = rooflineOf(kernel, c.FLOPs, c.Bytes)
	c.Note = p.note(o)
	return c, nil
}

// operandTypes returns the operand types of a launch, with defaults if types is nil. It returns an
// error for types that no kernel of the array reads.
func operandTypes(o op.Op, types []dtype.Type, mapping npu.Mapping) ([]dtype.Type, error) {
	operands := o.Operands()
	if types == nil {
		types = make([]dtype.Type, len(operands))
		for i, operand := range operands {
			types[i] = dtype.BF16
			switch {
			case operand.Types[0] == dtype.I32:
				types[i] = dtype.I32
			case o.Kind() == "Cast" && i == 0,
				o.Kind() == "MatMul" && operand.Write &&
					(mapping.Variant == "fused-cast" || mapping.Variant == "f32-out"):
				types[i] = dtype.F32
			}
		}
		return types, nil
	}
	if len(types) != len(operands) {
		return nil, fmt.Errorf("xdna2: %s has %d operands, got %d types", o.Kind(), len(operands), len(types))
	}
	for i, t := range types {
		if t != dtype.BF16 && t != dtype.F32 && t != dtype.I32 {
			return nil, fmt.Errorf("xdna2: %s: operand %q is %v, but kernels read and write BF16 and F32: "+
				"convert it when the constant is made",
				o.Kind(), operands[i].Name, t)
		}
	}
	return types, nil
}

// rowsOf is the number of rows that an op works on: positions, of one sequence.
func rowsOf(o op.Op, size op.Size) int {
	switch o := o.(type) {
	case op.MatMul:
		return size.Resolve(o.M)
	case op.Attention:
		return size.Resolve(o.Rows)
	case op.Add:
		return size.Resolve(o.Rows)
	case op.SiLUMul:
		return size.Resolve(o.Rows)
	case op.GELU:
		return size.Resolve(o.Rows)
	case op.RMSNorm:
		return size.Resolve(o.Rows)
	case op.LayerNorm:
		return size.Resolve(o.Rows)
	case op.RoPE:
		return size.Resolve(o.Rows)
	case op.Cast:
		return size.Resolve(o.Rows)
	case op.KVWrite:
		return size.Resolve(o.Rows)
	case op.Slice:
		return size.Resolve(o.Rows)
	case op.Concat:
		return size.Resolve(o.Rows)
	case op.Embed:
		return size.Resolve(o.Rows)
	case op.Pick:
		return size.Resolve(o.Picks)
	}
	return size.Rows
}

// note returns why a prediction is not backed by measured rows of the same kernel, or "".
func (p point) note(o op.Op) string {
	switch {
	case p.kernel == moveKernel:
		return fmt.Sprintf("%s is not published for the array: predicted as a copy at the speed of an add", o.Kind())
	case p.kernel == Attention && p.shape.Rows == 1:
		return "decode attention is not published for the array: predicted from the K and V that it reads"
	case p.kernel == Add && p.shape.Broadcast:
		return "bias has no standalone row: predicted as an add with one input stream fewer"
	case p.mapping.Variant == "scalar":
		return "scalar kernel times are not published: predicted as if one of 16 lanes were used"
	case p.kernel == LayerNorm && p.shape.Width != 768:
		return "LayerNorm is published in one shape only"
	}
	return ""
}
