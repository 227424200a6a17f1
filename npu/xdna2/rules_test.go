package xdna2

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

func gemmMap(variant string, tm, k2, k1, tn int) npu.Mapping {
	return npu.Mapping{Variant: variant, Tile: []int{tm, k2, k1, tn}, Herd: []int{8, 4}}
}

func gemvMap(tm, mi, cols int) npu.Mapping {
	return npu.Mapping{Variant: "gemv", Tile: []int{tm, mi}, Herd: []int{cols, 1}}
}

func vecMap(tile, cols, rows int) npu.Mapping {
	m := npu.Mapping{Herd: []int{cols, rows}}
	if tile > 0 {
		m.Tile = []int{tile}
	}
	return m
}

func flashMap(layout string, lqp, lkp, nq, hpu, rows int) npu.Mapping {
	return npu.Mapping{Variant: "flash", Layout: layout, Tile: []int{lqp, lkp, nq, hpu}, Herd: []int{nq * hpu, rows}}
}

func temporalMap(lqp, lkp, nq, hpu int) npu.Mapping {
	m := flashMap("seq-first", lqp, lkp, nq, hpu, 4)
	m.Variant, m.Herd[0] = "temporal", 8
	return m
}

// statedCase is a launch that violates a rule, or one close to violating it that fits.
type statedCase struct {
	rule  string
	op    op.Op
	m     npu.Mapping
	fails bool
}

