package fault

import (
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// blockless is the type in which a device shows the bytes of a quantized weight.
const blockless = dtype.BF16

// Matrix is an operand as rows of Width elements. An operand of three dimensions has the rows of
// the first two.
type Matrix struct {
	Type                dtype.Type
	Rows, Width, Stride int // Stride is from row to row, in elements

	buf npu.Buffer
	at  int // offset in elements
}

// Same reports whether two operands start at the same element.
func (m Matrix) Same(n Matrix) bool { return m.buf == n.buf && m.at == n.at }

// Sync makes the output of the device visible to the host, or the other way.
func (m Matrix) Sync(dir npu.Direction) error { return m.buf.Sync(dir, 0, m.buf.Len()) }

// Row returns a copy of row r as FP32. The host must see it: see Sync.
func (m Matrix) Row(r int) []float32 {
	x := make([]float32, m.Width)
	if err := dtype.Dequantize(x, m.Type, m.bytes(r)); err != nil {
		panic(fmt.Sprintf("fault: row of %v: %v", m.Type, err)) // operands have no blocks
	}
	return x
}

// SetRow writes x as row r, rounded to the type.
func (m Matrix) SetRow(r int, x []float32) {
	switch b := m.bytes(r); m.Type {
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
	default:
		panic(fmt.Sprintf("fault: writing a row of %v", m.Type)) // no op writes it
	}
}

// Index returns element r of an operand of indices.
func (m Matrix) Index(r int) int { return int(dtype.Int32s(m.buf.Bytes()[4*m.at:])[r]) }

// Values reads the matrix as the device has it.
func (m Matrix) Values() ([]float32, error) {
	if err := m.Sync(npu.FromDevice); err != nil {
		return nil, err
	}
	values := make([]float32, 0, m.Rows*m.Width)
	for r := range m.Rows {
		values = append(values, m.Row(r)...)
	}
	return values, nil
}

// SetValues writes the matrix for the device.
func (m Matrix) SetValues(values []float32) error {
	for r := range m.Rows {
		m.SetRow(r, values[r*m.Width:][:m.Width])
	}
	return m.Sync(npu.ToDevice)
}

func (m Matrix) bytes(r int) []byte {
	from := m.Type.Bytes(m.at + r*m.Stride)
	return m.buf.Bytes()[from:][:m.Type.Bytes(m.Width)]
}

// Edit returns a fault that runs the launch and changes its output.
func Edit(change func(y []float32, width int)) Fault {
	return func(s *Step, run func() error) error {
		if err := run(); err != nil {
			return err
		}
		out := s.Out()
		y, err := out.Values()
		if err != nil {
			return err
		}
		change(y, out.Width)
		return out.SetValues(y)
	}
}
