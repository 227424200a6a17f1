package gokernel

import (
	"math"
	"unsafe"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"

	"github.com/npukit/npukit/npu/dtype"
)

// Row-wise kernels in Go. For all element types, a row is converted to FP32, processed, and
// stored.

// load returns n elements as FP32. FP32 is not copied.
func load(dst *[]float32, p unsafe.Pointer, t int32, first, n int64) []float32 {
	p = kernel.Element(p, t, first)
	if t == kernel.F32 {
		return unsafe.Slice((*float32)(p), n)
	}
	x := grow(dst, n)
	convert(x, p, t)
	return x
}

// convert fills dst with elements of a type.
func convert(dst []float32, p unsafe.Pointer, t int32) {
	switch t {
	case kernel.F32:
		copy(dst, unsafe.Slice((*float32)(p), len(dst)))
	case kernel.BF16:
		dtype.BF16ToF32(dst, unsafe.Slice((*dtype.BFloat16)(p), len(dst)))
	case kernel.F16:
		dtype.F16ToF32(dst, unsafe.Slice((*dtype.Float16)(p), len(dst)))
	}
}

// store writes src as elements of a type.
func store(p unsafe.Pointer, t int32, first int64, src []float32) {
	p = kernel.Element(p, t, first)
	switch t {
	case kernel.F32:
		copy(unsafe.Slice((*float32)(p), len(src)), src)
	case kernel.BF16:
		dtype.F32ToBF16(unsafe.Slice((*dtype.BFloat16)(p), len(src)), src)
	case kernel.F16:
		dtype.F32ToF16(unsafe.Slice((*dtype.Float16)(p), len(src)), src)
	}
}

func (w *worker) embed(c *kernel.Command, chunk int64) {
	ids := unsafe.Slice((*int32)(c.A), c.M)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		// checked before the run, but the host may have written since
		if id := int64(ids[r]); id >= 0 && id < c.K {
			if kernel.IsGrouped(c.BT) {
				row := grow(&w.rows[0], c.N)
				UngroupRow(row, c.B, c.BT, id)
				store(c.Y, c.YT, r*c.LDY, row)
				continue
			}
			store(c.Y, c.YT, r*c.LDY, load(&w.rows[0], c.B, c.BT, id*c.LDB, c.N))
		}
	}
}

func (w *worker) rmsNorm(c *kernel.Command, chunk int64) {
	weight := load(&w.rows[1], c.B, c.BT, 0, c.N)
	y := grow(&w.rows[2], c.N)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		for h := range c.K {
			x := load(&w.rows[0], c.A, c.AT, r*c.LDA+h*c.N, c.N)
			var sum float64
			for _, v := range x {
				sum += float64(v) * float64(v)
			}
			scale := float32(1 / math.Sqrt(sum/float64(c.N)+float64(c.Epsilon)))
			for i, v := range x {
				y[i] = v * scale * weight[i]
			}
			store(c.Y, c.YT, r*c.LDY+h*c.N, y)
		}
	}
}

func (w *worker) layerNorm(c *kernel.Command, chunk int64) {
	weight := load(&w.rows[1], c.B, c.BT, 0, c.N)
	y := grow(&w.rows[2], c.N)
	shift := load(&w.scores, c.C, c.CT, 0, c.N)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		x := load(&w.rows[0], c.A, c.AT, r*c.LDA, c.N)
		var sum, squares float64
		for _, v := range x {
			sum += float64(v)
		}
		mean := sum / float64(c.N)
		for _, v := range x {
			squares += (float64(v) - mean) * (float64(v) - mean)
		}
		scale := float32(1 / math.Sqrt(squares/float64(c.N)+float64(c.Epsilon)))
		for i, v := range x {
			y[i] = (v-float32(mean))*scale*weight[i] + shift[i]
		}
		store(c.Y, c.YT, r*c.LDY, y)
	}
}

