package xdna2

import (
	"fmt"

	"github.com/npukit/npukit/npu/op"
)

// Kernel is a family of kernels: one per op, except that [op.MatMul] is a GEMM or, with a single
// row, a GEMV.
type Kernel string

const (
	GEMM      Kernel = "gemm"
	GEMV      Kernel = "gemv"
	Attention Kernel = "attention"
	Add       Kernel = "add"
	SiLUMul   Kernel = "silu_mul"
	GELU      Kernel = "gelu"
	RMSNorm   Kernel = "rmsnorm"
	LayerNorm Kernel = "layernorm"
	RoPE      Kernel = "rope"
)

// Kernels without rows in the registry: FP32 to BF16, the second launch of a fused-cast GEMM; and
// copies (Permute, Slice, Concat, Embed, Pick, KVWrite), of which none is published for the array.
const (
	castKernel Kernel = "cast"
	moveKernel Kernel = "move"
)

var kernels = []Kernel{GEMM, GEMV, Attention, Add, SiLUMul, GELU, RMSNorm, LayerNorm, RoPE, castKernel, moveKernel}

// Shape is a kernel's shape in numbers. The kernel determines which fields are used:
//
//	gemm, gemv          M, K, N    a [M, K] times w [K, N]; a GEMV has M = 1 (its M in the source is N here)
//	attention           Rows queries, Keys, Heads, KVHeads, HeadDim, Causal
//	add, silu_mul, gelu N elements; Broadcast for a bias
//	rmsnorm, layernorm  Rows, Width
//	rope                Rows (one per head and position), Width (the head dimension)
//	cast, move          N elements
type Shape struct {
	M         int  `json:"m,omitempty"`
	K         int  `json:"k,omitempty"`
	N         int  `json:"n,omitempty"`
	Rows      int  `json:"rows,omitempty"`
	Width     int  `json:"width,omitempty"`
	Keys      int  `json:"keys,omitempty"`
	Heads     int  `json:"heads,omitempty"`
	KVHeads   int  `json:"kv_heads,omitempty"`
	HeadDim   int  `json:"head_dim,omitempty"`
	Causal    bool `json:"causal,omitempty"`
	Broadcast bool `json:"broadcast,omitempty"`
}

// maxDim bounds every dimension, as in package op, so that float64 products are exact enough.
const maxDim = 1 << 28

// maxElements bounds products of two dimensions, such as the elements of an element-wise kernel. It
// is 2 TB in BF16, far from where sums and products overflow.
const maxElements = 1 << 40

// dims returns the dimensions that a kernel uses, in a fixed order.
func (s Shape) dims(k Kernel) []int {
	switch k {
	case GEMM, GEMV:
		return []int{s.M, s.K, s.N}
	case Attention:
		return []int{s.Rows, s.Keys, s.Heads, s.KVHeads, s.HeadDim}
	case RMSNorm, LayerNorm, RoPE:
		return []int{s.Rows, s.Width}
	}
	return []int{s.N}
}

func (s Shape) validate(k Kernel) error {
	for i, d := range s.dims(k) {
		most := maxDim
		if i == 0 && k != GEMM && k != GEMV && k != Attention {
			most = maxElements
		}
		if d <= 0 || d > most {
			return fmt.Errorf("%s shape %v: dimension %d is %d, want 1 to %d", k, s.dims(k), i, d, most)
		}
	}
	if k == GEMV && s.M != 1 {
		return fmt.Errorf("gemv: M is %d, want 1", s.M)
	}
	if k == Attention && s.Heads%s.KVHeads != 0 {
		return fmt.Errorf("attention: %d query heads, want a multiple of %d key heads", s.Heads, s.KVHeads)
	}
	return nil
}

// ShapeOf returns the kernel that computes o and its shape. Size resolves symbolic dimensions.
func ShapeOf(o op.Op, size op.Size) (Kernel, Shape, error) {
	if o == nil {
		return "", Shape{}, fmt.Errorf("xdna2: launch has no op")
	}
	if err := o.Validate(); err != nil {
		return "", Shape{}, fmt.Errorf("xdna2: %w", err)
	}
	n := size.Resolve
	k, s := moveKernel, Shape{}
	switch o := o.(type) {
	case op.MatMul:
		k, s = GEMM, Shape{M: n(o.M), K: o.K, N: o.N}
		if s.M == 1 {
			k = GEMV
		}
	case op.Attention:
		rows := n(o.Rows)
		k, s = Attention, Shape{Rows: rows, Keys: rows, Heads: o.Heads, KVHeads: o.KVHeads, HeadDim: o.HeadDim,
			Causal: true}
		if o.Cached {
			s.Keys += size.Pos
		}
	case op.Add:
		k, s = Add, Shape{N: n(o.Rows) * o.Width, Broadcast: o.Broadcast}
	case op.SiLUMul:
		k, s = SiLUMul, Shape{N: n(o.Rows) * o.Width}
	case op.GELU:
		k, s = GELU, Shape{N: n(o.Rows) * o.Width}
	case op.RMSNorm:
		k, s = RMSNorm, Shape{Rows: n(o.Rows) * max(1, o.Heads), Width: o.Width}
	case op.LayerNorm:
		k, s = LayerNorm, Shape{Rows: n(o.Rows), Width: o.Width}
	case op.RoPE:
		k, s = RoPE, Shape{Rows: n(o.Rows) * o.Heads, Width: o.HeadDim}
	case op.Cast:
		k, s = castKernel, Shape{N: n(o.Rows) * o.Width}
	default:
		s = Shape{N: moved(o, size)}
	}
	if err := s.validate(k); err != nil {
		return "", Shape{}, fmt.Errorf("xdna2: %s: %w (rows %d, picks %d)", o.Kind(), err, size.Rows, size.Picks)
	}
	return k, s, nil
}

// moved returns the number of elements that a copying op writes.
func moved(o op.Op, size op.Size) int {
	if o, ok := o.(op.KVWrite); ok {
		return size.Resolve(o.Rows) * o.KVHeads * o.HeadDim
	}
	operands := o.Operands()
	return size.Elements(operands[len(operands)-1].Shape)
}
