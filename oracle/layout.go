package oracle

import "github.com/npukit/npukit/npu/op"

// permute copies with the dimensions in another order: dimension d of dst is dimension Perm[d] of x.
//
//	dst [Shape[Perm[0]], Shape[Perm[1]], ...]
//	x   [Shape]
func permute(o op.Permute, dst, x []float32) {
	// step[d] is how far apart in x the elements are that are neighbours in dimension d of dst.
	strides := make([]int, len(o.Shape))
	for d, stride := len(o.Shape)-1, 1; d >= 0; d-- {
		strides[d] = stride
		stride *= o.Shape[d]
	}
	extent, step := make([]int, len(o.Perm)), make([]int, len(o.Perm))
	for d, p := range o.Perm {
		extent[d], step[d] = o.Shape[p], strides[p]
	}
	index := make([]int, len(o.Perm)) // of dst's element, counted up like an odometer
	at := 0                           // where the same element is in x
	for i := range dst {
		dst[i] = x[at]
		for d := len(index) - 1; d >= 0; d-- {
			index[d]++
			at += step[d]
			if index[d] < extent[d] {
				break
			}
			at -= extent[d] * step[d]
			index[d] = 0
		}
	}
}

// slice copies columns From to From+N of every row.
//
//	dst [Rows, N]
//	x   [Rows, Width]
func slice(o op.Slice, dst, x []float32) {
	for r := range o.Rows {
		copy(dst[r*o.N:][:o.N], x[r*o.Width+o.From:])
	}
}

// concat puts rows side by side.
//
//	dst   [Rows, sum of Widths]
//	in[i] [Rows, Widths[i]]
func concat(o op.Concat, dst []float32, in [][]float32) {
	at := 0
	for r := range o.Rows {
		for i, w := range o.Widths {
			at += copy(dst[at:], in[i][r*w:][:w])
		}
	}
}
