package sim

import "context"

// compute holds the context and thread count of the kernels in Go.
type compute struct {
	ctx     context.Context
	threads int
}

// rows calls f for ranges of the rows of m in parallel. buf holds the given number of row buffers.
func (c compute) rows(m *matrix, buffers int, f func(from, to int, buf [][]float32)) {
	parallel(c.ctx, c.threads, m.rows, m.width, func(from, to int) {
		all := make([]float32, buffers*m.width)
		buf := make([][]float32, buffers)
		for i := range buf {
			buf[i] = all[i*m.width:][:m.width:m.width]
		}
		f(from, to, buf)
	})
}

// add computes y = x + z in BF16, rounded down. If z has one row, it is added to every row: a bias.
func (c compute) add(x, z, y *matrix) {
	c.rows(y, 2, func(from, to int, buf [][]float32) {
		for r := from; r < to; r++ {
			a, b := x.row(buf[0], r), z.row(buf[1], min(r, z.rows-1))
			sum := buf[0]
			for i := range sum {
				sum[i] = a[i] + b[i]
			}
			y.store(r, sum)
		}
	})
}

// siluMul computes silu(x) * up, rounded down.
func (c compute) siluMul(x, up, y *matrix) {
	table := siluTable()
	c.rows(y, 2, func(from, to int, buf [][]float32) {
		for r := from; r < to; r++ {
			g, u := x.row(buf[0], r), up.row(buf[1], r)
			prod := buf[0]
			for i := range prod {
				prod[i] = table[roundDown(g[i])] * u[i]
			}
			y.store(r, prod)
		}
	})
}

// gelu computes GELU of every element; see the function gelu.
func (c compute) gelu(x, y *matrix) {
	table := geluTable()
	c.rows(y, 1, func(from, to int, buf [][]float32) {
		for r := from; r < to; r++ {
			for i, v := range x.row(buf[0], r) {
				buf[0][i] = table[roundDown(v)]
			}
			y.store(r, buf[0])
		}
	})
}

// cast converts rows from FP32 to BF16, rounding down: the second launch of a fused-cast GEMM does
// not set a rounding mode.
func (c compute) cast(x, y *matrix) {
	c.rows(y, 1, func(from, to int, buf [][]float32) {
		for r := from; r < to; r++ {
			y.store(r, x.row(buf[0], r))
		}
	})
}

// rope rotates each head. Products and sums stay in the accumulator and are rounded down once.
// table has one row for each row of x, either for one head or for all heads.
func (c compute) rope(x, table, y *matrix, headDim int) {
	half := headDim / 2
	c.rows(y, 2, func(from, to int, buf [][]float32) {
		angles := make([]float32, table.width)
		for r := from; r < to; r++ {
			v, t, out := x.row(buf[0], r), table.row(angles, r), buf[1]
			for h := 0; h < len(v); h += headDim {
				cos := t[h%len(t):][:half]
				sin := t[h%len(t)+half:][:half]
				a, b := v[h:][:half], v[h+half:][:half]
				oa, ob := out[h:][:half], out[h+half:][:half]
				for i := range half {
					oa[i] = a[i]*cos[i] - b[i]*sin[i]
					ob[i] = a[i]*sin[i] + b[i]*cos[i]
				}
			}
			y.store(r, out)
		}
	})
}
