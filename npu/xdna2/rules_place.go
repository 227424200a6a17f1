package xdna2

import (
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// place is a launch that is to be placed: a kernel with its shape and mapping, seen by the rules. A number of the mapping that is not
// stated is 0 and decides nothing, so that a rule can also be asked about a measurement that does not tell everything.
type place struct {
	array  *Array
	op     op.Op // nil for a row of the registry
	kernel Kernel
	shape  Shape
	out    dtype.Type
	types  []dtype.Type // one for each operand, or nil where they are not known
	m      npu.Mapping

	// Known inside a program only.
	views  []npu.View
	shapes [][]int // shape of each view
	stride []int   // elements from row to row of each view
	stage  stage   // what a fused kernel computes
}

// stage is the kernel that launches with the same Mapping.Fused are together.
type stage int

const (
	alone       stage = iota
	gemvAdd           // MatMul and Add: a projection onto the residual stream
	swiglu            // RMSNorm, two MatMuls and SiLUMul
	unknownFuse       // nothing that has been built
)

// newPlace reads a launch. Dimensions must be numbers: a kernel is compiled for a shape.
func newPlace(a *Array, o op.Op, types []dtype.Type, m npu.Mapping) (*place, error) {
	if o == nil {
		return nil, fmt.Errorf("xdna2: a launch without an op")
	}
	operands := o.Operands()
	if types != nil && len(types) != len(operands) {
		return nil, fmt.Errorf("xdna2: %s has %d operands, got %d types", o.Kind(), len(operands), len(types))
	}
	k, s, err := ShapeOf(o, fixedSize(o))
	if err != nil {
		return nil, err
	}
	p := &place{array: a, op: o, kernel: k, shape: s, out: dtype.BF16, types: types, m: m}
	if k == GEMM && m.Variant == "fused-cast" || m.Variant == "f32-out" {
		p.out = dtype.F32
	}
	for i, t := range types {
		if operands[i].Write {
			p.out = t
		}
	}
	return p, nil
}

// fixedSize gives the symbols of an op with open dimensions some number, so that its kernel can be named; R-KER-2 refuses it.
func fixedSize(o op.Op) op.Size {
	if openRows(o) {
		return op.Size{Rows: 2, Picks: 2, Capacity: 2}
	}
	return op.Size{}
}

// openRows reports whether an op has rows that only a run knows. The capacity of a cache does not count: it is the buffer's.
func openRows(o op.Op) bool {
	for _, operand := range o.Operands() {
		for _, d := range operand.Shape {
			if d == op.Rows || d == op.Picks {
				return true
			}
		}
	}
	return false
}

// tile is the i-th number of the mapping's tile, 0 when it is not stated.
func (p *place) tile(i int) int {
	if i < len(p.m.Tile) {
		return max(0, p.m.Tile[i])
	}
	return 0
}

// herd is the number of columns and rows of cores.
func (p *place) herd() (cols, rows int) {
	if len(p.m.Herd) > 0 {
		cols = max(0, p.m.Herd[0])
	}
	if len(p.m.Herd) > 1 {
		rows = max(0, p.m.Herd[1])
	}
	return cols, rows
}

// cores is how many cores compute, 0 when that is not stated.
func (p *place) cores() int {
	cols, rows := p.herd()
	return cols * rows
}

func stated(n ...int) bool {
	for _, x := range n {
		if x <= 0 {
			return false
		}
	}
	return true
}

// fusedMember reports whether the launch is computed inside another's kernel and has no mapping of its own.
func (p *place) fusedMember() bool { return p.m.Fused != "" && p.kernel != GEMV }

// roundedUp divides and rounds up.
func roundedUp(a, b int) int { return (a + b - 1) / b }