// statedCases are the cases that the survey lists for each rule, and some of our own.
// TestContradictedClaims has the failures that upstream claims but published rows contradict.
func statedCases() []statedCase {
	mul := func(m, k, n int) op.Op { return op.MatMul{M: m, K: k, N: n, TransB: m == 1} }
	silu := func(n int) op.Op { return op.SiLUMul{Rows: 1, Width: n} }
	head := func(hd, heads, kv int) op.Op {
		o := op.Attention{Rows: 2048, Heads: heads, KVHeads: kv, HeadDim: hd, HeadFirst: true}
		if hd > 64 {
			o.Split = hd / 64
		}
		return o
	}
	seq := func(rows, hd, heads, kv int) op.Op {
		return op.Attention{Rows: rows, Heads: heads, KVHeads: kv, HeadDim: hd}
	}
	return []statedCase{
		{"R-L1-1", op.Add{Rows: 1, Width: 4194304}, vecMap(8192, 8, 1), true},
		{"R-L1-1", silu(16777216), vecMap(8192, 8, 1), true},
		{"R-L1-1", silu(2048 * 11008), vecMap(7168, 8, 1), true},
		{"R-L1-1", silu(2048 * 8960), vecMap(5120, 8, 1), false},
		{"R-L1-1", silu(2048 * 9728), vecMap(4864, 8, 1), false},
		{"R-L1-2", op.GELU{Rows: 1, Width: 3145728}, vecMap(12288, 8, 2), true},
		{"R-L1-2", op.GELU{Rows: 1, Width: 3145728}, vecMap(6144, 8, 2), false},
		{"R-L1-4", mul(2048, 2048, 2048), gemmMap("drain", 64, 256, 32, 128), true},
		{"R-L1-4", mul(2048, 2048, 2048), gemmMap("drain", 32, 256, 32, 128), false},
		{"R-L1-5", mul(2048, 2048, 2048), gemmMap("fused-cast", 64, 256, 32, 256), true},
		{"R-L1-5", mul(2048, 2048, 2048), gemmMap("fused-cast", 64, 256, 32, 128), false},
		{"R-L1-6", mul(2048, 1024, 1024), gemmMap("fused-cast", 64, 256, 32, 128), true},
		{"R-L1-6", mul(2048, 1024, 1024), gemmMap("fused-cast", 32, 256, 32, 128), false},
		{"R-L1-7", mul(1, 11008, 2048), gemvMap(2, 2, 8), true},
		{"R-L1-7", mul(1, 11008, 2048), gemvMap(2, 1, 8), false},
		{"R-L1-7", mul(1, 4096, 2560), gemvMap(2, 2, 8), false},
		{"R-L1-9", head(64, 32, 8), flashMap("head-first", 512, 64, 4, 2, 4), true},
		{"R-L1-9", head(64, 32, 8), flashMap("head-first", 256, 64, 4, 2, 4), false},
		{"R-L1-10", head(256, 8, 4), flashMap("head-first", 256, 64, 4, 2, 4), true},
		{"R-L1-10", head(256, 8, 4), flashMap("head-first", 256, 32, 8, 1, 4), false},
		{"R-L1-11", seq(2048, 128, 24, 8), temporalMap(512, 64, 8, 1), true},
		{"R-L1-11", seq(2048, 128, 24, 8), temporalMap(256, 32, 8, 1), false},
		{"R-L1-11", seq(2048, 128, 24, 8), temporalMap(512, 32, 16, 1), false}, // two query tiles a core, 61696 bytes
		{"R-L2-1", mul(1, 4096, 2560), gemvMap(8, 8, 8), true},
		{"R-L2-1", mul(1, 8192, 2048), gemvMap(4, 2, 8), true},
		{"R-L2-1", mul(1, 8192, 2048), gemvMap(2, 2, 8), false},
		{"R-L2-1", mul(1, 4096, 2560), gemvMap(4, 4, 8), false},
		{"R-L2-1", mul(1, 3584, 1024), gemvMap(8, 2, 8), false},
		{"R-L2-1", mul(1, 3584, 1040), gemvMap(10, 2, 8), true}, // 80 rows, 73 fit
		{"R-L2-4", mul(2048, 3584, 3584), gemmMap("fused-cast", 64, 512, 32, 128), true},
		{"R-L2-4", mul(2048, 18944, 3584), gemmMap("fused-cast", 64, 512, 32, 128), true},
		{"R-L2-4", mul(2048, 4096, 2048), gemmMap("fused-cast", 64, 512, 32, 256), true}, // exceeded by the FP32 block
		{"R-L2-4", mul(2048, 3584, 3584), gemmMap("fused-cast", 64, 64, 32, 128), false},
		{"R-L2-4", mul(2048, 18944, 3584), gemmMap("fused-cast", 64, 256, 32, 128), false},
		{"R-DMA-1", mul(2048, 2048, 11008), gemmMap("direct", 64, 256, 32, 64), true},
		{"R-DMA-1", mul(2048, 3584, 18944), gemmMap("direct", 64, 128, 32, 64), true},
		{"R-DMA-1", mul(2048, 2048, 8192), gemmMap("drain", 32, 256, 32, 128), false},
		{"R-DMA-1", mul(4096, 4096, 4096), gemmMap("fused-cast", 64, 512, 32, 128), false},
		{"R-DMA-3", mul(1, 2048, 2048), gemvMap(1, 1, 8), true},
		{"R-DMA-3", mul(1, 2048, 2048), gemvMap(2, 1, 8), false},
		{"R-DMA-5", mul(1, 9728, 2560), gemvMap(2, 1, 8), true},
		{"R-DMA-5", mul(1, 9728, 2560), gemvMap(2, 2, 8), false},
		{"R-DMA-5", mul(1, 1536, 16384), gemvMap(8, 4, 8), true}, // 32 rows a step
		{"R-DMA-5", mul(1, 1536, 8192), gemvMap(8, 4, 8), false},
		{"R-DMA-5", mul(1, 2048, 16384), gemvMap(8, 8, 8), false},
		{"R-DMA-5", mul(1, 2048, 49152), gemvMap(8, 8, 8), false}, // the exception
		{"R-DMA-6", mul(1, 1024, 151936), gemvMap(16, 16, 8), true},
		{"R-DMA-6", mul(1, 1024, 16384), gemvMap(16, 16, 8), false},
		{"R-DMA-8", op.RoPE{Rows: 65536, Heads: 1, HeadDim: 64}, vecMap(2, 8, 1), true},
		{"R-DMA-8", op.RoPE{Rows: 65536, Heads: 1, HeadDim: 64}, vecMap(1, 8, 1), false},
		{"R-CH-1", op.Add{Rows: 1, Width: 4194304}, vecMap(2048, 4, 4), true},
		{"R-CH-1", op.Add{Rows: 1, Width: 4194304}, vecMap(2048, 2, 4), false},
		{"R-CH-2", op.GELU{Rows: 1, Width: 3145728}, vecMap(4096, 8, 4), true},
		{"R-CH-2", op.GELU{Rows: 1, Width: 3145728}, vecMap(4096, 4, 4), false},
		{"R-CH-4", head(64, 32, 8), flashMap("head-first", 128, 64, 2, 4, 4), true},
		{"R-CH-4", head(64, 32, 8), flashMap("head-first", 256, 64, 4, 2, 4), false},
		{"R-CH-5", head(64, 32, 8), flashMap("head-first", 256, 64, 4, 2, 8), true},
		{"R-CH-5", head(64, 32, 8), flashMap("head-first", 512, 64, 8, 1, 4), false},
		{"R-BD-2", silu(16777216), vecMap(2048, 8, 1), true},
		{"R-BD-2", silu(2048 * 18944), vecMap(4736, 8, 1), true}, // 1024 tiles
		{"R-BD-2", silu(1024 * 18944), vecMap(4736, 8, 1), false},
		{"R-BD-2", silu(2048 * 11008), vecMap(4096, 8, 1), false}, // 688
		{"R-BD-6", seq(2048, 128, 32, 8), temporalMap(256, 32, 8, 1), true},
		{"R-BD-6", seq(1024, 128, 32, 8), temporalMap(256, 32, 8, 1), false},
		{"R-BD-6", seq(2048, 128, 24, 8), temporalMap(256, 32, 8, 1), false},
		{"R-DIV-1", mul(2048, 2048, 896), gemmMap("fused-cast", 64, 256, 32, 128), true},
		{"R-DIV-1", mul(2048, 1000, 1024), gemmMap("fused-cast", 64, 256, 32, 128), true},
		{"R-DIV-1", mul(192, 320, 64), npu.Mapping{Variant: "drain", Tile: []int{48, 320, 32, 16},
			Herd: []int{4, 4}}, false},
		{"R-DIV-2", mul(64, 12288, 960), npu.Mapping{Variant: "drain", Tile: []int{8, 384, 32, 240},
			Herd: []int{8, 4}}, true},
		{"R-DIV-2", mul(64, 12288, 960), npu.Mapping{Variant: "drain", Tile: []int{16, 384, 32, 120},
			Herd: []int{4, 4}}, true},
		{"R-DIV-3", mul(2048, 896, 896), npu.Mapping{Variant: "fused-cast", Tile: []int{32, 128, 32, 128},
			Herd: []int{8, 1}}, true},
		{"R-DIV-3", mul(64, 720, 32), npu.Mapping{Variant: "drain", Tile: []int{16, 144, 48, 32}, Herd: []int{4, 1}},
			false},
		{"R-DIV-3", mul(128, 720, 32), npu.Mapping{Variant: "drain", Tile: []int{16, 144, 48, 32},
			Herd: []int{4, 1}}, true},
		{"R-DIV-4", mul(1, 100, 64), gemvMap(8, 8, 8), true},
		{"R-DIV-4", mul(1, 2048, 100), gemvMap(8, 8, 8), true},
		{"R-DIV-4", mul(1, 2048, 64), gemvMap(8, 3, 8), true},
		{"R-DIV-9", seq(2048, 16, 4, 2), flashMap("seq-first", 256, 64, 4, 2, 4), true},
		{"R-DIV-9", seq(2048, 128, 32, 8), flashMap("seq-first", 256, 64, 4, 2, 4), true},
		{"R-DIV-9", seq(2048, 64, 32, 8), flashMap("seq-first", 256, 64, 4, 2, 4), false},
		{"R-DIV-9", head(96, 32, 8), flashMap("head-first", 256, 64, 4, 2, 4), true},
		{"R-DIV-9", seq(2048, 64, 24, 8), temporalMap(256, 32, 8, 1), true},
		{"R-DIV-10", seq(2000, 64, 32, 8), flashMap("seq-first", 256, 64, 4, 2, 4), true},
		{"R-DIV-10", seq(2048, 64, 15, 5), flashMap("seq-first", 256, 64, 4, 2, 4), true}, // 15 heads in pairs
		{"R-DIV-11", seq(2048, 64, 32, 8), flashMap("seq-first", 128, 64, 4, 2, 4), true},
		{"R-DIV-12", seq(2048, 128, 24, 8), temporalMap(256, 32, 4, 1), true},
		{"R-DIV-13", op.GELU{Rows: 1, Width: 1000}, vecMap(100, 1, 1), true},
		{"R-DIV-14", op.RMSNorm{Rows: 2047, Width: 2048}, vecMap(0, 8, 1), true},
		{"R-DIV-14", op.RMSNorm{Rows: 8, Width: 100}, vecMap(0, 8, 1), true},
		{"R-DIV-15", op.RoPE{Rows: 8, Heads: 1, HeadDim: 40}, vecMap(1, 8, 1), true},
		{"R-DIV-15", op.RoPE{Rows: 8, Heads: 1, HeadDim: 48}, vecMap(1, 8, 1), false},
		{"R-DIV-16", op.Cast{Rows: 3, Width: 5}, npu.Mapping{Variant: "fused-cast"}, true},
		{"R-L1-0", op.RMSNorm{Rows: 8, Width: 8192}, vecMap(0, 8, 1), true},
		{"R-L1-0", op.RMSNorm{Rows: 8, Width: 4096}, vecMap(0, 8, 1), false},
		{"R-ELF-12", mul(1, 4096, 2560), gemvMap(2, 2, 4), true},
		{"R-ELF-12", mul(1, 2048, 2048), gemvMap(8, 8, 4), false},
		{"R-MAP-1", mul(1, 2048, 2048), npu.Mapping{}, true},
		{"R-MAP-1", mul(1, 2048, 2048), gemmMap("drain", 1, 1, 1, 1), true},
		{"R-MAP-1", mul(8, 2048, 2048),
			npu.Mapping{Variant: "drain", Tile: []int{1 << 62, 1 << 62, 1 << 62, 1 << 62}, Herd: []int{1 << 62, 4}},
			true},
		{"R-MAP-1", seq(2048, 64, 32, 8), flashMap("", 256, 64, 4, 2, 4), true},
		{"R-MAP-1", seq(2048, 64, 32, 8), flashMap("head-first", 256, 64, 4, 2, 4), true}, // the op is sequence-first
		{"R-MAP-2", op.GELU{Rows: 1, Width: 3145728}, vecMap(4096, 1, 8), true},
		{"R-MAP-3", op.Attention{Rows: 2048, Heads: 32, KVHeads: 8, HeadDim: 128, HeadFirst: true},
			flashMap("head-first", 256, 64, 4, 2, 4), true},
		{"R-KER-1", op.Attention{Rows: 1, Heads: 32, KVHeads: 8, HeadDim: 64, Cached: true}, npu.Mapping{}, true},
		{"R-KER-1", op.KVWrite{Rows: 1, KVHeads: 8, HeadDim: 64}, npu.Mapping{}, true},
		{"R-KER-1", op.Embed{Rows: 1, Vocab: 1000, Width: 64}, npu.Mapping{}, true},
		{"R-KER-2", op.RMSNorm{Rows: op.Rows, Width: 2048}, vecMap(0, 8, 1), true},
		{"R-KER-4", op.RoPE{Rows: 8, Heads: 8, HeadDim: 64}, vecMap(1, 8, 1), true},
		{"R-KER-4", op.RoPE{Rows: 8, Heads: 8, HeadDim: 64, TableHeads: 8}, vecMap(1, 8, 1), false},
		{"R-KER-4", op.Attention{Rows: 2048, Heads: 32, KVHeads: 8, HeadDim: 64, Scale: 1},
			flashMap("seq-first", 256, 64, 4, 2, 4), true},
		{"R-DMA-4", op.MatMul{M: 2048, K: 2048, N: 2048, TransB: true}, gemmMap("fused-cast", 64, 256, 32, 128), true},
		{"R-DMA-4", op.MatMul{M: 1, K: 2048, N: 2048}, gemvMap(8, 8, 8), true},
		{"R-DMA-4", op.Permute{Shape: []int{2048, 128}, Perm: []int{1, 0}}, npu.Mapping{}, true},
		{"R-KER-1", op.Permute{Shape: []int{2048, 32, 128}, Perm: []int{1, 0, 2}}, npu.Mapping{}, true},
		{"S-1", mul(64, 720, 960), npu.Mapping{Variant: "drain", Tile: []int{16, 240, 48, 80}, Herd: []int{4, 4}},
			true},
		{"S-1", mul(64, 720, 960), npu.Mapping{Variant: "drain", Tile: []int{16, 144, 48, 80}, Herd: []int{4, 4}},
			false},
		// S-11
		{"S-1", mul(256, 960, 960), npu.Mapping{Variant: "drain", Tile: []int{32, 160, 32, 80}, Herd: []int{8, 4}},
			true},
		{"S-2", op.Add{Rows: 1, Width: 245760}, vecMap(2048, 8, 1), true},
		{"S-2", op.Add{Rows: 1, Width: 245760}, vecMap(1920, 8, 1), false},
	}
}

