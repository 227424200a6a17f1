package gokernel

import (
	"math"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"
)

// Streaming attention in Go: keys and values are read a block of positions at a time, and each
// query keeps the largest score so far, the sum of the exponentials relative to it, and the
// weighted sum of the values. A larger score scales both sums down. Source: Milakov and Gimelshein,
// Online normalizer calculation for softmax (arXiv 1805.02867).

const (
	attentionRows      = 16 // rows of queries per chunk
	attentionPositions = 64 // positions per block
)

// attentionChunks returns the number of chunks: at most attentionRows rows of one segment and one
// key-value head each.
func attentionChunks(c *kernel.Command) int64 {
	var n int64
	for _, s := range c.Segments() {
		n += (s.Rows + attentionRows - 1) / attentionRows
	}
	return n * c.KVHeads
}

func (w *worker) attention(c *kernel.Command, chunk int64) {
	kvHeads := c.KVHeads
	head, piece := chunk%kvHeads, chunk/kvHeads
	for i := range c.Segments() {
		s := &c.Segments()[i]
		pieces := (s.Rows + attentionRows - 1) / attentionRows
		if piece < pieces {
			w.attend(c, s, head, piece*attentionRows, min(s.Rows, (piece+1)*attentionRows))
			return
		}
		piece -= pieces
	}
}

// attend computes rows from to to of a segment for the query heads of one key-value head.
func (w *worker) attend(c *kernel.Command, s *kernel.Segment, kvHead, from, to int64) {
	hd, group := c.K, c.N/c.KVHeads
	queries := (to - from) * group
	q := grow(&w.rows[0], queries*hd)
	acc := grow(&w.rows[1], queries*hd)
	stats := grow(&w.rows[2], 2*queries)
	best, sum := stats[:queries], stats[queries:]
	clear(acc)
	clear(sum)
	for i := range queries {
		best[i] = float32(math.Inf(-1))
		row, h := s.Row+from+i/group, kvHead*group+i%group
		x := q[i*hd:][:hd]
		convert(x, kernel.Element(c.A, c.AT, row*c.LDA+h*c.AHead), c.AT)
		for j := range x {
			x[j] *= c.Scale
		}
	}
	block := grow(&w.weights, 2*attentionPositions*hd)
	scores := grow(&w.scores, attentionPositions)
	for t := int64(0); t < s.Pos+to && !w.cancelled(); t += attentionPositions {
		n := min(attentionPositions, s.Pos+to-t)
		keys, values := block[:n*hd], block[n*hd:2*n*hd]
		for i := range n {
			convert(keys[i*hd:][:hd], kernel.Element(s.K, c.BT, kvHead*s.KHead+(t+i)*c.LDB), c.BT)
			convert(values[i*hd:][:hd], kernel.Element(s.V, c.CT, kvHead*s.VHead+(t+i)*c.LDC), c.CT)
		}
		for i := range queries {
			seen := min(n, s.Pos+from+i/group+1-t)
			if seen <= 0 {
				continue
			}
			x := q[i*hd:][:hd]
			highest := best[i]
			for j := range seen {
				scores[j] = dot(x, keys[j*hd:][:hd])
				highest = max(highest, scores[j])
			}
			out := acc[i*hd:][:hd]
			if highest > best[i] {
				scale := float32(math.Exp(float64(best[i] - highest)))
				best[i] = highest
				sum[i] *= scale
				for j := range out {
					out[j] *= scale
				}
			}
			for j := range seen {
				p := float32(math.Exp(float64(scores[j] - highest)))
				sum[i] += p
				axpy(out, p, values[j*hd:][:hd])
			}
		}
	}
	for i := range queries {
		row, h := s.Row+from+i/group, kvHead*group+i%group
		out := acc[i*hd:][:hd]
		for j := range out {
			out[j] /= sum[i]
		}
		store(c.Y, c.YT, row*c.LDY+h*c.YHead, out)
	}
}

// dot returns the dot product of two vectors, from four independent sums.
func dot(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	b = b[:len(a)]
	for ; len(a) >= 4; a, b = a[4:], b[4:] {
		a, b := a[:4:4], b[:4:4]
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
	}
	sum := (s0 + s1) + (s2 + s3)
	for i, x := range a {
		sum += x * b[i]
	}
	return sum
}

// axpy adds p times x to dst.
func axpy(dst []float32, p float32, x []float32) {
	x = x[:len(dst)]
	for i, v := range x {
		dst[i] += p * v
	}
}
