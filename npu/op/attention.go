package op

import (
	"fmt"
	"math"

	"github.com/npukit/npukit/npu/dtype"
)

// RoPE rotates each head of a row by the row's position. It pairs element i with i+HeadDim/2, the
// half-split order of Hugging Face checkpoints. The table has one row of angles per row of x:
// HeadDim/2 cosines, then HeadDim/2 sines.
//
//	x     [Rows, Heads*HeadDim]
//	table [Rows, TableHeads*HeadDim]
//	dst   [Rows, Heads*HeadDim]
//
// TableHeads is 1 (or 0) if all heads of a row share its table row, and Heads if the table repeats
// it per head, as NPU kernels require.
//
// Source: Su et al., RoFormer (arXiv 2104.09864), eq. 34.
type RoPE struct {
	Rows, Heads, HeadDim int
	TableHeads           int `json:",omitempty"`
}

func (RoPE) Kind() string { return "RoPE" }

func (o RoPE) Operands() []Operand {
	return []Operand{
		over("x", activation, o.Rows, o.Heads*o.HeadDim),
		in("table", activation, o.Rows, max(1, o.TableHeads)*o.HeadDim),
		out("dst", activation, o.Rows, o.Heads*o.HeadDim),
	}
}

func (o RoPE) FLOPs(s Size) float64 {
	return 3 * float64(s.Resolve(o.Rows)) * float64(o.Heads*o.HeadDim)
}

func (o RoPE) Validate() error {
	if o.HeadDim%2 != 0 {
		return fmt.Errorf("op: RoPE: HeadDim is %d, want an even number", o.HeadDim)
	}
	if o.TableHeads < 0 || o.TableHeads > 1 && o.TableHeads != o.Heads {
		return fmt.Errorf("op: RoPE: TableHeads is %d, want 1 or Heads (%d)", o.TableHeads, o.Heads)
	}
	return check("RoPE", dim{"Rows", o.Rows, true}, dim{"Heads", o.Heads, false}, dim{"HeadDim", o.HeadDim, false})
}

// KVWrite writes the rows' keys or values into a segment's cache at the positions of the rows.
//
//	x     [Rows, KVHeads*HeadDim]
//	cache [KVHeads, Capacity, HeadDim], rows Pos to Pos+Rows of every head are written in place
type KVWrite struct {
	Rows, KVHeads, HeadDim int
}

func (KVWrite) Kind() string { return "KVWrite" }

func (o KVWrite) Operands() []Operand {
	cache := in("cache", cacheTypes, o.KVHeads, Capacity, o.HeadDim)
	cache.Read, cache.Write = true, true
	return []Operand{in("x", activation, o.Rows, o.KVHeads*o.HeadDim), cache}
}

func (o KVWrite) FLOPs(Size) float64 { return 0 }

func (o KVWrite) Validate() error {
	return check("KVWrite", dim{"Rows", o.Rows, true}, dim{"KVHeads", o.KVHeads, false},
		dim{"HeadDim", o.HeadDim, false})
}

// cacheTypes are the element types of a KV cache.
var cacheTypes = []dtype.Type{dtype.F32, dtype.F16, dtype.BF16}

