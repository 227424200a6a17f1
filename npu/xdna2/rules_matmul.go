package xdna2

import "github.com/npukit/npukit/npu/dtype"

// matmulRules returns the rules of the matrix-matrix kernels. C stays in the cores: a herd of
// herd_m columns and herd_n rows computes a block of tile_m*herd_m by tile_n*herd_n, iterating over
// K in panels of tile_k_l2 in the mem tiles and slices of tile_k_l1 in the cores.
func matmulRules() []rule {
	return []rule{
		gemmRule("R-DIV-1", "API", "A",
			"GEMM: M is a multiple of tile_m*herd_m, N of tile_n*herd_n, K of tile_k_l2, and tile_k_l2 of tile_k_l1",
			"builder check; without it, cosine about 0.02", "", func(g *gemmPlace) verdict {
				return firstFailure(
					multiple(g.shape.M, g.tm*g.hm, "M", "tile_m*herd_m"),
					multiple(g.shape.N, g.tn*g.hn, "N", "tile_n*herd_n"),
					multiple(g.shape.K, g.k2, "K", "tile_k_l2"),
					multiple(g.k2, g.k1, "tile_k_l2", "tile_k_l1"))
			}),

		gemmRule("R-DIV-2", "API", "A",
			"GEMM micro-kernel, 2 x 2 products of 8 x 8 x 8: tile_m and tile_n are multiples of 16, tile_k_l1 of 8",
			"static assertion", "",
			func(g *gemmPlace) verdict {
				return firstFailure(multiple(g.tm, 16, "tile_m", "16"), multiple(g.tn, 16, "tile_n", "16"),
					multiple(g.k1, 8, "tile_k_l1", "8"))
			}),

		gemmRule("R-DIV-3", "MEAS", "C", "GEMM with one row of cores (herd_n 1): one block covers all of C",
			"unexpected command state at run time",
			"2048x896x896 on 8x1 fails; 64x720x32 on 4x1, a single block, runs",
			func(g *gemmPlace) verdict {
				if g.hn != 1 || !stated(g.hm) {
					return undecided()
				}
				single := (g.tm == 0 || g.shape.M <= g.tm*g.hm) && (g.tn == 0 || g.shape.N <= g.tn)
				return failIf(!single, "herd_n is 1 and C, %d x %d, takes several blocks of %d x %d",
					g.shape.M, g.shape.N, g.tm*g.hm, g.tn)
			}),

		gemmRule("R-L1-4", "HW", "A", "GEMM drain: FP32 sums, A and B twice, the BF16 output block, and the stack "+
			"fit a core",
			"L1 overflow", "",
			func(g *gemmPlace) verdict { return g.core(g.m.Variant == "drain") }),

		gemmRule("R-L1-5", "HW", "A", "GEMM fused-cast, f32-out and direct: sums, A and B twice, and the stack fit "+
			"a core", "L1 overflow",
			"",
			func(g *gemmPlace) verdict { return g.core(g.m.Variant != "drain") }),

		gemmRule("R-L1-6", "MEAS", "C", "fused-cast GEMMs that were measured to overflow a core's memory are rejected",
			"L1 overflow at compile",
			"the four published shapes only: the same tiles run in larger and smaller shapes, and the cause is "+
				"unknown", measuredOverflow),

		gemmRule("R-L2-4", "INF", "B",
			"GEMM: panels of A and B, twice, and the block of C fit the mem tiles of the herd's columns. With an "+
				"odd number of panels along K the last has its own buffers outside the pair: four times",
			"memtile overflow",
			"our sum, derived from the data: upstream's two overflows have odd numbers of panels, and the factor 4 "+
				"separates them from the rows that run. It also rejects 64x12288x960 with 512/240, published as an "+
				"L1 overflow (R-L1-13)",
			func(g *gemmPlace) verdict {
				if !stated(g.tm, g.k2, g.tn, g.hm, g.hn) || g.shape.K%g.k2 != 0 {
					return undecided()
				}
				return atMost(g.panels(), g.array.MemTile, "bytes",
					"panels of %d x %d and %d x %d, %d times, and a block of C in each of %d mem tiles",
					g.tm*g.hm, g.k2, g.k2, g.tn*g.hn, g.copies(), g.hm)
			}),

		gemmRule("R-DMA-1", "HW", "A",
			"GEMM: the stride between panels of B is tile_k_l2*N elements, at most 2^20 words of 32 bits: 2097152 "+
				"BF16",
			"aie.dma_bd stride out of [1:1048576]",
			"in words; upstream's predictor counts elements, but 23 published rows exceed that and run. Applies to "+
				"views of a program too",
			func(g *gemmPlace) verdict {
				if !stated(g.k2) || g.k2 >= g.shape.K {
					return undecided()
				}
				row := g.shape.N
				if len(g.stride) > 1 && g.stride[1] > row {
					row = g.stride[1]
				}
				return atMost(divUp(g.k2*row, 2), g.array.MaxStride, "words",
					"stride of %d rows of %d BF16", g.k2, row)
			}),

		gemmRule("S-1", "INF", "A", "GEMM drain: the trip count of the innermost loop along K (tile_k_l2/tile_k_l1, "+
			"or K/tile_k_l2 if those are equal) is even or below 5",
			"no error, but C is wrong: mean relative error 0.7 to 1.0",
			"generalizes the bad pairs that upstream lists (S-11 is one)",
			func(g *gemmPlace) verdict {
				n, name := g.trips()
				if g.m.Variant != "drain" || n == 0 {
					return undecided()
				}
				return failIf(n >= 5 && n%2 == 1, "%s is %d: with odd counts from 5 on the kernel silently writes "+
					"garbage", name, n)
			}),
	}
}

