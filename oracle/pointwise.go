package oracle

import (
	"context"
	"math"

	"github.com/npukit/npukit/npu/op"
)

// siLUMul computes the gate of SwiGLU: SiLU(gate) * up, with SiLU(g) = g / (1 + exp(-g)).
//
//	dst, gate, up [Rows, Width]   may alias
//
// Source: Shazeer (arXiv 2002.05202), eq. 6, where Swish with beta 1 is SiLU.
func siLUMul(ctx context.Context, o op.SiLUMul, dst, gate, up []float32) error {
	return spans(ctx, o.Rows*o.Width, 1, func(from, to int) {
		for i := from; i < to; i++ {
			g := float64(gate[i])
			dst[i] = float32(g / (1 + math.Exp(-g)) * float64(up[i]))
		}
	})
}

// gelu computes x times the probability that a standard normal variable is below x, or its tanh
// approximation.
//
//	dst, x [Rows, Width]   may alias
//
// Source: Hendrycks and Gimpel (arXiv 1606.08415), section 2.
func gelu(ctx context.Context, o op.GELU, dst, x []float32) error {
	return spans(ctx, o.Rows*o.Width, 1, func(from, to int) {
		for i := from; i < to; i++ {
			v := float64(x[i])
			probability := 0.5 * math.Erfc(-v/math.Sqrt2) // 1 + Erf would cancel for negative v
			if o.Tanh {
				probability = 0.5 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
			}
			dst[i] = float32(v * probability)
		}
	})
}

// add computes dst = a + b. With Broadcast, b is one row that is added to every row of a.
//
//	dst, a [Rows, Width]                              may alias
//	b      [Rows, Width], or [Width] with Broadcast
func add(ctx context.Context, o op.Add, dst, a, b []float32) error {
	n := o.Width
	return spans(ctx, o.Rows, n, func(from, to int) {
		for r := from; r < to; r++ {
			a, dst, b := a[r*n:][:n], dst[r*n:][:n], b
			if !o.Broadcast {
				b = b[r*n:][:n]
			}
			for i, v := range a {
				dst[i] = v + b[i]
			}
		}
	})
}
