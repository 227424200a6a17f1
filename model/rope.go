package model

import "math"

// ropeRow writes one row of the table that op.RoPE reads.
//
//	dst  [headDim]    headDim/2 cosines, then headDim/2 sines, of pos * freq
//	freq [headDim/2]  radians per position, scaled (checkpoint.RoPE.InvFreq)
//
// Frequencies and angles are rounded to FP32 because the models were trained with angles computed that way (transformers keeps both in float32): at position
// 100,000 such an angle is already off by some thousandths of a radian, and the weights know no other.
func ropeRow(dst []float32, freq []float32, pos int) {
	half := len(freq)
	for i, f := range freq {
		sin, cos := math.Sincos(float64(float32(pos) * f))
		dst[i], dst[half+i] = float32(cos), float32(sin)
	}
}
