package oracle

import (
	"context"
	"fmt"
	"math"

	"github.com/npukit/npukit/npu/op"
)

// gather computes dst[i] = rows[index[i]], for Embed and Pick.
//
//	dst   [len(index), width]
//	index [len(index)]         each in [0, len(rows)/width)
//	rows  [any, width]
func gather(ctx context.Context, dst []float32, index []int32, rows []float32, width int) error {
	for i, r := range index {
		if r < 0 || int(r) >= len(rows)/width {
			return fmt.Errorf("index %d is %d, want 0 to %d", i, r, len(rows)/width-1)
		}
	}
	return spans(ctx, len(index), width, func(from, to int) {
		for i := from; i < to; i++ {
			copy(dst[i*width:][:width], rows[int(index[i])*width:])
		}
	})
}

// rmsNorm divides each row by its root mean square and scales it. With Heads, each head is
// normalized separately with the same w.
//
//	dst, x [Rows, Heads*Width]   may alias
//	w      [Width]
//
// Source: Zhang and Sennrich (arXiv 1910.07467), eq. 4, with Eps under the root as in all the
// models.
func rmsNorm(ctx context.Context, o op.RMSNorm, dst, x, w []float32) error {
	n := o.Width
	return spans(ctx, o.Rows*max(1, o.Heads), n, func(from, to int) {
		for r := from; r < to; r++ {
			x, dst := x[r*n:][:n], dst[r*n:][:n]
			squares := 0.0
			for _, v := range x {
				squares += float64(v) * float64(v)
			}
			rms := math.Sqrt(squares/float64(n) + o.Eps)
			for i, v := range x {
				dst[i] = float32(float64(v) / rms * float64(w[i]))
			}
		}
	})
}

// layerNorm subtracts each row's mean, divides by its standard deviation, scales and shifts.
//
//	dst, x [Rows, Width]   may alias
//	w, b   [Width]
//
// Source: Ba et al. (arXiv 1607.06450), eq. 4, with the biased variance (divided by Width).
func layerNorm(ctx context.Context, o op.LayerNorm, dst, x, w, b []float32) error {
	n := o.Width
	return spans(ctx, o.Rows, n, func(from, to int) {
		for r := from; r < to; r++ {
			x, dst := x[r*n:][:n], dst[r*n:][:n]
			sum := 0.0
			for _, v := range x {
				sum += float64(v)
			}
			mean := sum / float64(n)
			squares := 0.0
			for _, v := range x {
				squares += (float64(v) - mean) * (float64(v) - mean)
			}
			deviation := math.Sqrt(squares/float64(n) + o.Eps)
			for i, v := range x {
				dst[i] = float32((float64(v)-mean)/deviation*float64(w[i]) + float64(b[i]))
			}
		}
	})
}
