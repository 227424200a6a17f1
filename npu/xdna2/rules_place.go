package xdna2

import (
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// place is a launch with its shape and mapping, the input of the rules. Numbers of the mapping that
// are not stated are 0, and rules that need them are undecided, so rules also apply to measurements
// with incomplete mappings.
type place struct {
	array  *Array
	op     op.Op // nil for a row of the registry
	kernel Kernel
	shape  Shape
	out    dtype.Type
	types  []dtype.Type // one per operand, or nil if unknown
	m      npu.Mapping

	// Set for launches of a program only.
	views  []npu.View
	shapes [][]int // shape of each view
	stride []int   // row stride of each view in elements
	stage  stage   // fused kernel that computes the launch
}

// stage is the fused kernel that a group of launches with the same Mapping.Fused forms.
type stage int

const (
	alone       stage = iota
	gemvAdd           // MatMul and Add: a projection onto the residual stream
	swiglu            // RMSNorm, two MatMuls and SiLUMul
	unknownFuse       // no such kernel
)

// newPlace returns the place of a launch, or an error if the op is invalid.
func newPlace(a *Array, o op.Op, types []dtype.Type, m npu.Mapping) (*place, error) {
	if o == nil {
		return nil, fmt.Errorf("xdna2: launch has no op")
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

// fixedSize returns a size for symbolic dimensions, so that the kernel of an op can be named;
// R-KER-2 then rejects it.
func fixedSize(o op.Op) op.Size {
	if openRows(o) {
		return op.Size{Rows: 2, Picks: 2, Capacity: 2}
	}
	return op.Size{}
}

// openRows reports whether an op has a symbolic number of rows or picks. The capacity of a cache
// does not count.
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

// tile returns the i-th number of the mapping's tile, or 0 if it is not stated.
func (p *place) tile(i int) int {
	if i < len(p.m.Tile) {
		return max(0, p.m.Tile[i])
	}
	return 0
}

// herd returns the herd's columns and rows, 0 if not stated.
func (p *place) herd() (cols, rows int) {
	if len(p.m.Herd) > 0 {
		cols = max(0, p.m.Herd[0])
	}
	if len(p.m.Herd) > 1 {
		rows = max(0, p.m.Herd[1])
	}
	return cols, rows
}

// cores returns the number of cores in the herd, or 0 if it is not stated.
func (p *place) cores() int {
	cols, rows := p.herd()
	return cols * rows
}

// stated reports whether all numbers are positive.
func stated(n ...int) bool {
	for _, x := range n {
		if x <= 0 {
			return false
		}
	}
	return true
}

// fusedMember reports whether another launch's kernel computes the launch, which then has no
// mapping.
func (p *place) fusedMember() bool { return p.m.Fused != "" && p.kernel != GEMV }

// divUp returns a/b rounded up.
func divUp(a, b int) int { return (a + b - 1) / b }