func (w *worker) rope(c *kernel.Command, chunk int64) {
	half := c.K / 2
	y := grow(&w.rows[2], c.K)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		for h := range c.N {
			angles := load(&w.rows[1], c.B, c.BT, r*c.LDB+h*c.BHead, c.K)
			cos, sin := angles[:half], angles[half:]
			x := load(&w.rows[0], c.A, c.AT, r*c.LDA+h*c.K, c.K)
			for i := range half {
				a, b := x[i], x[i+half]
				y[i] = a*cos[i] - b*sin[i]
				y[i+half] = b*cos[i] + a*sin[i]
			}
			store(c.Y, c.YT, r*c.LDY+h*c.K, y)
		}
	}
}

func (w *worker) kvWrite(c *kernel.Command, chunk int64) {
	s := &c.Segments()[chunk]
	for r := range s.Rows {
		for h := range c.N {
			x := load(&w.rows[0], c.A, c.AT, (s.Row+r)*c.LDA+h*c.K, c.K)
			store(s.K, c.BT, h*s.KHead+(s.Pos+r)*c.K, x)
		}
	}
}

func (w *worker) siluMul(c *kernel.Command, chunk int64) {
	y := grow(&w.rows[2], c.N)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		gate := load(&w.rows[0], c.A, c.AT, r*c.LDA, c.N)
		up := load(&w.rows[1], c.B, c.BT, r*c.LDB, c.N)
		for i, g := range gate {
			y[i] = silu(g) * up[i]
		}
		store(c.Y, c.YT, r*c.LDY, y)
	}
}

func silu(x float32) float32 { return x / (1 + float32(math.Exp(-float64(x)))) }

func (w *worker) gelu(c *kernel.Command, chunk int64) {
	y := grow(&w.rows[2], c.N)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		x := load(&w.rows[0], c.A, c.AT, r*c.LDA, c.N)
		for i, v := range x {
			v := float64(v)
			if c.Flags&kernel.FlagTanh != 0 {
				v *= 0.5 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
			} else {
				v *= 0.5 * (1 + math.Erf(v/math.Sqrt2))
			}
			y[i] = float32(v)
		}
		store(c.Y, c.YT, r*c.LDY, y)
	}
}

func (w *worker) add(c *kernel.Command, chunk int64) {
	y := grow(&w.rows[2], c.N)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		a := load(&w.rows[0], c.A, c.AT, r*c.LDA, c.N)
		b := load(&w.rows[1], c.B, c.BT, r*c.LDB, c.N)
		for i, v := range a {
			y[i] = v + b[i]
		}
		store(c.Y, c.YT, r*c.LDY, y)
	}
}

// copyRows returns the number of innermost rows of a chunk of a strided copy.
func copyRows(c *kernel.Command) int64 { return max(1, chunkElements/max(1, c.Extents[3])) }

func copyChunks(c *kernel.Command) int64 {
	rows := c.Extents[0] * c.Extents[1] * c.Extents[2]
	return (rows + copyRows(c) - 1) / copyRows(c)
}

func (w *worker) copy(c *kernel.Command, chunk int64) {
	e, from, to := &c.Extents, &c.AStrides, &c.YStrides
	x := grow(&w.rows[0], e[3])
	end := min(e[0]*e[1]*e[2], (chunk+1)*copyRows(c))
	for r := chunk * copyRows(c); r < end; r++ {
		i, j, k := r/(e[1]*e[2]), r/e[2]%e[1], r%e[2]
		src, dst := i*from[0]+j*from[1]+k*from[2], i*to[0]+j*to[1]+k*to[2]
		if from[3] == 1 {
			convert(x, kernel.Element(c.A, c.AT, src), c.AT)
		} else {
			for n := range x {
				convert(x[n:n+1], kernel.Element(c.A, c.AT, src+int64(n)*from[3]), c.AT)
			}
		}
		if to[3] == 1 {
			store(c.Y, c.YT, dst, x)
		} else {
			for n := range x {
				store(c.Y, c.YT, dst+int64(n)*to[3], x[n:n+1])
			}
		}
	}
}
