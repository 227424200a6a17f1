package xdna2

import "github.com/npukit/npukit/npu/dtype"

// matmulRules are those of the matrix-matrix kernels. Their cores hold C: a herd of herd_m columns and herd_n rows computes a block of
// tile_m*herd_m by tile_n*herd_n, walking along K in panels of tile_k_l2 in the mem tiles and pieces of tile_k_l1 in the cores.
func matmulRules() []rule {
	return []rule{
		gemmRule("R-DIV-1", "API", "A",
			"GEMM: M is a multiple of tile_m*herd_m, N of tile_n*herd_n, K of tile_k_l2, and tile_k_l2 of tile_k_l1",
			"builder check; where it is missing, cosine about 0.02", "", func(g *gemmPlace) verdict {
				return all(
					multiple(g.shape.M, g.tm*g.hm, "M", "tile_m*herd_m"),
					multiple(g.shape.N, g.tn*g.hn, "N", "tile_n*herd_n"),
					multiple(g.shape.K, g.k2, "K", "tile_k_l2"),
					multiple(g.k2, g.k1, "tile_k_l2", "tile_k_l1"))
			}),

		gemmRule("R-DIV-2", "API", "A",
			"GEMM micro-kernel, 2 x 2 products of 8 x 8 x 8: tile_m and tile_n are multiples of 16, tile_k_l1 of 8", "static assertion", "",
			func(g *gemmPlace) verdict {
				return all(multiple(g.tm, 16, "tile_m", "16"), multiple(g.tn, 16, "tile_n", "16"), multiple(g.k1, 8, "tile_k_l1", "8"))
			}),

		gemmRule("R-DIV-3", "MEAS", "C", "GEMM with one row of cores (herd_n 1): one block covers all of C",
			"unexpected command state at run time",
			"the failure is 2048x896x896 on 8x1; 64x720x32 on 4x1 runs, and is a single block, which is how the two are told apart",
			func(g *gemmPlace) verdict {
				if g.hn != 1 || !stated(g.hm) {
					return undecided()
				}
				single := (g.tm == 0 || g.shape.M <= g.tm*g.hm) && (g.tn == 0 || g.shape.N <= g.tn)
				return refuse(!single, "herd_n is 1 and C, %d x %d, takes several blocks of %d x %d", g.shape.M, g.shape.N, g.tm*g.hm, g.tn)
			}),

		gemmRule("R-L1-4", "HW", "A", "GEMM drain: FP32 sums, A and B twice, the BF16 block on its way out, and the stack fit a core",
			"L1 overflow", "",
			func(g *gemmPlace) verdict { return g.core(g.m.Variant == "drain") }),

		gemmRule("R-L1-5", "HW", "A", "GEMM fused-cast, f32-out and direct: sums, A and B twice, and the stack fit a core", "L1 overflow",
			"",
			func(g *gemmPlace) verdict { return g.core(g.m.Variant != "drain") }),

		gemmRule("R-L1-6", "MEAS", "C", "fused-cast GEMMs that have been measured to overflow a core's memory are not built again",
			"L1 overflow at compile",
			"the four published shapes only: the same tiles run in larger and smaller shapes, and nobody has said what makes these "+
				"different", measuredOverflow),

		gemmRule("R-L2-4", "INF", "B",
			"GEMM: panels of A and B, twice, and the block of C fit the mem tiles of the herd's columns. With an odd number of panels "+
				"along K the last is not part of the alternating pair and has buffers of its own: four times", "memtile overflow",
			"our sum, made after the fact: that upstream's two overflows have odd numbers of panels is seen, the factor 4 is the one "+
				"that separates them from what runs. It also refuses 64x12288x960 with 512/240, published as an overflow of L1 (R-L1-13)",
			func(g *gemmPlace) verdict {
				if !stated(g.tm, g.k2, g.tn, g.hm, g.hn) || g.shape.K%g.k2 != 0 {
					return undecided()
				}
				return atMost(g.panels(), g.array.MemTile, "bytes",
					"panels of %d x %d and %d x %d, %d times, and a block of C in each of %d mem tiles",
					g.tm*g.hm, g.k2, g.k2, g.tn*g.hn, g.copies(), g.hm)
			}),

		gemmRule("R-DMA-1", "HW", "A",
			"GEMM: from panel to panel of B the address grows by tile_k_l2*N elements, and a stride is at most 2^20 words of 32 bits: "+
				"2097152 BF16",
			"aie.dma_bd stride out of [1:1048576]",
			"words, where upstream's predictor counts elements: 23 published rows exceed it and run; also of views of a program",
			func(g *gemmPlace) verdict {
				if !stated(g.k2) || g.k2 >= g.shape.K {
					return undecided()
				}
				row := g.shape.N
				if len(g.stride) > 1 && g.stride[1] > row {
					row = g.stride[1]
				}
				return atMost(roundedUp(g.k2*row, 2), g.array.MaxStride, "words",
					"panels of tile_k_l2 %d rows of %d BF16 are a stride", g.k2, row)
			}),

		gemmRule("S-1", "INF", "A", "GEMM drain: the innermost loop along K that runs more than once (tile_k_l2/tile_k_l1, or else "+
			"K/tile_k_l2) does not run an odd number of times from 5 up", "no error, and C is wrong: mean relative error 0.7 to 1.0",
			"upstream lists bad pairs; this is the rule behind them (S-11 is one)",
			func(g *gemmPlace) verdict {
				n, name := g.trips()
				if g.m.Variant != "drain" || n == 0 {
					return undecided()
				}
				return refuse(n >= 5 && n%2 == 1, "%s is %d: odd, and such kernels write garbage without an error", name, n)
			}),
	}
}

