package sim

import (
	"math"

	"github.com/npukit/npukit/npu/dtype"
)

// matrix is an operand in memory: rows of width elements with the given stride. Exactly one of bf
// and f is set.
type matrix struct {
	bf                  []dtype.BFloat16
	f                   []float32
	rows, width, stride int
}

// row returns row r as FP32. The result aliases m.f if m is FP32; otherwise it uses buf, which must
// have room for a row.
func (m *matrix) row(buf []float32, r int) []float32 {
	if m.f != nil {
		return m.f[r*m.stride:][:m.width]
	}
	buf = buf[:m.width]
	for i, v := range m.bf[r*m.stride:][:m.width] {
		buf[i] = math.Float32frombits(uint32(v) << 16)
	}
	return buf
}

// store writes row r. It rounds down if m is BF16.
func (m *matrix) store(r int, x []float32) {
	if m.f != nil {
		copy(m.f[r*m.stride:][:m.width], x)
		return
	}
	dst := m.bf[r*m.stride:][:m.width]
	for i, v := range x[:len(dst)] {
		dst[i] = roundDown(v)
	}
}
