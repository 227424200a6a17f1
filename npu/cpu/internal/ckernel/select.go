//go:build cgo && !windows && (amd64 || arm64)

package ckernel

// #include "csrc/npk.h"
import "C"

import "github.com/npukit/npukit/npu/cpu/internal/kernel"

// This file maps products to kernels: sets has the kernel tables of each value of Options.Kernels,
// rules has the order in which products look for theirs, and Select applies them. Rules that depend
// on the micro-architecture, such as prefetch distances, are in csrc/machine.h.

// set is the kernel tables of one value of Options.Kernels; 0 for those it does not have.
type set struct {
	name    string
	arm     bool
	base    int32 // all commands that no other table serves
	integer int32 // GEMV with quantized weights, as sums of integers
	pairs   int32 // products of BF16 pairs
	quants  int32 // GEMV with quantized weights, as products of BF16 pairs
	tiles   int32 // products and attention in the matrix unit
}

// sets lists the sets in ascending order: each needs the instructions of those before it.
var sets = []set{
	{name: "generic", base: C.NPK_GENERIC, integer: C.NPK_GENERIC_INTEGER},
	{name: "armbf16", base: C.NPK_ARMBF16, integer: C.NPK_GENERIC_INTEGER,
		pairs: C.NPK_ARMBF16_PAIRS, arm: true},
	{name: "avx2", base: C.NPK_AVX2, integer: C.NPK_AVX2_INTEGER},
	{name: "avx512", base: C.NPK_AVX512, integer: C.NPK_AVX512_INTEGER},
	{name: "vnni", base: C.NPK_AVX512, integer: C.NPK_AVX512VNNI_INTEGER},
	{name: "avx512bf16", base: C.NPK_AVX512, integer: C.NPK_AVX512_INTEGER,
		pairs: C.NPK_AVX512BF16_PAIRS, quants: C.NPK_AVX512BF16_QUANTS},
	{name: "amx", base: C.NPK_AVX512, integer: C.NPK_AVX512_INTEGER, tiles: C.NPK_AMX},
}

// setOf returns the set of that name, or nil.
func setOf(name string) *set {
	for i := range sets {
		if sets[i].name == name {
			return &sets[i]
		}
	}
	return nil
}

// peak is the table that multiplies BF16 with BF16 fastest.
func (s *set) peak() int32 {
	switch {
	case s.tiles != 0:
		return s.tiles
	case s.pairs != 0:
		return s.pairs
	}
	return s.base
}

// weights is a set of weight types.
type weights uint8

const (
	bf16 weights = 1 << iota
	bf12x4
	bf12x16
	grouped
	other
	ungrouped = bf16 | bf12x4 | bf12x16 | other
)

func weightsOf(code int32) weights {
	switch {
	case code == kernel.BF16:
		return bf16
	case code == kernel.BF12x4:
		return bf12x4
	case code == kernel.BF12x16:
		return bf12x16
	case kernel.IsGrouped(code):
		return grouped
	}
	return other
}

const (
	few       = C.NPK_GEMV_ROWS
	some      = C.NPK_INPLACE_ROWS
	unlimited = 1 << 62
)

// rule is a kernel for products, and when it serves.
type rule struct {
	table      func(s *set) int32 // which must not be 0
	weights    weights
	rows       int64 // at most
	bf16       bool  // activations are BF16
	transposed bool  // weights are [n, k]
	choice     kernel.Choice
	when       func(e *Engine, p *kernel.Product) bool // nil if nothing else matters
}

func base(s *set) int32    { return s.base }
func integer(s *set) int32 { return s.integer }
func pairs(s *set) int32   { return s.pairs }
func quants(s *set) int32  { return s.quants }
func tiles(s *set) int32   { return s.tiles }

var (
	gemv      = kernel.Choice{Kind: kernel.GEMV}
	gemvInt   = kernel.Choice{Kind: kernel.GEMV, Rounding: kernel.RoundsActivations}
	inPlace   = kernel.Choice{Kind: kernel.InPlace, PackFlags: kernel.FlagWide}
	gemm      = kernel.Choice{Kind: kernel.GEMM}
	gemmBF16  = kernel.Choice{Kind: kernel.GEMM, Rounding: kernel.RoundsWeights}
	gemmTerms = kernel.Choice{Kind: kernel.GEMM, Rounding: kernel.SplitsWeights}
	gemmRight = kernel.Choice{Kind: kernel.GEMM, PackFlags: kernel.FlagRight}
)

// rules lists the kernels of products. The first rule that applies wins.
//
// Quantized weights and activations that are not BF16 meet in the base table alone: 16 bits would
// be fewer than the activations have.
var rules = []rule{
	// table, weights, rows, bf16, transposed, choice, when
	{tiles, bf12x16, 1, true, true, gemv, nil},
	{tiles, bf12x16, unlimited, true, true, gemm, nil},
	{tiles, bf16, unlimited, true, true, gemmRight, keepsBlocks16},

	{quants, grouped, few, true, true, gemv, nil},
	{integer, grouped, few, true, true, gemvInt, nil},
	{tiles, grouped, unlimited, true, true, gemmTerms, nil},
	{pairs, grouped, unlimited, true, true, gemmBF16, nil},

	{pairs, bf16 | bf12x4, few, true, true, gemv, nil},
	{pairs, bf16 | bf12x4, some, true, true, inPlace, evenK},
	{pairs, bf16 | bf12x4, unlimited, true, false, gemm, nil},

	{base, ungrouped, few, false, true, gemv, nil},
	{tiles, bf16, unlimited, true, true, gemmRight, nil},
	{base, ungrouped | grouped, unlimited, false, false, gemm, nil},
}

// keepsBlocks16 reports whether the device keeps weights as BF12x16. Those that it cannot compress
// then have sums in the same order.
func keepsBlocks16(e *Engine, _ *kernel.Product) bool { return e.blocks16 }

func evenK(_ *Engine, p *kernel.Product) bool { return p.K%2 == 0 }

// Select returns the kernel that computes a product.
func (e *Engine) Select(p kernel.Product) kernel.Choice {
	w := weightsOf(p.W)
	for i := range rules {
		r := &rules[i]
		table := r.table(&e.set)
		if table == 0 || w&r.weights == 0 || p.M > r.rows || r.bf16 && p.A != kernel.BF16 ||
			r.transposed && !p.Transposed || r.when != nil && !r.when(e, &p) {
			continue
		}
		c := r.choice
		c.Table = table
		return c
	}
	panic("ckernel: no rule for a product")
}

// AttentionTable returns the table of attention to keys and values of types k and v with results of
// type y and heads of hd elements. The matrix unit loses 2^-17 of queries and weights, which would
// show in FP32.
func (e *Engine) AttentionTable(k, v, y int32, hd int64) int32 {
	if k == kernel.BF16 && v == kernel.BF16 && y == kernel.BF16 && hd%C.NPK_TILE_K == 0 {
		return e.set.tiles
	}
	return 0
}