// gemmPlace is a GEMM launch with named tile sizes.
type gemmPlace struct {
	*place
	tm, k2, k1, tn, hm, hn int
}

// gemmRule declares a rule on GEMMs.
func gemmRule(id, kind, conf, text, symptom, note string, check func(*gemmPlace) verdict) rule {
	return launchRule(id, kind, conf, text, symptom, note, func(p *place) verdict {
		if p.kernel != GEMM {
			return undecided()
		}
		hm, hn := p.herd()
		return check(&gemmPlace{p, p.tile(0), p.tile(1), p.tile(2), p.tile(3), hm, hn})
	})
}

// core checks the sum of a core's buffers, if the rule applies to the variant.
func (g *gemmPlace) core(applies bool) verdict {
	if !applies || !stated(g.tm, g.tn, g.k1) {
		return undecided()
	}
	sums := 4
	if g.m.Variant == "direct" && g.out != dtype.F32 {
		sums = 2 // low tier: C has the result's type between slices of K
	}
	n := sums*g.tm*g.tn + 2*2*(g.tm*g.k1+g.k1*g.tn) + g.array.GEMMStack
	what := "sums, A and B twice and the stack"
	if g.m.Variant == "drain" {
		n += 2 * g.tm * g.tn
		what = "sums, the block to drain, A and B twice and the stack"
	}
	return atMost(n, g.array.CoreMemory, "bytes", "a %d x %d tile of C with slices of %d along K needs %s in a core",
		g.tm, g.tn, g.k1, what)
}

// copies returns how many copies of the panels of A and B the mem tiles hold.
func (g *gemmPlace) copies() int {
	switch n := g.shape.K / g.k2; {
	case n == 1:
		return 1
	case n%2 == 1:
		return 4
	}
	return 2
}

// panels returns the bytes that one mem tile holds.
func (g *gemmPlace) panels() int {
	c := 2
	if g.m.Variant == "fused-cast" || g.out == dtype.F32 {
		c = 4
	}
	m, n := g.tm*g.hm, g.tn*g.hn
	return divUp(2*g.k2*(m+n)*g.copies()+c*m*n, g.hm)
}

// trips returns the trip count and name of the innermost loop along K, or 0 if it is not stated.
func (g *gemmPlace) trips() (n int, name string) {
	if !stated(g.k2, g.k1) {
		return 0, ""
	}
	if g.k2 != g.k1 {
		return g.k2 / g.k1, "tile_k_l2/tile_k_l1"
	}
	return g.shape.K / g.k2, "K/tile_k_l2"
}

// measuredOverflow decides R-L1-6: it looks up published overflows that no sum explains.
func measuredOverflow(g *gemmPlace) verdict {
	for _, f := range published() {
		for _, r := range f.Rows {
			if r.Kernel != GEMM || r.Status != statusFails || r.Failure != "l1_overflow" ||
				r.Mapping.Variant != "fused-cast" {
				continue
			}
			if r.Shape != g.shape || r.Mapping.Variant != g.m.Variant || len(g.m.Tile) != len(r.Mapping.Tile) {
				continue
			}
			same := true
			for i, n := range r.Mapping.Tile {
				same = same && (n == 0 || n == g.m.Tile[i])
			}
			if same {
				return failIf(true, "%dx%dx%d with tile_m %d was measured to overflow a core's memory",
					r.Shape.M, r.Shape.K, r.Shape.N, g.tm)
			}
		}
	}
	return undecided()
}
