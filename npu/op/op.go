// Package op is the vocabulary of the mathematics: every kernel that a program can launch, as a shape and parameters.
//
// An op says what is computed, never how or where. It names its operands in the order in which a launch binds them, gives their shapes, and
// counts its floating-point operations and the bytes that it must move. Devices implement ops; the oracle implements them again, sharing
// nothing; gates compare the two.
//
//	o := op.MatMul{M: 64, K: 2048, N: 512, TransB: true}
//	for _, d := range o.Operands() { ... }   // a [64 2048], w [512 2048], dst [64 512]
//
// # Conventions
//
// All matrices are row-major. A row is one position of one sequence; activations are [rows, width] with the heads of a row side by side
// (head h occupies columns h*headDim to (h+1)*headDim). A dimension is a positive number, or one of the symbols [Rows], [Picks] and [Capacity] that
// a run fills in: real NPU kernels are compiled for fixed numbers, a software device takes any.
//
// GEMM and GEMV are both [MatMul]. A bias is [Add] with Broadcast. Normalising q and k head by head is [RMSNorm] with Heads.
package op

import (
	"fmt"
	"strings"

	"github.com/npukit/npukit/npu/dtype"
)

// Symbols for dimensions that are known when a program runs. They stand where a shape has a number.
const (
	Rows     = -1 // rows of the run: the sum over its segments
	Picks    = -2 // rows picked out of them, the ones whose logits are wanted
	Capacity = -3 // positions that a segment's state has room for
)

// Op is one kernel's mathematics with its shape.
type Op interface {
	// Kind is the op's name, such as "MatMul".
	Kind() string
	// Operands are what a launch binds, in order: what is read, then what is written.
	Operands() []Operand
	// FLOPs counts floating-point operations as the field does: two for a multiply-add, and for softmax, norms and activations a
	// nominal few per element.
	FLOPs(Size) float64
	// Validate reports a shape or parameter that no device could compute.
	Validate() error
}

// Operand is one thing that an op reads or writes.
type Operand struct {
	Name  string       // "a", "w", "dst": the name in the op's documentation
	Write bool         // written by the op
	Read  bool         // read by the op; both for a cache that is updated in place
	Shape []int        // dimensions, possibly symbolic
	Types []dtype.Type // types that the mathematics allows; devices may take fewer

	// InPlace says of an operand that is read that the output may be written over it, element for element. What is written overlaps no other.
	InPlace bool
}

// Size gives the symbols their numbers for one run.
type Size struct {
	Rows     int
	Picks    int
	Capacity int
	Pos      int // position of the first row: how much past an attention sees
}

// Resolve replaces a symbol by its number and leaves a number alone.
func (s Size) Resolve(dim int) int {
	switch dim {
	case Rows:
		return s.Rows
	case Picks:
		return s.Picks
	case Capacity:
		return s.Capacity
	}
	return dim
}

// Elements is the number of elements of a shape under s.
func (s Size) Elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= s.Resolve(d)
	}
	return n
}

// Bytes is what one launch of o must move at least. Types gives the type of each operand, in order. Every operand counts once, but of a table
// and of a cache only what is touched: the rows gathered, the rows written, the positions that attention sees.
func Bytes(o Op, types []dtype.Type, s Size) float64 {
	s.Capacity = s.Pos + s.Rows
	var total float64
	for i, operand := range o.Operands() {
		elements := s.Elements(operand.Shape)
		switch o := o.(type) {
		case Embed:
			if operand.Name == "table" {
				elements = s.Resolve(o.Rows) * o.Width
			}
		case KVWrite:
			elements = s.Resolve(o.Rows) * o.KVHeads * o.HeadDim
		}
		block, bytes := types[i].Block()
		total += float64(elements) * float64(bytes) / float64(block)
	}
	return total
}

// ShapeString writes a shape with its symbols: [rows 2048].
func ShapeString(shape []int) string {
	parts := make([]string, len(shape))
	for i, d := range shape {
		switch d {
		case Rows:
			parts[i] = "rows"
		case Picks:
			parts[i] = "picks"
		case Capacity:
			parts[i] = "capacity"
		default:
			parts[i] = fmt.Sprint(d)
		}
	}
	return "[" + strings.Join(parts, " ") + "]"
}

// Types that the mathematics allows for activations, weights, indices.
var (
	activation = []dtype.Type{dtype.F32, dtype.BF16}
	weight     = []dtype.Type{
		dtype.F32, dtype.F16, dtype.BF16,
		dtype.Q8_0, dtype.Q4_0, dtype.Q4_1, dtype.Q5_0, dtype.Q5_1, dtype.Q4_K, dtype.Q5_K, dtype.Q6_K,
	}
	index = []dtype.Type{dtype.I32}
)

func in(name string, types []dtype.Type, shape ...int) Operand {
	return Operand{Name: name, Read: true, Shape: shape, Types: types}
}

// over is an operand that the output may be written over.
func over(name string, types []dtype.Type, shape ...int) Operand {
	o := in(name, types, shape...)
	o.InPlace = true
	return o
}

func out(name string, types []dtype.Type, shape ...int) Operand {
	return Operand{Name: name, Write: true, Shape: shape, Types: types}
}

// dim is a named dimension for validation.
type dim struct {
	name  string
	value int
	open  bool // may be Rows or Picks
}

// maxDim bounds every dimension, so that products of two fit an int64 with room: no model comes near it.
const maxDim = 1 << 28

// positive is a parameter that may be left out for 1.
func positive(v int) int {
	if v == 0 {
		return 1
	}
	return v
}

// check reports the first dimension that is not positive (or symbolic where that is allowed).
func check(kind string, dims ...dim) error {
	for _, d := range dims {
		if d.open && (d.value == Rows || d.value == Picks) {
			continue
		}
		if d.value <= 0 || d.value > maxDim {
			return fmt.Errorf("op: %s: %s is %d, want 1 to %d", kind, d.name, d.value, maxDim)
		}
	}
	return nil
}
