package cpu

import (
	"math"
	"unsafe"

	"github.com/npukit/npukit/npu/dtype"
)

// Row-wise kernels in Go. Whatever the element types, a row is brought to FP32, worked on, and stored.

// load brings n elements from row r of a matrix to FP32. FP32 rows are not copied.
func load(dst *[]float32, p unsafe.Pointer, t int32, first, n int64) []float32 {
	p = element(p, t, first)
	if t == typeF32 {
		return unsafe.Slice((*float32)(p), n)
	}
	x := grow(dst, n)
	convert(x, p, t)
	return x
}

// convert fills dst with elements of a type.
func convert(dst []float32, p unsafe.Pointer, t int32) {
	switch t {
	case typeF32:
		copy(dst, unsafe.Slice((*float32)(p), len(dst)))
	case typeBF16:
		dtype.BF16ToF32(dst, unsafe.Slice((*dtype.BFloat16)(p), len(dst)))
	case typeF16:
		dtype.F16ToF32(dst, unsafe.Slice((*dtype.Float16)(p), len(dst)))
	}
}

// store puts src where elements of a type lie.
func store(p unsafe.Pointer, t int32, first int64, src []float32) {
	p = element(p, t, first)
	switch t {
	case typeF32:
		copy(unsafe.Slice((*float32)(p), len(src)), src)
	case typeBF16:
		dtype.F32ToBF16(unsafe.Slice((*dtype.BFloat16)(p), len(src)), src)
	case typeF16:
		dtype.F32ToF16(unsafe.Slice((*dtype.Float16)(p), len(src)), src)
	}
}

func (w *goWorker) embed(c *command, chunk int64) {
	ids := unsafe.Slice((*int32)(c.a), c.m)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		if id := int64(ids[r]); id >= 0 && id < c.k { // checked before the run; the host may have written since
			if isGrouped(c.bt) {
				row := grow(&w.rows[0], c.n)
				ungroupRow(row, c.b, c.bt, id)
				store(c.y, c.yt, r*c.ldy, row)
				continue
			}
			store(c.y, c.yt, r*c.ldy, load(&w.rows[0], c.b, c.bt, id*c.ldb, c.n))
		}
	}
}

func (w *goWorker) rmsNorm(c *command, chunk int64) {
	weight := load(&w.rows[1], c.b, c.bt, 0, c.n)
	y := grow(&w.rows[2], c.n)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		for h := range c.k {
			x := load(&w.rows[0], c.a, c.at, r*c.lda+h*c.n, c.n)
			var sum float64
			for _, v := range x {
				sum += float64(v) * float64(v)
			}
			scale := float32(1 / math.Sqrt(sum/float64(c.n)+float64(c.f[0])))
			for i, v := range x {
				y[i] = v * scale * weight[i]
			}
			store(c.y, c.yt, r*c.ldy+h*c.n, y)
		}
	}
}

func (w *goWorker) layerNorm(c *command, chunk int64) {
	weight := load(&w.rows[1], c.b, c.bt, 0, c.n)
	y := grow(&w.rows[2], c.n)
	shift := load(&w.scores, c.c, c.ct, 0, c.n)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		x := load(&w.rows[0], c.a, c.at, r*c.lda, c.n)
		var sum, squares float64
		for _, v := range x {
			sum += float64(v)
		}
		mean := sum / float64(c.n)
		for _, v := range x {
			squares += (float64(v) - mean) * (float64(v) - mean)
		}
		scale := float32(1 / math.Sqrt(squares/float64(c.n)+float64(c.f[0])))
		for i, v := range x {
			y[i] = (v-float32(mean))*scale*weight[i] + shift[i]
		}
		store(c.y, c.yt, r*c.ldy, y)
	}
}

func (w *goWorker) rope(c *command, chunk int64) {
	half := c.k / 2
	y := grow(&w.rows[2], c.k)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		for h := range c.n {
			angles := load(&w.rows[1], c.b, c.bt, r*c.ldb+h*c.p[0], c.k)
			cos, sin := angles[:half], angles[half:]
			x := load(&w.rows[0], c.a, c.at, r*c.lda+h*c.k, c.k)
			for i := range half {
				a, b := x[i], x[i+half]
				y[i] = a*cos[i] - b*sin[i]
				y[i+half] = b*cos[i] + a*sin[i]
			}
			store(c.y, c.yt, r*c.ldy+h*c.k, y)
		}
	}
}

func (w *goWorker) kvWrite(c *command, chunk int64) {
	s := &c.segments()[chunk]
	for r := range s.rows {
		for h := range c.n {
			x := load(&w.rows[0], c.a, c.at, (s.row+r)*c.lda+h*c.k, c.k)
			store(s.k, c.bt, h*s.khead+(s.pos+r)*c.k, x)
		}
	}
}

func (w *goWorker) siluMul(c *command, chunk int64) {
	y := grow(&w.rows[2], c.n)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		gate := load(&w.rows[0], c.a, c.at, r*c.lda, c.n)
		up := load(&w.rows[1], c.b, c.bt, r*c.ldb, c.n)
		for i, g := range gate {
			y[i] = silu(g) * up[i]
		}
		store(c.y, c.yt, r*c.ldy, y)
	}
}

func silu(x float32) float32 { return x / (1 + float32(math.Exp(-float64(x)))) }

func (w *goWorker) gelu(c *command, chunk int64) {
	y := grow(&w.rows[2], c.n)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		x := load(&w.rows[0], c.a, c.at, r*c.lda, c.n)
		for i, v := range x {
			v := float64(v)
			if c.flags&flagTanh != 0 {
				v *= 0.5 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
			} else {
				v *= 0.5 * (1 + math.Erf(v/math.Sqrt2))
			}
			y[i] = float32(v)
		}
		store(c.y, c.yt, r*c.ldy, y)
	}
}

func (w *goWorker) add(c *command, chunk int64) {
	y := grow(&w.rows[2], c.n)
	for r, to := rowsOf(c, chunk); r < to; r++ {
		a := load(&w.rows[0], c.a, c.at, r*c.lda, c.n)
		b := load(&w.rows[1], c.b, c.bt, r*c.ldb, c.n)
		for i, v := range a {
			y[i] = v + b[i]
		}
		store(c.y, c.yt, r*c.ldy, y)
	}
}

// copyRows is how many innermost rows of a strided copy a chunk has.
func copyRows(c *command) int64 { return max(1, chunkElements/max(1, c.p[3])) }

func copyChunks(c *command) int64 {
	rows := c.p[0] * c.p[1] * c.p[2]
	return (rows + copyRows(c) - 1) / copyRows(c)
}

func (w *goWorker) copy(c *command, chunk int64) {
	e, from, to := c.p[0:4], c.p[4:8], c.p[8:12]
	x := grow(&w.rows[0], e[3])
	end := min(e[0]*e[1]*e[2], (chunk+1)*copyRows(c))
	for r := chunk * copyRows(c); r < end; r++ {
		i, j, k := r/(e[1]*e[2]), r/e[2]%e[1], r%e[2]
		src, dst := i*from[0]+j*from[1]+k*from[2], i*to[0]+j*to[1]+k*to[2]
		if from[3] == 1 {
			convert(x, element(c.a, c.at, src), c.at)
		} else {
			for n := range x {
				convert(x[n:n+1], element(c.a, c.at, src+int64(n)*from[3]), c.at)
			}
		}
		if to[3] == 1 {
			store(c.y, c.yt, dst, x)
		} else {
			for n := range x {
				store(c.y, c.yt, dst+int64(n)*to[3], x[n:n+1])
			}
		}
	}
}