func TestStatedCases(t *testing.T) {
	for _, tc := range statedCases() {
		p, err := newPlace(NPU2(), tc.op, nil, tc.m)
		if err != nil {
			t.Errorf("%s, %v %v: %v", tc.rule, tc.op, tc.m, err)
			continue
		}
		known := rules()
		ids, _ := p.failing(known)
		var failed []string
		for _, i := range ids {
			failed = append(failed, known[i].ID)
		}
		if slices.Contains(failed, tc.rule) != tc.fails {
			t.Errorf("%s: %#v with %v violates %v, want fails %v", tc.rule, tc.op, tc.m, failed, tc.fails)
		}
		if !tc.fails && len(failed) > 0 {
			t.Errorf("%s: %#v with %v violates %v, want none", tc.rule, tc.op, tc.m, failed)
		}
	}
}

// Failures that upstream claims but its own rows contradict are not rules: the launches fit.
func TestContradictedClaims(t *testing.T) {
	for _, tc := range []struct {
		claim, row string
	}{
		{"R-L1-7: K 4096 with m_input 4", "gemv/2560x4096/4.4/8x1"},
		{"R-L2-5: 256 KB force tile_m 2 at K 4864", "gemv/896x4864/4.4/8x1"},
		{"R-L2-5: 256 KB force tile_m 2 at K 6144", "gemv/2048x6144/4.4/8x1"},
		{"R-DMA-5 and 6: at most 255 loops", "gemv/49152x2048/8.8/8x1"},
		{"R-DMA-6: at most 255 loops", "gemv/16384x2560/8.8/8x1"},
		{"R-DMA-1: 1048576 elements", "gemm/2048x2048x8192/fused-cast/64.256.32.128/8x4"},
		{"R-DMA-1: 1048576 elements", "gemm/2048x2560x9728/fused-cast/64.128.32.128/8x4"},
		{"R-DMA-1: 1048576 elements", "gemm/2048x4096x2560/fused-cast/64.512.32.128/8x4"},
		{"R-DMA-1: 1048576 elements", "gemm/2048x4096x12288/fused-cast/64.128.32.128/8x4"},
		{"R-DMA-1: 1048576 elements", "gemm/2048x3584x18944/direct/64.64.32.64/8x4"},
		{"K at most 8160", "gemv/2048x11008/2.1/8x1"},
		{"herd_n 1 aborts", "gemm/64x720x32/drain/16.144.48.32/4x1"},
	} {
		r, ok := PublishedRegistry().row(tc.row)
		if !ok {
			t.Errorf("no row %s", tc.row)
			continue
		}
		if err := CheckLaunch(r.Op(), rowTypes(r, r.Op()), r.Mapping, NPU2()); err != nil {
			t.Errorf("claim %s is not a rule, but %s fails: %v", tc.claim, tc.row, err)
		}
	}
}

