package xdna2

import "fmt"

// memoryRules returns the rules on a core's data memory, for kernels without their own rule, and on
// its streams.
func memoryRules() []rule {
	return []rule{
		launchRule("R-L1-0", "HW", "A", "a core's live buffers, double-buffered ones twice, and its stack fit its "+
			"65536 bytes",
			"allocated buffers exceed available memory",
			"for RMSNorm and LayerNorm, which hold whole rows; other kernels have their own rules",
			func(p *place) verdict {
				var rows, weights int
				switch p.kernel {
				case RMSNorm:
					rows, weights = 4, 1 // x and the result, double-buffered
				case LayerNorm:
					rows, weights = 4, 2
				default:
					return undecided()
				}
				if p.fusedMember() {
					return undecided()
				}
				n := 2*(rows+weights)*p.shape.Width + p.array.Stack
				return atMost(n, p.array.CoreMemory, "bytes",
					"rows of %d need x and the result twice and the weights once in a core", p.shape.Width)
			}),

		launchRule("R-L1-1", "HW", "A",
			"element-wise kernels with three streams: two operands and the result, double-buffered, and the stack "+
				"fit a core: 12 bytes per element of the tile", "L1 overflow",
			"5120 runs, 8192 does not; between them the sum decides",
			func(p *place) verdict {
				if p.kernel != Add && p.kernel != SiLUMul || !stated(p.tile(0)) {
					return undecided()
				}
				return atMost(12*p.tile(0)+p.array.Stack, p.array.CoreMemory, "bytes",
					"a tile of %d needs three buffers twice and the stack in a core", p.tile(0))
			}),

		launchRule("R-L1-2", "API", "B", "GELU: operand and result, double-buffered: 8 bytes per element of the tile",
			"builder error (max tile 8192)",
			"the builder's own check ignores the stack; 6144 runs", func(p *place) verdict {
				if p.kernel != GELU || !stated(p.tile(0)) {
					return undecided()
				}
				return atMost(8*p.tile(0), p.array.CoreMemory, "bytes",
					"a tile of %d needs two buffers twice in a core", p.tile(0))
			}),

		launchRule("R-CH-1", "HW", "A",
			"kernels with two operands use at most 8 cores: each core has its own stream per operand, and 8 columns "+
				"have 16 channels from DRAM",
			"out of shim channels, no shim tile with DMA capacity",
			"observed for add, SiLU*mul and RoPE; norms, which also have two operands, run on up to 8 cores and are "+
				"untested on more", func(p *place) verdict { return channels(p, 2) }),

		launchRule("R-CH-2", "HW", "A", "kernels with one operand (GELU) use at most 16 cores", "does not place",
			"", func(p *place) verdict { return channels(p, 1) }),

		launchRule("R-CH-3", "HW", "B",
			"a core has at most 3 streams to and from DRAM: LayerNorm reads weight and bias as one array of 2 x width",
			"two connects with the same destination", "decided for programs, which determine the layout of the two",
			func(p *place) verdict {
				if p.kernel != LayerNorm || len(p.views) != 4 {
					return undecided()
				}
				w, b := p.views[1], p.views[2]
				packed := w.Arg == b.Arg && b.Offset == w.Offset+p.shape.Width
				streams := 4
				if packed {
					streams = 3
				}
				return atMost(streams, p.array.KernelFlows, "streams",
					"x, weight, bias and result are %d streams of a core", streams)
			}).withAdvice(func(p *place) string {
			return fmt.Sprintf("stack weight and bias in one argument of [2, %d] and bind its rows", p.shape.Width)
		}),
	}
}

// streams returns how many arrays each core of a vector kernel reads from DRAM, or 0 for other
// kernels.
func (p *place) streams() int {
	switch p.kernel {
	case Add, SiLUMul, RoPE, RMSNorm, LayerNorm:
		return 2
	case GELU:
		return 1
	}
	return 0
}

func channels(p *place, streams int) verdict {
	if p.streams() != streams || p.fusedMember() || !stated(p.cores()) {
		return undecided()
	}
	return atMost(streams*p.cores(), p.array.shimChannels(), "channels",
		"%d cores with a stream per operand, %d operands", p.cores(), streams)
}
