package oracle

import (
	"context"

	"github.com/npukit/npukit/npu/op"
)

// permute copies x with its dimensions reordered: dimension d of dst is dimension Perm[d] of x.
//
//	dst [Shape[Perm[0]], Shape[Perm[1]], ...]
//	x   [Shape]
func permute(ctx context.Context, o op.Permute, dst, x []float32) error {
	strides := make([]int, len(o.Shape)) // of x
	for d, stride := len(o.Shape)-1, 1; d >= 0; d-- {
		strides[d] = stride
		stride *= o.Shape[d]
	}
	return spans(ctx, len(dst), 1, func(from, to int) {
		for i := from; i < to; i++ {
			// Split i into indices of dst, the last dimension first.
			at, rest := 0, i
			for d := len(o.Perm) - 1; d >= 0; d-- {
				p := o.Perm[d]
				at += rest % o.Shape[p] * strides[p]
				rest /= o.Shape[p]
			}
			dst[i] = x[at]
		}
	})
}

// slice copies columns From to From+N of every row.
//
//	dst [Rows, N]
//	x   [Rows, Width]
func slice(ctx context.Context, o op.Slice, dst, x []float32) error {
	return spans(ctx, o.Rows, o.N, func(from, to int) {
		for r := from; r < to; r++ {
			copy(dst[r*o.N:][:o.N], x[r*o.Width+o.From:])
		}
	})
}

// concat concatenates rows.
//
//	dst   [Rows, sum of Widths]
//	in[i] [Rows, Widths[i]]
func concat(ctx context.Context, o op.Concat, dst []float32, in [][]float32) error {
	width := len(dst) / o.Rows
	return spans(ctx, o.Rows, width, func(from, to int) {
		at := from * width
		for r := from; r < to; r++ {
			for i, w := range o.Widths {
				at += copy(dst[at:], in[i][r*w:][:w])
			}
		}
	})
}