// gemmPlace is a GEMM with its tile by name.
type gemmPlace struct {
	*place
	tm, k2, k1, tn, hm, hn int
}

// gemmRule declares a rule of the GEMMs.
func gemmRule(id, kind, conf, text, symptom, note string, check func(*gemmPlace) verdict) rule {
	return launchRule(id, kind, conf, text, symptom, note, func(p *place) verdict {
		if p.kernel != GEMM {
			return undecided()
		}
		hm, hn := p.herd()
		return check(&gemmPlace{p, p.tile(0), p.tile(1), p.tile(2), p.tile(3), hm, hn})
	})
}

// core is the sum of a core's buffers, for the variants that a rule is about.
func (g *gemmPlace) core(concerned bool) verdict {
	if !concerned || !stated(g.tm, g.tn, g.k1) {
		return undecided()
	}
	sums := 4
	if g.m.Variant == "direct" && g.out != dtype.F32 {
		sums = 2 // C is kept in the result's type between the pieces along K: the low tier
	}
	n := sums*g.tm*g.tn + 2*2*(g.tm*g.k1+g.k1*g.tn) + g.array.GEMMStack
	what := "sums, A and B twice and the stack"
	if g.m.Variant == "drain" {
		n += 2 * g.tm * g.tn
		what = "sums, the block to drain, A and B twice and the stack"
	}
	return atMost(n, g.array.CoreMemory, "bytes", "a %d x %d tile of C in pieces of %d along K needs %s in a core", g.tm, g.tn, g.k1, what)
}

// copies is how often the panels of A and B are held in the mem tiles.
func (g *gemmPlace) copies() int {
	switch n := g.shape.K / g.k2; {
	case n == 1:
		return 1
	case n%2 == 1:
		return 4
	}
	return 2
}

// panels is what one mem tile holds, bytes.
func (g *gemmPlace) panels() int {
	c := 2
	if g.m.Variant == "fused-cast" || g.out == dtype.F32 {
		c = 4
	}
	m, n := g.tm*g.hm, g.tn*g.hn
	return roundedUp(2*g.k2*(m+n)*g.copies()+c*m*n, g.hm)
}

// trips is the trip count of the innermost loop along K that is a loop, 0 when it is not stated.
func (g *gemmPlace) trips() (n int, name string) {
	if !stated(g.k2, g.k1) {
		return 0, ""
	}
	if g.k2 != g.k1 {
		return g.k2 / g.k1, "tile_k_l2/tile_k_l1"
	}
	return g.shape.K / g.k2, "K/tile_k_l2"
}

// measuredOverflow looks the launch up among the published overflows that no sum explains.
func measuredOverflow(g *gemmPlace) verdict {
	for _, f := range published() {
		for _, r := range f.Rows {
			if r.Kernel != GEMM || r.Status != Fails || r.Failure != "l1_overflow" || r.Mapping.Variant != "fused-cast" {
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
				return refuse(true, "%dx%dx%d with tile_m %d has been measured to overflow a core's memory", r.Shape.M, r.Shape.K,
					r.Shape.N, g.tm)
			}
		}
	}
	return undecided()
}
