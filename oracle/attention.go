package oracle

import (
	"context"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/npukit/npukit/npu/op"
)

// kvWrite writes the rows' keys or values into the cache at positions pos, pos+1, ...
//
//	cache [KVHeads, capacity, HeadDim]
//	x     [Rows, KVHeads*HeadDim]
func kvWrite(ctx context.Context, o op.KVWrite, cache, x []float32, pos, capacity int) error {
	n := o.HeadDim
	return spans(ctx, o.Rows, o.KVHeads*n, func(from, to int) {
		for r := from; r < to; r++ {
			for h := range o.KVHeads {
				copy(cache[(h*capacity+pos+r)*n:][:n], x[(r*o.KVHeads+h)*n:])
			}
		}
	})
}

// heads is a tensor of several heads; head h of row r is a vector of width elements.
type heads struct {
	data        []float32
	count       int  // heads
	length      int  // rows
	width       int  // elements per head
	headsBefore bool // [count, length, width]; otherwise [length, count*width]
}

// rows returns rows from to to of head h as a matrix [to-from, width].
func (t heads) rows(h, from, to int) blas32.General {
	at, stride := (from*t.count+h)*t.width, t.count*t.width
	if t.headsBefore {
		at, stride = (h*t.length+from)*t.width, t.width
	}
	return blas32.General{Rows: to - from, Cols: t.width, Stride: stride, Data: t.data[at:]}
}

// attention computes softmax(q k^T scale) v for every query head over the positions up to each
// row's own. Query head h uses key and value head h / (Heads/KVHeads).
//
//	plain:      dst, q [Rows, Heads*HeadDim]              k, v [Rows, KVHeads*HeadDim]
//	HeadFirst:  q      [Heads, Rows, HeadDim]             k    [KVHeads, Rows, HeadDim]
//	            dst    [Heads*Split, Rows, HeadDim/Split] v    [KVHeads*Split, Rows, HeadDim/Split]
//	Cached:     dst, q [Rows, Heads*HeadDim]              k, v [KVHeads, capacity, HeadDim]
//
// Rows are at positions pos, pos+1, ...; without Cached, pos is ignored.
//
// Source: Vaswani et al. (arXiv 1706.03762), eq. 1; Ainslie et al., GQA (arXiv 2305.13245).
func attention(ctx context.Context, o op.Attention, dst, q, k, v []float32, pos, capacity int) error {
	length := o.Rows
	if o.Cached {
		length = capacity
	} else {
		pos = 0
	}
	split := max(1, o.Split)
	group := o.Heads / o.KVHeads
	Q := heads{q, o.Heads, o.Rows, o.HeadDim, o.HeadFirst}
	K := heads{k, o.KVHeads, length, o.HeadDim, o.HeadFirst || o.Cached}
	V := heads{v, o.KVHeads * split, length, o.HeadDim / split, o.HeadFirst || o.Cached}
	Y := heads{dst, o.Heads * split, o.Rows, o.HeadDim / split, o.HeadFirst}

	blocks := (o.Rows + tile - 1) / tile
	return parallel(ctx, o.Heads*blocks, func() func(int) error {
		scratch := make([]float32, min(tile, o.Rows)*(pos+o.Rows))
		return func(job int) error {
			h, from := job/blocks, job%blocks*tile
			to := min(o.Rows, from+tile)
			seen := pos + to // positions visible to the block's last row
			scores := matrix(scratch[:(to-from)*seen], to-from, seen)
			scale := float32(o.Softmax())
			err := multiply(ctx, blas.Trans, scale, Q.rows(h, from, to), K.rows(h/group, 0, seen), scores)
			if err != nil {
				return err
			}
			for r := range to - from {
				softmax(scores.Data[r*seen:][:seen], pos+from+r+1)
			}
			for s := range split {
				v, y := V.rows(h/group*split+s, 0, seen), Y.rows(h*split+s, from, to)
				if err := multiply(ctx, blas.NoTrans, 1, scores, v, y); err != nil {
					return err
				}
			}
			return nil
		}
	})
}

// softmax replaces the first n scores by probabilities and sets the others, which are in the row's
// future, to zero. It subtracts the largest score first so that exp does not overflow.
func softmax(scores []float32, n int) {
	highest := float32(math.Inf(-1))
	for _, s := range scores[:n] {
		highest = max(highest, s)
	}
	sum := 0.0
	for i, s := range scores[:n] {
		e := math.Exp(float64(s) - float64(highest))
		sum += e
		scores[i] = float32(e)
	}
	for i, e := range scores[:n] {
		scores[i] = float32(float64(e) / sum)
	}
	clear(scores[n:])
}