// Every decided rule is violated by some test case.
func TestEveryDecidedRuleHasAViolation(t *testing.T) {
	seen := map[string]bool{
		"R-KER-3": true, // TestKernelTypes
		"R-L2-3":  true, // TestCascadeRules
		"R-L1-6":  true, // TestPublishedRows, measuredFailures
		"R-ELF-6": true, // TestContexts
	}
	for _, tc := range statedCases() {
		seen[tc.rule] = seen[tc.rule] || tc.fails
	}
	for _, tc := range programCases() {
		seen[tc.rule] = true
	}
	for _, tc := range cascadeCases() {
		seen[tc.rule] = true
	}
	for _, r := range Rules() {
		if r.Decided && !seen[r.ID] {
			t.Errorf("no test case violates %s", r.ID)
		}
	}
}

// Every rule has a kind, a confidence and a text, and every undecided rule a reason.
func TestRulesAreDocumented(t *testing.T) {
	seen := map[string]bool{}
	kinds := []string{"HW", "CC", "API", "RT", "MEAS", "INF"}
	for _, r := range Rules() {
		if seen[r.ID] {
			t.Errorf("duplicate rule %s", r.ID)
		}
		seen[r.ID] = true
		if !slices.Contains(kinds, r.Kind) || !strings.Contains("ABC", r.Confidence) || r.Text == "" {
			t.Errorf("%s: kind %q, confidence %q, text %q", r.ID, r.Kind, r.Confidence, r.Text)
		}
		if !r.Decided && r.Note == "" {
			t.Errorf("%s is not decided and has no note", r.ID)
		}
	}
	// All IDs of the survey, by section, decided or not.
	for _, s := range []struct {
		prefix   string
		from, to int
	}{{"R-L1-", 0, 13}, {"R-L2-", 1, 5}, {"R-DMA-", 1, 11}, {"R-CH-", 1, 9}, {"R-BD-", 1, 6}, {"S-", 1, 12},
		{"R-ELF-", 1, 15}} {
		for n := s.from; n <= s.to; n++ {
			if id := s.prefix + strconv.Itoa(n); !seen[id] {
				t.Errorf("%s is missing", id)
			}
		}
	}
}
