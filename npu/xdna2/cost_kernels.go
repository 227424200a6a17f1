package xdna2

import (
	"math"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// The cost model has one formula per family of kernels. Every constant is a property of the array
// or of the kernel's inner loop, never of a shape. The formulas were found by hand on the published
// rows; the constants are fitted. Units:
//
//	microseconds, bytes; GB/s = 1e3 bytes/us; MAC = a multiply-add

// GEMMParams are the constants of the GEMM kernels. With gm and gn the number of passes of the herd
// over rows and columns,
//
//	A = 2 M K gn    every pass over the columns reads all of a again
//	B = 2 K N gm    every pass over the rows reads all of w again
//	C = c M N       c bytes per element of the result
//	memory = ((A+B) (1 + Reload/k_l2) + C) / DDR        a short k tile makes short bursts
//	core   = gm gn (K/k_l1) Step + gm gn K tm tn / Rate per core
//	fill   = 2 k_l2 (tm hm + tn hn) / DDR               the first tiles of a pass, which nothing hides
//	time   = Start + Column gn + Fill fill gm gn + (memory^4 + core^4)^(1/4)
//
// The fourth-power mean models a pipeline whose stages overlap, but not completely.
type GEMMParams struct {
	Start  float64 `json:"start_us"`
	Column float64 `json:"column_us"` // per pass over the columns
	Fill   float64 `json:"fill"`      // fraction of fill that is not hidden
	DDR    float64 `json:"ddr_gbs"`
	Reload float64 `json:"reload_elements"`

	External MicroKernel `json:"external"` // fused-cast and f32-out
	Drain    MicroKernel `json:"drain"`
	Direct   MicroKernel `json:"direct"`
}

// MicroKernel is the inner loop of a GEMM.
type MicroKernel struct {
	Step float64 `json:"step_us"` // per k tile in L1: locks, pointers
	Rate float64 `json:"gmacs"`   // GMAC/s per core
}

// terms are the parts of a kernel's time, in microseconds, and its DRAM traffic.
type terms struct {
	fixed, memory, compute, time float64
	traffic                      float64
	padding                      float64 // fraction of the multiply-adds
}

// point is a kernel with its shape and mapping: the input of a formula.
type point struct {
	kernel  Kernel
	shape   Shape
	out     dtype.Type
	mapping npu.Mapping
}

func ceilDiv(a, b int) float64 { return math.Ceil(float64(a) / float64(b)) }

// tile returns the i-th number of the mapping's tile, or otherwise if it is not set.
func (p point) tile(i, otherwise int) int {
	if i < len(p.mapping.Tile) && p.mapping.Tile[i] > 0 {
		return p.mapping.Tile[i]
	}
	return otherwise
}

// herd returns the herd's columns and rows, or the given defaults if they are not set.
func (p point) herd(cols, rows int) (int, int) {
	if h := p.mapping.Herd; len(h) == 2 && h[0] > 0 && h[1] > 0 {
		return h[0], h[1]
	}
	return cols, rows
}

func smoothMax(a, b float64) float64 { return math.Pow(math.Pow(a, 4)+math.Pow(b, 4), 0.25) }

func (g *GEMMParams) terms(p point) terms {
	hm, hn := p.herd(8, 4)
	tm, kl2, kl1, tn := p.tile(0, 64), p.tile(1, 256), p.tile(2, 32), p.tile(3, 128)
	m, k, n := float64(p.shape.M), float64(p.shape.K), float64(p.shape.N)
	gm, gn := ceilDiv(p.shape.M, tm*hm), ceilDiv(p.shape.N, tn*hn)
	inner, c := g.Direct, 2.0
	switch p.mapping.Variant {
	case "fused-cast", "f32-out":
		inner, c = g.External, 4
	case "drain":
		inner = g.Drain
	}
	if p.out == dtype.F32 {
		c = 4
	}
	covered := gm * float64(tm*hm) * gn * float64(tn*hn)
	reads := 2*m*k*gn + 2*k*n*gm
	fill := float64(2*kl2) * float64(tm*hm+tn*hn) / (g.DDR * 1e3)
	t := terms{fixed: g.Start + g.Column*gn + g.Fill*fill*gm*gn, traffic: reads + c*m*n, padding: 1 - m*n/covered}
	t.memory = (reads*(1+g.Reload/float64(kl2)) + c*m*n) / (g.DDR * 1e3)
	t.compute = gm*gn*k/float64(kl1)*inner.Step + gm*gn*k*float64(tm)*float64(tn)/(inner.Rate*1e3)
	t.time = t.fixed + smoothMax(t.memory, t.compute)
	return t
}

// GEMVParams are the constants of the matrix-vector product: the weights stream through the columns
// once. In a cascade the cores of a column share K, so each has as many groups of rows as one core.
//
//	time = Start + 2 N K / Stream * 8/columns + Row N / (columns m_input)
type GEMVParams struct {
	Stream float64 `json:"stream_gbs"` // with eight columns
	Row    float64 `json:"row_us"`     // per group of m_input rows
}

func (g *GEMVParams) terms(p point, start float64) terms {
	cols, _ := p.herd(8, 1)
	k, n := float64(p.shape.K), float64(p.shape.N)
	t := terms{fixed: start, traffic: 2*k*n + 2*k + 2*n}
	t.memory = 2 * k * n / (g.Stream * 1e3) * 8 / float64(cols)
	t.compute = g.Row * n / float64(cols*p.tile(1, 8))
	t.time = t.fixed + t.memory + t.compute
	return t
}

// AttentionParams are the constants of FlashAttention. An iteration computes the rows of one q tile
// for as many heads as the kernel unrolls. A mask does not shorten it (published: 39.6 and 40.1
// ms). The temporal kernel is priced as the published FlashAttention of its shape: its time is known
// relative to that one only, see [Deployed]. With h = head_dim/64,
//
//	iterations = rows/lqp * heads/heads_per_unroll
//	time = Start + iterations (Tile h + (Key h + Wide (h-1)) keys/1024 + K and V of the iteration / KV)
type AttentionParams struct {
	Start float64 `json:"start_us"`
	Tile  float64 `json:"tile_us"`
	Key   float64 `json:"key_us"`  // per 1024 keys
	Wide  float64 `json:"wide_us"` // per 1024 keys, for head dimensions above 64, where v is processed in two halves
	KV    float64 `json:"kv_gbs"`  // K and V, read by every iteration; heads of a group share them
}

func (a *AttentionParams) terms(p point) terms {
	s := p.shape
	lqp, unroll := p.tile(0, 256), p.tile(3, 2)
	if p.mapping.Variant == "temporal" {
		lqp, unroll = 256, 2
	}
	h := float64(s.HeadDim) / 64
	iterations := ceilDiv(s.Rows, lqp) * ceilDiv(s.Heads, unroll)
	distinct := ceilDiv(unroll, s.Heads/s.KVHeads)
	kv := distinct * float64(s.Keys) * float64(s.HeadDim) * 4
	t := terms{fixed: a.Start, traffic: iterations*kv + 4*float64(s.Rows)*float64(s.Heads)*float64(s.HeadDim)}
	t.memory = iterations * kv / (a.KV * 1e3)
	t.compute = iterations * (a.Tile*h + (a.Key*h+a.Wide*math.Max(0, h-1))*float64(s.Keys)/1024)
	t.time = t.fixed + t.memory + t.compute
	return t
}

// CastParams are the constants of the second launch of a fused-cast GEMM, FP32 to BF16. Its start
// is longer than that of other launches and was never measured on its own: it is the difference
// between fused-cast rows and their f32-out siblings.
type CastParams struct {
	Start float64 `json:"start_us"`
	Rate  float64 `json:"core_gbs"`
}

// StreamParams are the constants of an element-wise kernel or norm, whose cores each process their
// share of the rows:
//
//	core   = bytes / (cores Rate) + Row rows/cores
//	memory = bytes / Copy                                 two streams in each column
//	time   = Start + (memory^4 + core^4)^(1/4)
type StreamParams struct {
	Rate float64 `json:"core_gbs"`         // per core, reads plus writes
	Row  float64 `json:"row_us,omitempty"` // per row, if the kernel works row by row
}

// streamed returns the bytes that a streaming kernel reads and writes, and its rows.
func (p point) streamed() (bytes, rows float64) {
	s := p.shape
	n := float64(s.N)
	switch p.kernel {
	case Add:
		if s.Broadcast {
			return 4 * n, 0
		}
		return 6 * n, 0
	case SiLUMul:
		return 6 * n, 0
	case GELU, moveKernel:
		return 4 * n, 0
	case castKernel:
		return 6 * n, 0
	case RMSNorm:
		return 4*float64(s.Rows)*float64(s.Width) + 2*float64(s.Width), float64(s.Rows)
	case LayerNorm:
		return 4*float64(s.Rows)*float64(s.Width) + 4*float64(s.Width), float64(s.Rows)
	}
	return 6 * float64(s.Rows) * float64(s.Width), float64(s.Rows) // RoPE
}

func (e *StreamParams) terms(p point, start, rate float64) terms {
	cols, rows := p.herd(8, 1)
	cores := float64(cols * rows)
	bytes, n := p.streamed()
	t := terms{fixed: start, traffic: bytes}
	t.compute = bytes/(cores*e.Rate*1e3) + e.Row*n/cores
	t.memory = bytes / (rate * 1e3)
	t.time = t.fixed + smoothMax(t.memory, t.compute)
	return t
}
