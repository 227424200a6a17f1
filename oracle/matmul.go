package oracle

import (
	"context"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/npukit/npukit/npu/op"
)

// matMul computes dst = a w, or a w^T with TransB.
//
//	dst [M, N]
//	a   [M, K]
//	w   [K, N], or [N, K] with TransB
func matMul(ctx context.Context, o op.MatMul, dst, a, w []float32) error {
	if o.TransB {
		return linear(ctx, dst, a, o.M, o.K, o.N, func() weightRows {
			return func(from, to int) ([]float32, error) { return w[from*o.K : to*o.K], nil }
		})
	}
	A, W, C := matrix(a, o.M, o.K), matrix(w, o.K, o.N), matrix(dst, o.M, o.N)
	return parallel(ctx, (o.N+tile-1)/tile, func() func(int) error {
		return func(i int) error {
			from, to := i*tile, min(o.N, (i+1)*tile)
			return multiply(ctx, blas.NoTrans, 1, A, part(W, 0, o.K, from, to), part(C, 0, o.M, from, to))
		}
	})
}

// weightRows returns rows from to to of a weight matrix [n, k] as FP32. The result is valid until
// the next call.
type weightRows func(from, to int) ([]float32, error)

// linear computes dst = a w^T with weights that may have to be dequantized. Each goroutine calls
// source for its own weightRows and reads one block of rows at a time.
//
//	dst [m, n]
//	a   [m, k]
//	w   [n, k]
func linear(ctx context.Context, dst, a []float32, m, k, n int, source func() weightRows) error {
	A, C := matrix(a, m, k), matrix(dst, m, n)
	return parallel(ctx, (n+tile-1)/tile, func() func(int) error {
		rows := source()
		return func(i int) error {
			from, to := i*tile, min(n, (i+1)*tile)
			w, err := rows(from, to)
			if err != nil {
				return err
			}
			return multiply(ctx, blas.Trans, 1, A, matrix(w, to-from, k), part(C, 0, m, from, to))
		}
	})
}

const (
	// tile is the side of the square of dst that one BLAS call computes. From four such squares on
	// gonum starts its own goroutines, so a tile keeps each call on one.
	tile = 64

	// depth is the number of products that one BLAS call sums. Adding the sums of blocks limits the
	// rounding error of long sums. Half the depth takes 13 % more time and does not reduce the
	// error (measured on a Xeon, 256 x 2048 x 512).
	depth = 512
)

// multiply computes c = alpha a b, or alpha a b^T, tile by tile on one goroutine.
//
//	a [m, k]
//	b [k, n], or [n, k] if transposed
//	c [m, n]
//
// Like any BLAS it may skip a row of an untransposed b for a zero in a, and then a NaN in that row
// is lost.
func multiply(ctx context.Context, transB blas.Transpose, alpha float32, a, b, c blas32.General) error {
	m, n, k := c.Rows, c.Cols, a.Cols
	for i := 0; i < m; i += tile {
		if err := ctx.Err(); err != nil {
			return err
		}
		iTo := min(m, i+tile)
		for j := 0; j < n; j += tile {
			jTo := min(n, j+tile)
			beta := float32(0) // the first block overwrites c, the others add to it
			for l := 0; l < k; l += depth {
				lTo := min(k, l+depth)
				var right blas32.General
				if transB == blas.Trans {
					right = part(b, j, jTo, l, lTo)
				} else {
					right = part(b, l, lTo, j, jTo)
				}
				blas32.Gemm(blas.NoTrans, transB, alpha, part(a, i, iTo, l, lTo), right, beta, part(c, i, iTo, j, jTo))
				beta = 1
			}
		}
	}
	return nil
}

// matrix returns x as a dense matrix.
func matrix(x []float32, rows, cols int) blas32.General {
	return blas32.General{Rows: rows, Cols: cols, Stride: cols, Data: x}
}

// part returns rows row to rowTo and columns col to colTo of x, sharing its memory.
func part(x blas32.General, row, rowTo, col, colTo int) blas32.General {
	return blas32.General{Rows: rowTo - row, Cols: colTo - col, Stride: x.Stride, Data: x.Data[row*x.Stride+col:]}
}
