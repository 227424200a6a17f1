package xdna2

// vectorRules returns the rules of element-wise kernels, norms and RoPE. Cores work independently,
// each on an equal share of rows or tiles.
func vectorRules() []rule {
	return []rule{
		launchRule("R-DIV-13", "API", "A",
			"element-wise kernels: the number of elements is a multiple of tile*cores, and the tile of 16, the "+
				"lanes of a vector",
			"builder check", "a bias is added row by row and has no tile", func(p *place) verdict {
				if p.kernel != Add && p.kernel != SiLUMul && p.kernel != GELU || p.fusedMember() {
					return undecided()
				}
				return firstFailure(multiple(p.tile(0), 16, "the tile", "16"),
					multiple(p.shape.N, p.tile(0)*p.cores(), "the number of elements",
						"tile*cores"))
			}),

		launchRule("R-DIV-14", "API", "A", "norms: the number of rows is a multiple of the cores, their width of 16",
			"builder check", "",
			func(p *place) verdict {
				if p.kernel != RMSNorm && p.kernel != LayerNorm {
					return undecided()
				}
				width := multiple(p.shape.Width, 16, "the width", "16")
				if p.fusedMember() {
					return width
				}
				return firstFailure(width, multiple(p.shape.Rows, p.cores(), "the number of rows", "cores"))
			}).withAdvice(padWidth),

		launchRule("R-DIV-15", "API", "A", "RoPE: rows (one per head and position) are a multiple of the cores, "+
			"head_dim of 16",
			"builder check", "",
			func(p *place) verdict {
				if p.kernel != RoPE {
					return undecided()
				}
				return firstFailure(multiple(p.shape.Width, 16, "head_dim", "16"),
					multiple(p.shape.Rows, p.cores(), "the number of rows", "cores"))
			}),

		launchRule("R-DIV-16", "API", "A", "the cast after a fused-cast GEMM: elements are a multiple of tile*cores",
			"builder check", "without a tile: a multiple of the array's cores",
			func(p *place) verdict {
				if p.kernel != castKernel {
					return undecided()
				}
				if n := p.tile(0) * p.cores(); n > 0 {
					return multiple(p.shape.N, n, "the number of elements", "tile*cores")
				}
				return multiple(p.shape.N, p.array.cores(), "the number of elements", "cores")
			}),

		launchRule("R-DMA-8", "CC", "B", "RoPE: one row per transfer",
			"2: does not place; 4: half of the rows are silently 0 or NaN", "",
			func(p *place) verdict {
				if p.kernel != RoPE || !stated(p.tile(0)) {
					return undecided()
				}
				return atMost(p.tile(0), 1, "rows", "a transfer has %d rows", p.tile(0))
			}),

		launchRule("R-BD-2", "CC", "A", "SiLU*mul: at most 688 tiles per core, or at least 4096",
			"buffer descriptors left without ids",
			"688 and fewer run, 1024 and 2048 fail, 4096 and 8192 run; other counts are untested. Add runs with "+
				"1024 and 2048",
			func(p *place) verdict {
				n, ok := p.iterations(SiLUMul)
				if !ok || n >= 4096 {
					return holdsIf(ok)
				}
				return atMost(n, 688, "tiles", "%d elements in tiles of %d on %d cores", p.shape.N, p.tile(0),
					p.cores())
			}).withAdvice(func(*place) string { return "split the rows between two launches" }),

		launchRule("S-2", "INF", "A", "add: the number of tiles per core is even, or 1",
			"no error, but everything after about the second tile is zero",
			"observed at 15; 3 is untested and rejected, because a wrong result costs more than another tile",
			func(p *place) verdict {
				n, ok := p.iterations(Add)
				if !ok || p.shape.Broadcast {
					return undecided()
				}
				return failIf(n > 1 && n%2 == 1, "%d tiles per core: with odd counts the kernel silently writes "+
					"zeros", n)
			}),
	}
}

// iterations returns the number of tiles per core of an element-wise kernel, and whether it is
// stated.
func (p *place) iterations(k Kernel) (n int, ok bool) {
	if p.kernel != k || p.fusedMember() || !stated(p.tile(0), p.cores()) {
		return 0, false
	}
	return divUp(p.shape.N, p.tile(0)*p.cores()), true
}

func holdsIf(decided bool) verdict {
	if decided {
		return holds()
	}
	return undecided()
}

func padWidth(p *place) string {
	if w := divUp(p.shape.Width, 16) * 16; w != p.shape.Width {
		return sprintPad("the width", p.shape.Width, w)
	}
	return ""
}
