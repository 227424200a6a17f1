package xdna2

import (
	"github.com/npukit/npukit/npu/op"
)

// gemvRules returns the rules of the matrix-vector kernels. Each of herd_m columns computes tile_m
// rows of the result at a time from whole rows of the weight, m_input rows at a time per core. K is
// the op's K; the builder's M is the op's N.
//
// The variant "cascade" is a stage of a fused decode kernel: up to 4 cores of a column share K and
// pass on their sums.
func gemvRules() []rule {
	return []rule{
		gemvRule("R-DIV-4", "API", "A", "GEMV: K is a multiple of 64, N of tile_m*herd_m, and tile_m of m_input",
			"builder check", "",
			func(g *gemvPlace) verdict {
				if g.m.Variant == "cascade" {
					return undecided()
				}
				return firstFailure(multiple(g.shape.K, 64, "K", "64"), multiple(g.shape.N, g.tm*g.hm, "N",
					"tile_m*herd_m"), multiple(g.tm, g.mi, "tile_m", "m_input"))
			}).withAdvice(padK(64)),

		gemvRule("R-DMA-3", "HW", "A", "transfers are multiples of 4 bytes: tile_m of a GEMV is even",
			"dma_bd length error", "",
			func(g *gemvPlace) verdict {
				return multiple(2*g.tm, g.array.Granule, "a tile of the result in bytes", "4")
			}),

		gemvRule("R-L1-7", "INF", "B", "GEMV: m_input whole rows of the weight, the vector and the stack fit a core",
			"L1 overflow",
			"counts each once; upstream counts twice, but 31 of its rows run that would not fit. R-L1-8 covers "+
				"stitched ELFs",
			func(g *gemvPlace) verdict {
				if g.m.Variant == "cascade" || !stated(g.mi) {
					return undecided()
				}
				return atMost(2*g.shape.K*(g.mi+1)+g.array.Stack, g.array.CoreMemory, "bytes",
					"m_input %d rows of K %d and the vector, in a core", g.mi, g.shape.K)
			}),

		gemvRule("R-L2-1", "API", "A",
			"GEMV: the weight's panel and the result's, of all columns together, fit one mem tile: "+
				"herd_m*tile_m*(K+1)*2", "builder check",
			"conservative, like the builder: each column has its own mem tile. The 256 KB of two model notes "+
				"(R-L2-5) contradict rows that run",
			func(g *gemvPlace) verdict {
				if g.m.Variant == "cascade" || !stated(g.tm, g.hm) {
					return undecided()
				}
				return atMost(2*g.hm*g.tm*(g.shape.K+1), g.array.MemTile, "bytes",
					"%d columns of %d rows of K %d, and their results, in the mem tiles", g.hm, g.tm, g.shape.K)
			}),

		gemvRule("R-DMA-5", "HW", "C", "GEMV: the vector is sent N/(herd_m*m_input) times, at most 256",
			"repeat count exceeds its range [0:255]",
			"49152x2048 with 8/8 on 8 sends 768 times and runs, so a loop over whole tiles that is a multiple of "+
				"256 passes; presumably the compiler splits it. The evidence is that one row", repeats),

		gemvRule("R-DMA-6", "HW", "C", "GEMV: the loop over N/(tile_m*herd_m) runs at most 256 times",
			"repeat-count error",
			"upstream has 255, but 256 runs in three rows. The exception of R-DMA-5 applies here too",
			func(g *gemvPlace) verdict {
				if g.m.Variant == "cascade" || !stated(g.tm, g.hm) {
					return undecided()
				}
				n := g.shape.N / (g.tm * g.hm)
				if n%g.array.MaxRepeats == 0 {
					return holds()
				}
				return atMost(n, g.array.MaxRepeats, "iterations", "N %d in steps of %d", g.shape.N, g.tm*g.hm)
			}).withAdvice(partition),

		gemvRule("R-ELF-12", "RT", "B", "GEMV on 4 columns: K is below 4096", "builds, then hangs",
			"observed at K 4096 with 4 columns; runs on 8",
			func(g *gemvPlace) verdict {
				if g.m.Variant == "cascade" || !stated(g.hm) {
					return undecided()
				}
				return failIf(g.hm == 4 && g.shape.K >= 4096,
					"K is %d on 4 columns, where the kernel hangs if K >= 4096", g.shape.K)
			}),

		cascadeRule("R-DIV-5", "API", "A", "a cascade shares K between 2 to 4 cores of a column, in multiples of 64",
			"builder check", "",
			func(g *gemvPlace) verdict {
				for n := 2; n <= g.array.Rows; n++ {
					if g.shape.K%(64*n) == 0 {
						return holds()
					}
				}
				return failIf(true, "K is %d, which 2, 3 or 4 cores cannot share in multiples of 64", g.shape.K)
			}).withAdvice(padK(128)),

		cascadeRule("R-DIV-6", "API", "A",
			"cascade with the gate: tile_m and m_input are even, tile_m/2 a multiple of 16, and the 2N rows of gate "+
				"and up of tile_m*herd_m",
			"builder check", "", func(g *gemvPlace) verdict {
				if g.stage != swiglu {
					return undecided()
				}
				return firstFailure(multiple(g.mi, 2, "m_input", "2"), multiple(g.tm, 32, "tile_m", "32"),
					multiple(2*g.shape.N, g.tm*g.hm, "2N",
						"tile_m*herd_m"))
			}),

		cascadeRule("R-DIV-7", "API", "A", "cascade with the residual: K is a multiple of 512, N of tile_m*herd_m",
			"builder check", "",
			func(g *gemvPlace) verdict {
				if g.stage != gemvAdd {
					return undecided()
				}
				return firstFailure(multiple(g.shape.K, 512, "K", "512"),
					multiple(g.shape.N, g.tm*g.hm, "N", "tile_m*herd_m"))
			}),

		cascadeRule("R-DIV-8", "HW", "A",
			"fused decode stages: the residual stream is narrower than 2560, at 512 per core and 4 cores per column",
			"needs 5 cores of a column", "",
			func(g *gemvPlace) verdict {
				width := g.shape.N
				if g.stage == swiglu {
					width = g.shape.K
				} else if g.stage != gemvAdd {
					return undecided()
				}
				return atMost(divUp(width, 512), g.array.Rows, "cores",
					"a residual stream of %d at 512 per core of the column", width)
			}).withAdvice(unfuse),

		cascadeRule("R-L2-2", "API", "B",
			"cascade with the residual: the columns' panels of the weight, results and residuals fit one mem tile",
			"builder check", "",
			func(g *gemvPlace) verdict {
				if g.stage != gemvAdd || !stated(g.tm, g.hm) {
					return undecided()
				}
				return atMost(g.hm*(2*g.tm*g.shape.K+4*g.tm), g.array.MemTile, "bytes",
					"%d columns of %d rows of K %d, results and residuals", g.hm, g.tm, g.shape.K)
			}),

		cascadeRule("R-L2-3", "API", "B", "cascade with the gate: a column's panel of the weight fits its mem tile",
			"builder check", "",
			func(g *gemvPlace) verdict {
				if g.stage != swiglu || !stated(g.tm) {
					return undecided()
				}
				return atMost(2*g.tm*g.shape.K, g.array.MemTile, "bytes", "%d rows of K %d in a column", g.tm,
					g.shape.K)
			}),

		cascadeRule("R-DMA-2", "HW", "A",
			"cascade with the gate: a row of the weight is at most 1024 words, the steps of one dimension of a "+
				"descriptor",
			"size may not exceed 1023",
			"K 2048 runs, K 3072 does not; the innermost run may be one longer than the register, which counts from "+
				"zero",
			func(g *gemvPlace) verdict {
				if g.stage != swiglu {
					return undecided()
				}
				return atMost(divUp(g.shape.K, 2), g.array.MaxWrap+1, "words", "rows of K %d", g.shape.K)
			}).withAdvice(unfuse),
	}
}

