package oracle

import (
	"context"
	"math"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu/op"
)

// rope rotates every head of every row. Elements i and i+HeadDim/2 are a point that rotates by the
// row's i-th angle.
//
//	dst, x [Rows, Heads*HeadDim]        may alias
//	table  [Rows, TableHeads*HeadDim]   HeadDim/2 cosines, then HeadDim/2 sines
//
// Source: Su et al., RoFormer (arXiv 2104.09864), eq. 34, with the pairs of transformers'
// rotate_half.
func rope(ctx context.Context, o op.RoPE, dst, x, table []float32) error {
	n, half := o.HeadDim, o.HeadDim/2
	return spans(ctx, o.Rows, o.Heads*n, func(from, to int) {
		for r := from; r < to; r++ {
			for h := range o.Heads {
				angle := r
				if o.TableHeads > 1 {
					angle = r*o.Heads + h
				}
				cos, sin := table[angle*n:][:half], table[angle*n+half:][:half]
				x, dst := x[(r*o.Heads+h)*n:][:n], dst[(r*o.Heads+h)*n:][:n]
				for i := range half {
					a, b := float64(x[i]), float64(x[i+half])
					c, s := float64(cos[i]), float64(sin[i])
					dst[i], dst[i+half] = float32(a*c-b*s), float32(b*c+a*s)
				}
			}
		}
	})
}

// ropeTable fills the table of rows at positions pos, pos+1, ...
//
//	table [rows, 2*len(freq)]   cosines, then sines
//	freq  [headDim/2]           radians per position
//
// An angle is the FP32 product of position and frequency, as in transformers. Its relative error is
// up to 2^-24, some thousandths of a radian at position 100,000. The models were trained with that
// error.
func ropeTable(table []float32, freq []float32, rows, pos int) {
	half := len(freq)
	for r := range rows {
		row := table[r*2*half:][:2*half]
		for i, f := range freq {
			angle := float64(float32(pos+r) * f)
			row[i], row[half+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
}

// frequencies returns RoPE's radians per position [headDim/2], scaled as the model requires, in
// FP32 at every step like transformers.
//
// Unscaled, the i-th is theta^(-2i/headDim). Source: RoFormer, section 3.2.2; transformers'
// compute_default_rope_parameters and compute_llama3_parameters.
func frequencies(r checkpoint.RoPE, headDim int) []float32 {
	freq := make([]float32, headDim/2)
	for i := range freq {
		exponent := float32(2*i) / float32(headDim)
		f := 1 / float32(math.Pow(r.Theta, float64(exponent)))
		switch r.Scaling {
		case "linear": // positions are closer together
			f /= float32(r.Factor)
		case "factors": // a divisor per frequency, from a GGUF file
			f /= r.FreqFactors[i]
		case "llama3":
			f = scaleLlama3(f, r)
		}
		freq[i] = f
	}
	return freq
}

// scaleLlama3 scales the frequencies of a model trained on OriginalContext positions. It divides a
// frequency by Factor if it completes less than LowFreqFactor turns in the original context, and
// returns it unchanged if it completes more than HighFreqFactor. In between it interpolates
// linearly.
//
// Source: Llama 3.1's apply_scaling as in transformers' compute_llama3_parameters.
func scaleLlama3(f float32, r checkpoint.RoPE) float32 {
	context, factor := float32(r.OriginalContext), float32(r.Factor)
	low, high := float32(r.LowFreqFactor), float32(r.HighFreqFactor)
	wavelength := 2 * math.Pi / f // positions per turn
	switch {
	case wavelength > context/low:
		return f / factor
	case wavelength < context/high:
		return f
	}
	smooth := (context/wavelength - low) / (high - low)
	return (1-smooth)*(f/factor) + smooth*f
}
