package model

import (
	"math"

	"github.com/npukit/npukit/model/internal/hostvalue"
	"github.com/npukit/npukit/npu/dtype"
)

// ropeRow computes a row of the table that op.RoPE reads.
//
//	dst  [headDim]    headDim/2 cosines, then headDim/2 sines, of pos * freq
//	freq [headDim/2]  radians per position, scaled (checkpoint.RoPE.InvFreq)
//
// Frequencies and angles are rounded to FP32, because the models were trained with angles computed
// that way (transformers keeps both in float32). At position 100,000 the rounding error is
// thousandths of a radian, so exact angles would differ from those of training.
func ropeRow(dst []float32, freq []float32, pos int) {
	half := len(freq)
	for i, f := range freq {
		sin, cos := math.Sincos(float64(float32(pos) * f))
		dst[i], dst[half+i] = float32(cos), float32(sin)
	}
}

// fillRoPE writes the cosines and sines of the inputs' positions, row by row, each repeated to fill
// the row.
func (e *executor) fillRoPE(v *value, inputs []*input, rows int) {
	width := 2 * len(e.freq)
	total := v.buf.Len() / v.Type.Bytes(1)
	per := hostvalue.RoPEWidth(v.Name, v.Shape)
	line := make([]float32, width)
	row := 0
	for _, in := range inputs {
		for r := range in.ids {
			if (row+1)*per > total {
				break // the value is of another pass, with fewer rows
			}
			ropeRow(line, e.freq, in.pos+r)
			for from := row * per; from < (row+1)*per; from += width {
				if v.Type == dtype.BF16 {
					dtype.F32ToBF16(dtype.BFloat16s(v.buf.Bytes())[from:from+width], line)
				} else {
					copy(dtype.Float32s(v.buf.Bytes())[from:from+width], line)
				}
			}
			row++
		}
	}
	v.hostWrites(v.Type.Bytes(min(rows*per, total)))
}