// gemvPlace is a GEMV launch with named tile sizes.
type gemvPlace struct {
	*place
	tm, mi, hm int
}

// gemvRule declares a rule on GEMVs.
func gemvRule(id, kind, conf, text, symptom, note string, check func(*gemvPlace) verdict) rule {
	return launchRule(id, kind, conf, text, symptom, note, func(p *place) verdict {
		if p.kernel != GEMV {
			return undecided()
		}
		hm, _ := p.herd()
		return check(&gemvPlace{p, p.tile(0), p.tile(1), hm})
	})
}

func cascadeRule(id, kind, conf, text, symptom, note string, check func(*gemvPlace) verdict) rule {
	return gemvRule(id, kind, conf, text, symptom, note, func(g *gemvPlace) verdict {
		if g.m.Variant != "cascade" {
			return undecided()
		}
		return check(g)
	})
}

// repeats decides R-DMA-5.
func repeats(g *gemvPlace) verdict {
	if g.m.Variant == "cascade" || !stated(g.mi, g.hm) {
		return undecided()
	}
	n := g.shape.N / (g.hm * g.mi)
	if g.tm == g.mi && n%g.array.MaxRepeats == 0 {
		return holds()
	}
	return atMost(n, g.array.MaxRepeats, "executions", "N %d in steps of %d rows", g.shape.N, g.hm*g.mi)
}

func padK(step int) func(*place) string {
	return func(p *place) string {
		if k := divUp(p.shape.K, step) * step; k != p.shape.K {
			return sprintPad("K", p.shape.K, k)
		}
		return ""
	}
}

// partition returns advice to split a GEMV that has too many rows.
func partition(p *place) string {
	if _, ok := p.op.(op.MatMul); !ok {
		return ""
	}
	const rows = 8192 // as in the LM heads of the Qwen models, 19 launches
	return sprintPartition(p.shape.N, rows)
}

func unfuse(*place) string {
	return `leave Fused empty and map the launches as "gemv", each in its own program`
}
