// Package op defines the kernels that a program can launch, as types with a shape and parameters.
//
// An op specifies a computation, not its implementation or placement. It names its operands in the
// order in which a launch binds them, returns their shapes, and counts floating-point operations
// and bytes. Devices implement ops, and package oracle implements them independently, so that gates
// can compare the two.
//
//	o := op.MatMul{M: 64, K: 2048, N: 512, TransB: true}
//	for _, d := range o.Operands() { ... }   // a [64 2048], w [512 2048], dst [64 512]
//
// # Conventions
//
// All matrices are row-major. A row is one position of one sequence. Activations are [rows, width],
// and head h of a row uses columns h*headDim to (h+1)*headDim. A dimension is a positive number or
// one of the symbols [Rows], [Picks] and [Capacity], which are resolved at run time. NPU kernels
// are compiled for fixed numbers; a software device accepts any.
//
// GEMM and GEMV are both [MatMul]. A bias is [Add] with Broadcast. QK-norm is [RMSNorm] with Heads.
package op

import (
	"fmt"
	"strings"

	"github.com/npukit/npukit/npu/dtype"
)

// Symbolic dimensions, which are resolved when a program runs.
const (
	Rows     = -1 // rows of the run, summed over its segments
	Picks    = -2 // rows whose logits are computed
	Capacity = -3 // positions that a segment's cache can hold
)

// Op is a kernel with its shape and parameters.
type Op interface {
	// Kind returns the op's name, such as "MatMul".
	Kind() string
	// Operands returns the operands that a launch binds, in order: inputs, then outputs.
	Operands() []Operand
	// FLOPs returns the number of floating-point operations: two for a multiply-add, and a nominal
	// number per element for softmax, norms and activations.
	FLOPs(Size) float64
	// Validate returns an error if the shape or a parameter is invalid.
	Validate() error
}

// Operand is an input or output of an op.
type Operand struct {
	Name  string       // name in the op's documentation, such as "a", "w" or "dst"
	Write bool         // written by the op
	Read  bool         // read by the op; both for a cache that is updated in place
	Shape []int        // dimensions, possibly symbolic
	Types []dtype.Type // types that the op allows; a device may support fewer

	// InPlace reports whether the output may alias this input exactly. Partial overlap is never
	// allowed.
	InPlace bool
}

// Size holds the values of the symbolic dimensions of one run.
type Size struct {
	Rows     int
	Picks    int
	Capacity int
	Pos      int // position of the first row, the number of earlier positions that attention sees
}

// Resolve returns the value of dim if it is a symbol, and dim itself otherwise.
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

// Elements returns the number of elements of a shape with its symbols resolved.
func (s Size) Elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= s.Resolve(d)
	}
	return n
}

// Bytes returns the minimum number of bytes that one launch of o moves. Types are those of the
// operands in order. Each operand counts once. Embedding tables and caches count only the rows that
// are accessed.
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

// ShapeString formats a shape with its symbols, for example [rows 2048].
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

// Types allowed for activations, weights and indices.
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

// over returns an input that the output may alias.
func over(name string, types []dtype.Type, shape ...int) Operand {
	o := in(name, types, shape...)
	o.InPlace = true
	return o
}

func out(name string, types []dtype.Type, shape ...int) Operand {
	return Operand{Name: name, Write: true, Shape: shape, Types: types}
}

// dim is a named dimension to validate.
type dim struct {
	name  string
	value int
	open  bool // Rows and Picks are allowed
}

// maxDim bounds every dimension, so that the product of two does not overflow an int64.
const maxDim = 1 << 28

// positive returns v, or 1 if v is 0, for parameters that default to 1.
func positive(v int) int {
	if v == 0 {
		return 1
	}
	return v
}

// check returns an error for the first dimension that is neither positive nor an allowed symbol.
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