// Attention is causal grouped-query attention: for each query head h it computes softmax(q k^T /
// sqrt(HeadDim)) v over the positions up to the row's own, with the keys and values of head h /
// (Heads/KVHeads).
//
// If Cached is set, keys and values of all positions come from the segment's caches, which already
// contain the rows of this run:
//
//	q      [Rows, Heads*HeadDim]
//	kcache [KVHeads, Capacity, HeadDim]
//	vcache [KVHeads, Capacity, HeadDim]
//	dst    [Rows, Heads*HeadDim]
//
// Otherwise the rows start at position 0, and k and v are those of the rows:
//
//	q   [Rows, Heads*HeadDim]      HeadFirst: [Heads, Rows, HeadDim]
//	k   [Rows, KVHeads*HeadDim]    HeadFirst: [KVHeads, Rows, HeadDim]
//	v   [Rows, KVHeads*HeadDim]    HeadFirst: [KVHeads*Split, Rows, HeadDim/Split]
//	dst [Rows, Heads*HeadDim]      HeadFirst: [Heads*Split, Rows, HeadDim/Split]
//
// HeadFirst and Split (0 means 1) describe the layout of the NPU kernel for head dimensions of 128,
// which has v and dst in two halves.
//
// Source: Vaswani et al., Attention Is All You Need (arXiv 1706.03762); Ainslie et al., GQA (arXiv
// 2305.13245).
type Attention struct {
	Rows, Heads, KVHeads, HeadDim int
	Cached                        bool    `json:",omitempty"`
	HeadFirst                     bool    `json:",omitempty"`
	Split                         int     `json:",omitempty"`
	Scale                         float64 `json:",omitempty"` // 0 means 1/sqrt(HeadDim)
}

func (Attention) Kind() string { return "Attention" }

// Softmax returns the factor that multiplies the scores before the softmax.
func (o Attention) Softmax() float64 {
	if o.Scale != 0 {
		return o.Scale
	}
	return 1 / math.Sqrt(float64(o.HeadDim))
}

func (o Attention) Operands() []Operand {
	q, kv := o.Heads*o.HeadDim, o.KVHeads*o.HeadDim
	switch {
	case o.Cached:
		return []Operand{
			in("q", activation, o.Rows, q),
			in("kcache", cacheTypes, o.KVHeads, Capacity, o.HeadDim),
			in("vcache", cacheTypes, o.KVHeads, Capacity, o.HeadDim),
			out("dst", activation, o.Rows, q),
		}
	case o.HeadFirst:
		split := max(1, o.Split)
		return []Operand{
			in("q", activation, o.Heads, o.Rows, o.HeadDim),
			in("k", activation, o.KVHeads, o.Rows, o.HeadDim),
			in("v", activation, o.KVHeads*split, o.Rows, o.HeadDim/split),
			out("dst", activation, o.Heads*split, o.Rows, o.HeadDim/split),
		}
	}
	return []Operand{
		in("q", activation, o.Rows, q),
		in("k", activation, o.Rows, kv),
		in("v", activation, o.Rows, kv),
		out("dst", activation, o.Rows, q),
	}
}

// FLOPs counts the score and value products of the visible half of the square, and five operations
// per score for the softmax.
func (o Attention) FLOPs(s Size) float64 {
	rows := float64(s.Resolve(o.Rows))
	scores := float64(o.Heads) * rows * ((rows + 1) / 2)
	if o.Cached {
		scores += float64(o.Heads) * rows * float64(s.Pos)
	}
	return scores * float64(4*o.HeadDim+5)
}

func (o Attention) Validate() error {
	if err := check("Attention", dim{"Rows", o.Rows, true}, dim{"Heads", o.Heads, false},
		dim{"KVHeads", o.KVHeads, false},
		dim{"HeadDim", o.HeadDim, false}); err != nil {
		return err
	}
	switch {
	case o.Heads%o.KVHeads != 0:
		return fmt.Errorf("op: Attention: Heads is %d, want a multiple of KVHeads (%d)", o.Heads, o.KVHeads)
	case o.Cached && o.HeadFirst:
		return fmt.Errorf("op: Attention: HeadFirst and Cached exclude each other: cached k and v have a fixed layout")
	case o.Split < 0 || o.Split > 1 && (!o.HeadFirst || o.HeadDim%o.Split != 0):
		return fmt.Errorf("op: Attention: Split is %d, want a divisor of HeadDim (%d), with HeadFirst", o.Split,
			o.HeadDim)
	case o.Scale < 0 || math.IsNaN(o.Scale) || math.IsInf(o.Scale, 0):
		return fmt.Errorf("op: Attention: Scale is %g, want a positive number, or 0 for 1/sqrt(HeadDim)", o.Scale)
	}
	return nil
}
