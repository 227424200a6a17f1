package gokernel

import (
	"unsafe"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"
)

// pack converts rows of activations to FP32, one after the other.
func (w *worker) pack(c *kernel.Command, chunk int64) {
	panels := unsafe.Slice((*float32)(c.Y), c.M*c.K)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		convert(panels[r*c.K:][:c.K], kernel.Element(c.A, c.AT, r*c.LDA), c.AT)
	}
}

// gemmColumns is the number of columns of a chunk.
const gemmColumns = 32

func gemmChunks(c *kernel.Command) int64 { return (c.N + gemmColumns - 1) / gemmColumns }

// gemm multiplies all rows of activations, packed as FP32, by four rows of weights at a time.
func (w *worker) gemm(c *kernel.Command, chunk int64) {
	k := c.K
	a := unsafe.Slice((*float32)(c.A), c.M*k)
	weights := grow(&w.weights, 4*k)
	var y [4]float32
	for n, end := chunk*gemmColumns, min(c.N, (chunk+1)*gemmColumns); n < end; n += 4 {
		cols := min(4, end-n)
		// row by row: a row's sum must not depend on their number
		if c.M <= gemvRows && c.BT == kernel.BF16 && c.Flags&kernel.FlagKN == 0 {
			for m := range c.M {
				for j := range cols {
					y[j] = dotBF16(a[m*k:][:k], unsafe.Slice((*uint16)(kernel.Element(c.B, c.BT, (n+j)*c.LDB)), k))
				}
				put(c, m, n, y[:cols])
			}
			continue
		}
		for j := range cols {
			w.weightRow(weights[j*k:][:k], c, n+j)
		}
		clear(weights[cols*k:])
		m := int64(0)
		for ; m+2 <= c.M && !w.cancelled(); m += 2 {
			var y2 [4]float32
			dot2x4(&y, &y2, a[m*k:][:k], a[(m+1)*k:][:k], weights)
			put(c, m, n, y[:cols])
			put(c, m+1, n, y2[:cols])
		}
		if m < c.M {
			var y2 [4]float32
			row := a[m*k:][:k]
			dot2x4(&y, &y2, row, row, weights)
			put(c, m, n, y[:cols])
		}
	}
}

// put stores results of a product, fused or not, at a row and from a column on.
func put(c *kernel.Command, row, column int64, y []float32) {
	var other [kernel.GroupRows]float32
	if c.Flags&(kernel.FlagsFused) != 0 {
		convert(other[:len(y)], kernel.Element(c.C, c.CT, row*c.LDC+column), c.CT)
	}
	for i, x := range other[:len(y)] {
		switch {
		case c.Flags&kernel.FlagPlus != 0:
			y[i] += x
		case c.Flags&kernel.FlagGated != 0:
			y[i] *= silu(x)
		}
	}
	store(c.Y, c.YT, row*c.LDY+column, y)
}

// weightRow converts the weights of output n to FP32.
func (w *worker) weightRow(dst []float32, c *kernel.Command, n int64) {
	switch {
	case kernel.IsGrouped(c.BT):
		UngroupRow(dst, c.B, c.BT, n)
		return
	case c.Flags&kernel.FlagKN == 0:
		convert(dst, kernel.Element(c.B, c.BT, n*c.LDB), c.BT)
		return
	}
	for i := range dst {
		convert(dst[i:i+1], kernel.Element(c.B, c.BT, int64(i)*c.LDB+n), c.BT)
	}
}

// dot2x4 computes the dot products of two rows of activations with four adjacent rows of weights.
// The eight sums are independent, which hides the latency of additions.
func dot2x4(y, z *[4]float32, a, b, weights []float32) {
	k := len(a)
	b = b[:k]
	w0, w1, w2, w3 := weights[:k], weights[k:][:k], weights[2*k:][:k], weights[3*k:][:k]
	var y0, y1, y2, y3, z0, z1, z2, z3 float32
	for i, x := range a {
		v := b[i]
		p := w0[i]
		y0 += x * p
		z0 += v * p
		p = w1[i]
		y1 += x * p
		z1 += v * p
		p = w2[i]
		y2 += x * p
		z2 += v * p
		p = w3[i]
		y3 += x * p
		z3 += v * p
	}
	*y = [4]float32{y0, y1, y2, y3}
	*z = [4]float32{z0, z1, z2, z3}
}

// dotBF16 returns the dot product of a row of activations with a row of BF16 weights.
func dotBF16(a []float32, w []uint16) float32 {
	var s [8]float32
	w = w[:len(a)]
	for ; len(a) >= 8; a, w = a[8:], w[8:] {
		a, w := a[:8:8], w[:8:8]
		s[0] += a[0] * bf16(w[0])
		s[1] += a[1] * bf16(w[1])
		s[2] += a[2] * bf16(w[2])
		s[3] += a[3] * bf16(w[3])
		s[4] += a[4] * bf16(w[4])
		s[5] += a[5] * bf16(w[5])
		s[6] += a[6] * bf16(w[6])
		s[7] += a[7] * bf16(w[7])
	}
	sum := ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
	for i, x := range a {
		sum += x * bf16(w[i])
	}
	return sum
}

func bf16(h uint16) float32 {
	u := uint32(h) << 16
	return *(*float32)(unsafe.Pointer(&u))
}
