package xdna2

import (
	"fmt"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Bound names what limits a kernel or a program.
type Bound string

const (
	BoundStart   Bound = "start"   // fixed costs: too little work for a launch
	BoundMemory  Bound = "memory"  // the DDR and the streams from it
	BoundCompute Bound = "compute" // the cores' inner loops
)

// Cost is the predicted time of one launch that runs alone, in microseconds. It is a prediction, never a measurement.
type Cost struct {
	Op      op.Op
	Kernel  Kernel
	Shape   Shape
	Time    float64 // predicted, us
	Fixed   float64 // start of the launch and of its passes, us
	Memory  float64 // what memory alone would need, us. Memory and Compute overlap: they do not add up to Time - Fixed
	Compute float64 // what the cores alone would need, us
	Bound   Bound

	FLOPs    float64  // floating-point operations of the op
	Bytes    float64  // bytes that it must move at least
	Traffic  float64  // bytes that the kernel moves: tiles are read again
	Padding  float64  // part of a GEMM's multiply-adds that work on padding: the herd covers M and N in whole passes
	Roofline Roofline // what the array could do
	Note     string   // why the prediction rests on less than measured rows; empty otherwise
}

// Duration is the predicted time.
func (c Cost) Duration() time.Duration { return micros(c.Time) }

// Share is the part of the roofline that is reached, 0 to 1.
func (c Cost) Share() float64 { return share(c.Roofline.Time, c.Time) }

func share(roofline, t float64) float64 {
	if t <= 0 {
		return 0
	}
	return roofline / t
}

func micros(us float64) time.Duration { return time.Duration(us * float64(time.Microsecond)) }

// Cost predicts one launch of o that runs alone. Types are those of its operands in order; nil means BF16, and FP32 for what a fused-cast
// GEMM hands to its cast. Parts that the mapping leaves out (tile sizes, herd) take the kernel's usual values. It does not check that the
// mapping can be placed: that is what the rules are for.
func (m *Model) Cost(o op.Op, types []dtype.Type, mapping npu.Mapping, size op.Size) (Cost, error) {
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
		Op: o, Kernel: kernel, Shape: shape, Padding: t.padding, Time: t.time, Fixed: t.fixed, Memory: t.memory, Compute: t.compute,
		FLOPs: o.FLOPs(size), Bytes: op.Bytes(o, types, size), Traffic: t.traffic, Bound: BoundCompute,
	}
	switch {
	case t.fixed > t.time/2:
		c.Bound = BoundStart
	case t.memory >= t.compute:
		c.Bound = BoundMemory
	}
	c.Roofline = RooflineOf(kernel, c.FLOPs, c.Bytes)
	c.Note = p.note(o)
	return c, nil
}

// operandTypes fills in the types of a launch, and refuses what no kernel of the array reads.
func operandTypes(o op.Op, types []dtype.Type, mapping npu.Mapping) ([]dtype.Type, error) {
	operands := o.Operands()
	if types == nil {
		types = make([]dtype.Type, len(operands))
		for i, operand := range operands {
			types[i] = dtype.BF16
			switch {
			case operand.Types[0] == dtype.I32:
				types[i] = dtype.I32
			case o.Kind() == "Cast" && i == 0, o.Kind() == "MatMul" && operand.Write && (mapping.Variant == "fused-cast" || mapping.Variant == "f32-out"):
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
			return nil, fmt.Errorf("xdna2: %s: operand %q is %v; the array's kernels read and write BF16 and F32: convert it when the constant is made",
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

// note says where a prediction stands on less than rows of the same kernel.
func (p point) note(o op.Op) string {
	switch {
	case p.kernel == Move:
		return fmt.Sprintf("nobody has published a %s on the array: priced as a copy that streams like an add", o.Kind())
	case p.kernel == Attention && p.shape.Rows == 1:
		return "nobody has published decode attention on the array: priced by the K and V that it reads"
	case p.kernel == Add && p.shape.Broadcast:
		return "a bias has no standalone row: priced as an add that reads one stream less"
	case p.mapping.Variant == "scalar":
		return "nobody has published a scalar kernel's time: priced as if one of 16 lanes were used"
	case p.kernel == LayerNorm && p.shape.Width != 768:
		return "the published rows have one shape of LayerNorm"
	}
	return ""
}
