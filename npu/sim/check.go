package sim

import (
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

// check reports a program that the array could not run. What does not fit is an [*xdna2.ResourceError].
func check(p *npu.Program) error {
	for _, a := range p.Args {
		if a.Kind != npu.State && slices.ContainsFunc(a.Shape, func(d int) bool { return d < 0 }) {
			return &npu.ArgError{Program: p.Name, Arg: a.Name,
				Reason: fmt.Sprintf("npu/sim: it is %s: programs of the array have fixed shapes; write the numbers", op.ShapeString(a.Shape))}
		}
	}
	for _, l := range p.Launches {
		for i, want := range l.Op.Operands() {
			a := p.Args[l.Args[i].Arg]
			if slices.Contains(types(l.Op, i), a.Type) || a.Kind == npu.Const && !slices.Contains(want.Types, dtype.I32) {
				continue
			}
			return &npu.ArgError{Program: p.Name, Launch: l.Name, Arg: a.Name,
				Reason: fmt.Sprintf("npu/sim: it is %s, and %s takes %v as %s on the array", a.Type, l.Op.Kind(), types(l.Op, i), want.Name)}
		}
	}
	return xdna2.Check(p, xdna2.NPU2())
}

// types are what the array's kernels take as the i-th operand of o: BF16, but that a GEMM may leave its FP32 sums to the cast that follows it. Weights
// come as BF16 whatever the program says: see [Device.Const].
func types(o op.Op, i int) []dtype.Type {
	want := o.Operands()[i]
	_, matmul := o.(op.MatMul)
	_, cast := o.(op.Cast)
	switch {
	case slices.Contains(want.Types, dtype.I32):
		return want.Types
	case cast, matmul && want.Write:
		return []dtype.Type{dtype.BF16, dtype.F32}
	}
	return []dtype.Type{dtype.BF16}
}
