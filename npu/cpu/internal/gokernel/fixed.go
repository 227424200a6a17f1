package gokernel

import (
	"math"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"
)

// GEMV with quantized weights as sums of integers: the number format of integer.h, in Go.

// gemvRows is the most rows for which integer sums are faster than dequantizing the weights to FP32
// first.
const gemvRows = 4

// fixedBlock is 32 activations as integer multiples of a scale.
type fixedBlock struct {
	q     [32]int32 // 16 bits
	scale float32
	sum   [2]int32 // of the first 16 elements and of the others
}

// fixBlock converts 32 values to integers of 16 bits, the largest to 32767, and the remainder to
// another 15 bits if low is not nil. A block with a value that is not finite becomes NaN, one of
// tiny values zero.
func fixBlock(dst, low *fixedBlock, x []float32) {
	largest := uint32(0)
	for _, v := range x {
		largest = max(largest, math.Float32bits(v)&0x7fffffff)
	}
	*dst = fixedBlock{}
	if low != nil {
		*low = fixedBlock{}
	}
	top := math.Float32frombits(largest)
	switch {
	case largest >= 0x7f800000:
		dst.scale = float32(math.NaN())
		return
	case top < 0x1p-100:
		return
	}
	dst.scale = top / 32767
	if low != nil {
		low.scale = top / (32767 << 15)
		dst.scale = low.scale * (1 << 15)
		inverse := (32767 << 15) / top
		for i, v := range x {
			q := int32(v * inverse)
			dst.q[i], low.q[i] = q>>15, q&0x7fff
			dst.sum[i/16] += q >> 15
			low.sum[i/16] += q & 0x7fff
		}
		return
	}
	inverse := 32767 / top
	for i, v := range x {
		q := int32(math.RoundToEven(float64(v * inverse)))
		dst.q[i] = q
		dst.sum[i/16] += q
	}
}

// gemvGroups is the number of groups of a chunk.
const gemvGroups = 4

func gemvChunks(c *kernel.Command) int64 {
	return (c.N + gemvGroups*kernel.GroupRows - 1) / (gemvGroups * kernel.GroupRows)
}

// gemv multiplies rows of BF16 activations by quantized weights.
func (w *worker) gemv(c *kernel.Command, chunk int64) {
	terms := w.fix(c)
	blocks := int(c.K / 32)
	end := min(c.N, (chunk+1)*gemvGroups*kernel.GroupRows)
	for n := chunk * gemvGroups * kernel.GroupRows; n < end && !w.cancelled(); n += kernel.GroupRows {
		g := viewGroup(c.B, c.BT, c.K, n/kernel.GroupRows)
		for m := range c.M {
			var y [kernel.GroupRows]float32
			for l := range terms {
				x := w.fixed[(int(m)*terms+l)*blocks:][:blocks]
				for b := range x {
					g.product(&y, &x[b], b)
				}
			}
			put(c, m, n, y[:min(kernel.GroupRows, end-n)])
		}
	}
}

// fix converts the activations of a command to integers, one or two terms each, unless this thread
// has done so. It returns the number of terms.
func (w *worker) fix(c *kernel.Command) (terms int) {
	terms = 1
	if c.YT == kernel.F32 || c.Flags&(kernel.FlagsFused) != 0 {
		terms = 2
	}
	if w.fixedFor == c {
		return terms
	}
	w.fixedFor = c
	blocks := int(c.K / 32)
	if n := int(c.M) * terms * blocks; len(w.fixed) < n {
		w.fixed = make([]fixedBlock, n)
	}
	for m := range c.M {
		x := load(&w.rows[0], c.A, c.AT, m*c.LDA, c.K)
		for b := range blocks {
			at := int(m)*terms*blocks + b
			var low *fixedBlock
			if terms == 2 {
				low = &w.fixed[at+blocks]
			}
			fixBlock(&w.fixed[at], low, x[32*b:][:32])
		}
	}
	return terms
}

// product adds the products of 32 activations with block b of all rows of the group.
func (g *groupView) product(y *[kernel.GroupRows]float32, x *fixedBlock, b int) {
	var first, second [kernel.GroupRows]int32 // sums over 16 elements each
	at := b * g.Words * kernel.GroupRows
	switch {
	case g.High < 0:
		for j := range 8 {
			sum := &first
			if j >= 4 {
				sum = &second
			}
			addBytes(sum, g.quants[at+j*kernel.GroupRows:], x.q[4*j:])
		}
	case g.High == 0:
		for j := range 4 {
			q := g.quants[at+j*kernel.GroupRows:]
			addNibbles(&first, q, x.q[4*j:], 0)
			addNibbles(&second, q, x.q[16+4*j:], 4)
		}
	default:
		var q [32]uint8
		for lane := range kernel.GroupRows {
			g.quantsOf(&q, b, lane)
			for i := range 16 {
				first[lane] += int32(q[i]) * x.q[i]
				second[lane] += int32(q[16+i]) * x.q[16+i]
			}
		}
	}
	for lane := range kernel.GroupRows {
		s, minimum := g.factors(2*b, lane)
		if g.Form.Scales == kernel.HalvedScales {
			s2, _ := g.factors(2*b+1, lane)
			a, b := first[lane]-g.Bias*x.sum[0], second[lane]-g.Bias*x.sum[1]
			y[lane] += x.scale * (s*float32(a) + s2*float32(b))
			continue
		}
		sum := x.sum[0] + x.sum[1]
		y[lane] += x.scale * (s*float32(first[lane]+second[lane]-g.Bias*sum) - minimum*float32(sum))
	}
}

// addNibbles adds products of four elements: those of the low halves of bytes if shift is 0, of the
// high halves if it is 4.
func addNibbles(sum *[kernel.GroupRows]int32, quants []uint32, x []int32, shift uint) {
	x0, x1, x2, x3 := x[0], x[1], x[2], x[3]
	q := (*[kernel.GroupRows]uint32)(quants)
	for lane, v := range q {
		v >>= shift & 31
		sum[lane] += int32(v&15)*x0 + int32(v>>8&15)*x1 + int32(v>>16&15)*x2 + int32(v>>24&15)*x3
	}
}

// addBytes is addNibbles for bytes.
func addBytes(sum *[kernel.GroupRows]int32, quants []uint32, x []int32) {
	x0, x1, x2, x3 := x[0], x[1], x[2], x[3]
	q := (*[kernel.GroupRows]uint32)(quants)
	for lane, v := range q {
		sum[lane] += int32(v&255)*x0 + int32(v>>8&255)*x1 + int32(v>>16&255)*x2 + int32(v>>24)*x3
	}
}
