package cpu

import (
	"fmt"
	"math"

	"github.com/npukit/npukit/npu/op"
)

// reference computes an op in float64 from its definition in package op, on dense operands: the
// reads of the op in order. Attention and KVWrite
// have references of their own, because their state comes by segments.
func reference(o op.Op, in [][]float64) []float64 {
	switch o := o.(type) {
	case op.MatMul:
		y := make([]float64, o.M*o.N)
		w, row, step := in[1], 1, o.N // elements from output to output, and from term to term
		if o.TransB {
			row, step = o.K, 1
		}
		for m := range o.M {
			x := in[0][m*o.K:][:o.K]
			for n := range o.N {
				sum := 0.0
				for k, v := range x {
					sum += v * w[n*row+k*step]
				}
				y[m*o.N+n] = sum
			}
		}
		return y
	case op.Embed:
		return gather(in[0], in[1], o.Width)
	case op.Pick:
		return gather(in[0], in[1], o.Width)
	case op.Cast:
		return in[0]
	case op.RMSNorm:
		y := make([]float64, len(in[0]))
		for r := 0; r < len(y); r += o.Width {
			sum := 0.0
			for _, v := range in[0][r:][:o.Width] {
				sum += v * v
			}
			for i := range o.Width {
				y[r+i] = in[0][r+i] / math.Sqrt(sum/float64(o.Width)+o.Eps) * in[1][i]
			}
		}
		return y
	case op.LayerNorm:
		y := make([]float64, len(in[0]))
		for r := 0; r < len(y); r += o.Width {
			mean, variance := 0.0, 0.0
			for _, v := range in[0][r:][:o.Width] {
				mean += v / float64(o.Width)
			}
			for _, v := range in[0][r:][:o.Width] {
				variance += (v - mean) * (v - mean) / float64(o.Width)
			}
			for i := range o.Width {
				y[r+i] = (in[0][r+i]-mean)/math.Sqrt(variance+o.Eps)*in[1][i] + in[2][i]
			}
		}
		return y
	case op.RoPE:
		y := make([]float64, len(in[0]))
		half := o.HeadDim / 2
		for r := range o.Rows {
			for h := range o.Heads {
				table := in[1][r*o.HeadDim:][:o.HeadDim]
				if o.TableHeads > 1 {
					table = in[1][(r*o.Heads+h)*o.HeadDim:][:o.HeadDim]
				}
				at := (r*o.Heads + h) * o.HeadDim
				for i := range half {
					a, b := in[0][at+i], in[0][at+i+half]
					y[at+i] = a*table[i] - b*table[i+half]
					y[at+i+half] = b*table[i] + a*table[i+half]
				}
			}
		}
		return y
	case op.SiLUMul:
		return each(in[0], func(i int, v float64) float64 { return v / (1 + math.Exp(-v)) * in[1][i] })
	case op.GELU:
		return each(in[0], func(_ int, v float64) float64 {
			if o.Tanh {
				return v / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
			}
			return v / 2 * (1 + math.Erf(v/math.Sqrt2))
		})
	case op.Add:
		return each(in[0], func(i int, v float64) float64 { return v + in[1][i%len(in[1])] })
	case op.Slice:
		var y []float64
		for r := range o.Rows {
			y = append(y, in[0][r*o.Width+o.From:][:o.N]...)
		}
		return y
	case op.Concat:
		var y []float64
		for r := range o.Rows {
			for i, w := range o.Widths {
				y = append(y, in[i][r*w:][:w]...)
			}
		}
		return y
	case op.Permute:
		return permute(in[0], o.Shape, o.Perm)
	}
	panic(fmt.Sprintf("no reference for %s", o.Kind()))
}

func each(x []float64, f func(int, float64) float64) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = f(i, v)
	}
	return y
}

func gather(index, rows []float64, width int) []float64 {
	var y []float64
	for _, i := range index {
		y = append(y, rows[int(i)*width:][:width]...)
	}
	return y
}

func permute(x []float64, shape, perm []int) []float64 {
	y := make([]float64, len(x))
	index := make([]int, len(shape))
	for i := range y {
		// i in the new order gives the index in the old one.
		rest := i
		for d := len(perm) - 1; d >= 0; d-- {
			index[perm[d]] = rest % shape[perm[d]]
			rest /= shape[perm[d]]
		}
		at := 0
		for d, n := range shape {
			at = at*n + index[d]
		}
		y[i] = x[at]
	}
	return y
}

// attend is attention for one row: q [hd], keys and values by position.
func attend(q []float64, keys, values [][]float64, scale float64) []float64 {
	scores := make([]float64, len(keys))
	highest := math.Inf(-1)
	for t, k := range keys {
		for i := range q {
			scores[t] += q[i] * k[i] * scale
		}
		highest = max(highest, scores[t])
	}
	sum := 0.0
	for t := range scores {
		scores[t] = math.Exp(scores[t] - highest)
		sum += scores[t]
	}
	y := make([]float64, len(q))
	for t, v := range values {
		for i := range y {
			y[i] += scores[t] / sum * v[i]
		}
	}
	return y
}
