//go:build cgo && !windows && (amd64 || arm64)

package ckernel

import (
	"testing"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"
)

// Each set selects these kernels, on any machine: nothing is executed.
func TestSelect(t *testing.T) {
	product := func(a, w int32, m, k int64) kernel.Product {
		return kernel.Product{A: a, W: w, M: m, K: k, Transposed: true}
	}
	kn := kernel.Product{A: kernel.BF16, W: kernel.BF16, M: 1, K: 64} // weights [k, n]
	for _, tc := range []struct {
		sets    []string
		product kernel.Product
		kind    int32
		table   func(*set) int32
	}{
		// BF16 with BF16.
		{[]string{"generic", "avx2", "avx512", "vnni", "amx"}, product(kernel.BF16, kernel.BF16, 16, 64), kernel.GEMV,
			base},
		{[]string{"generic", "avx2", "avx512", "vnni"}, product(kernel.BF16, kernel.BF16, 17, 64), kernel.GEMM, base},
		{[]string{"amx"}, product(kernel.BF16, kernel.BF16, 17, 64), kernel.GEMM, tiles},
		{[]string{"armbf16", "avx512bf16"}, product(kernel.BF16, kernel.BF16, 16, 64), kernel.GEMV, pairs},
		{[]string{"armbf16", "avx512bf16"}, product(kernel.BF16, kernel.BF12x4, 17, 64), kernel.InPlace, pairs},
		{[]string{"armbf16", "avx512bf16"}, product(kernel.BF16, kernel.BF16, 17, 63), kernel.GEMM, pairs},
		{[]string{"armbf16", "avx512bf16"}, product(kernel.BF16, kernel.BF16, 257, 64), kernel.GEMM, pairs},
		{[]string{"armbf16", "avx512bf16"}, kn, kernel.GEMM, pairs},
		{[]string{"generic", "avx2", "avx512", "vnni", "amx"}, kn, kernel.GEMM, base},
		{[]string{"amx"}, product(kernel.BF16, kernel.BF12x16, 1, 64), kernel.GEMV, tiles},
		{[]string{"amx"}, product(kernel.BF16, kernel.BF12x16, 2, 64), kernel.GEMM, tiles},
		// Quantized weights.
		{[]string{"generic", "armbf16", "avx2", "avx512", "vnni", "amx"}, product(kernel.BF16, kernel.Q4_K, 16, 256),
			kernel.GEMV, integer},
		{[]string{"avx512bf16"}, product(kernel.BF16, kernel.Q4_K, 16, 256), kernel.GEMV, quants},
		{[]string{"armbf16", "avx512bf16"}, product(kernel.BF16, kernel.Q6_K, 17, 256), kernel.GEMM, pairs},
		{[]string{"amx"}, product(kernel.BF16, kernel.Q6_K, 17, 256), kernel.GEMM, tiles},
		{[]string{"generic", "avx2", "avx512", "vnni"}, product(kernel.BF16, kernel.Q6_K, 17, 256), kernel.GEMM, base},
		{nil, product(kernel.F32, kernel.Q6_K, 1, 256), kernel.GEMM, base},
		// FP32 activations or weights.
		{nil, product(kernel.F32, kernel.BF16, 16, 64), kernel.GEMV, base},
		{nil, product(kernel.F32, kernel.BF12x4, 17, 64), kernel.GEMM, base},
		{nil, product(kernel.BF16, kernel.F32, 16, 64), kernel.GEMV, base},
		{nil, product(kernel.BF16, kernel.F16, 17, 64), kernel.GEMM, base},
	} {
		names := tc.sets
		if names == nil {
			for _, s := range sets {
				names = append(names, s.name)
			}
		}
		for _, name := range names {
			e := &Engine{set: *setOf(name)}
			got := e.Select(tc.product)
			if want := tc.table(&e.set); got.Kind != tc.kind || got.Table != want {
				t.Errorf("%s, %+v: kind %d of table %d, want %d of %d", name, tc.product, got.Kind, got.Table, tc.kind,
					want)
			}
		}
	}
}

// Where weights are kept in 16-row blocks, the matrix unit also multiplies single rows with those that
// could not be compressed.
func TestSelectKeepsTheOrderOfSums(t *testing.T) {
	e := &Engine{set: *setOf("amx"), blocks16: true}
	p := kernel.Product{A: kernel.BF16, W: kernel.BF16, M: 1, K: 64, Transposed: true}
	if got := e.Select(p); got.Table != e.set.tiles || got.Kind != kernel.GEMM {
		t.Errorf("got %+v, want a GEMM of the matrix unit", got)
	}
}
