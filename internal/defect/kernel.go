package defect

import (
	"fmt"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Kernel is a launch with its memory, for a computation on the host.
type Kernel struct {
	Op       op.Op
	Operands []Matrix // in the op's order; empty where the operand is a cache, which segments bring
	Segments []Segment
}

// Segment is one session's rows.
type Segment struct {
	Row, Rows int // first row, and how many
	Pos       int // position of the first
	// By operand; empty where the operand is no cache. The rows of one head follow those of the
	// other.
	Caches []Matrix
}

// Matrix is an operand's memory: rows of Width elements. A shape of three dimensions has the rows
// of the first two.
type Matrix struct {
	Type                dtype.Type
	Data                []byte
	Rows, Width, Stride int // Stride is from row to row, in elements
}

// Row is a copy of row r as FP32.
func (m Matrix) Row(r int) []float32 {
	x := make([]float32, m.Width)
	if err := dtype.Dequantize(x, m.Type, m.row(r)); err != nil {
		panic(fmt.Sprintf("defect: row of %v: %v", m.Type, err)) // kernels read what is in no blocks
	}
	return x
}

// SetRow stores x as row r.
func (m Matrix) SetRow(r int, x []float32) {
	switch b := m.row(r); m.Type {
	case dtype.F32:
		copy(b, dtype.AsBytes(x))
	case dtype.BF16:
		y := make([]dtype.BFloat16, len(x))
		dtype.F32ToBF16(y, x)
		copy(b, dtype.AsBytes(y))
	case dtype.F16:
		y := make([]dtype.Float16, len(x))
		dtype.F32ToF16(y, x)
		copy(b, dtype.AsBytes(y))
	}
}

// Index is element r of an operand of indices.
func (m Matrix) Index(r int) int { return int(dtype.Int32s(m.Data)[r]) }

func (m Matrix) row(r int) []byte { return m.Data[m.Type.Bytes(r*m.Stride):][:m.Type.Bytes(m.Width)] }

// in is row r of operand i. An operand of one row is the same for all.
func (k *Kernel) in(i, r int) []float32 {
	m := k.Operands[i]
	return m.Row(min(r, m.Rows-1))
}

// out is the operand that is written, the last one.
func (k *Kernel) out() Matrix { return k.Operands[len(k.Operands)-1] }

// rows computes the output row by row.
func (k *Kernel) rows(f func(r int) []float32) {
	y := k.out()
	for r := range y.Rows {
		y.SetRow(r, f(r))
	}
}
