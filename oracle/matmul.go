package oracle

import (
	"context"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/npukit/npukit/npu/op"
)

// matMul is dst = a w, or a w^T with TransB.
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

// weightRows gives rows from to to of a weight matrix [n, k] as FP32. The result is valid until the next call.
type weightRows func(from, to int) ([]float32, error)

// linear is dst = a w^T with weights that may have to be brought to FP32 first: each goroutine asks for a source of its own and takes
// blocks of rows from it, so that no more than a block is ever held.
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
	// tile is the side of the square of dst that one call of BLAS computes. gonum starts goroutines for products of four such squares
	// and more; ours are busy already, so each call stays within one.
	tile = 64

	// depth is how many products BLAS sums in one go. The sums of blocks are then added to each other, which keeps the rounding error of
	// long sums small: it grows with the square root of the number of terms in a block plus that of the number of blocks. Half as many
	// cost 13 % more time, and more gain nothing (measured on a Xeon, 256 x 2048 x 512).
	depth = 512
)

// multiply is c = alpha a b, or alpha a b^T, tile by tile on one goroutine.
//
//	a [m, k]
//	b [k, n], or [n, k] when transposed
//	c [m, n]
//
// As in any BLAS a zero in a may skip its row of an untransposed b, so that a NaN there does not show.
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

// matrix is x as a dense matrix.
func matrix(x []float32, rows, cols int) blas32.General {
	return blas32.General{Rows: rows, Cols: cols, Stride: cols, Data: x}
}

// part is rows row to rowTo and columns col to colTo of x, sharing its memory.
func part(x blas32.General, row, rowTo, col, colTo int) blas32.General {
	return blas32.General{Rows: rowTo - row, Cols: colTo - col, Stride: x.Stride, Data: x.Data[row*x.Stride+col:]}
}
