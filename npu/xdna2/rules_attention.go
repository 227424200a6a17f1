package xdna2

import (
	"github.com/npukit/npukit/npu/op"
)

// attentionRules returns the rules of FlashAttention. Columns of cores take query tiles:
// num_q_tiles of them for each of heads_per_unroll concurrent heads. The cores of a column share
// the keys and pass on partial results. lqp rows of queries and lkp rows of keys are in flight.
//
// The variant "temporal" processes the causal triangle in rounds, for head dimensions of 128.
func attentionRules() []rule {
	flash := func(id, kind, conf, text, symptom, note string, check func(*attentionPlace) verdict) rule {
		return attentionRule(id, kind, conf, text, symptom, note, func(f *attentionPlace) verdict {
			if f.m.Variant == "temporal" {
				return undecided()
			}
			return check(f)
		})
	}
	return []rule{
		attentionRule("R-DIV-9", "API", "A",
			"attention kernels exist for head dimensions 64, 128, 256 and 512, the sequence-first one for 64, the "+
				"temporal one for 128",
			"builder check; sequence-first hangs with several chunks of a head",
			"lkp is 64 if the mapping does not state it",
			func(f *attentionPlace) verdict {
				hd := f.shape.HeadDim
				switch {
				case f.m.Variant == "temporal":
					return failIf(hd != 128, "head_dim is %d, the temporal kernel supports 128", hd)
				case f.m.Layout == "seq-first":
					return failIf(hd != 64 || f.lkp != 0 && f.lkp != hd,
						"head_dim is %d with lkp %d, the sequence-first kernel supports 64 and 64", hd, f.lkp)
				}
				return failIf(hd != 64 && hd != 128 && hd != 256 && hd != 512,
					"head_dim is %d, the kernels support 64, 128, 256 and 512", hd)
			}).withAdvice(func(p *place) string {
			switch hd := p.shape.HeadDim; {
			case hd < 64:
				return "pad every head to 64 with zeros, or make attention a step on the host"
			case hd == 128 || hd == 256 || hd == 512:
				return "use the head-first layout, with HeadFirst and Split " + quotient(hd, 64) + " in the op"
			}
			return "make attention a step on the host"
		}),

		flash("R-DIV-10", "API", "A",
			"attention: queries are a multiple of lqp, lqp of num_q_tiles, keys of lkp times the herd's rows, "+
				"head_dim of lkp, heads of heads_per_unroll and of the key heads", "builder check", "",
			func(f *attentionPlace) verdict {
				_, rows := f.herd()
				return firstFailure(
					multiple(f.shape.Rows, f.lqp, "the number of queries", "lqp"),
					multiple(f.lqp, f.nq, "lqp", "num_q_tiles"),
					multiple(f.shape.Keys, f.lkp*rows, "the number of keys", "lkp*rows of the herd"),
					multiple(f.shape.HeadDim, f.lkp, "head_dim", "lkp"),
					multiple(f.shape.Heads, f.hpu, "the number of heads", "heads_per_unroll"),
					multiple(f.shape.Heads, f.shape.KVHeads, "the number of heads", "the number of key heads"))
			}),

		flash("R-DIV-11", "API", "A", "attention: a query tile has as many rows as a key chunk: lqp/num_q_tiles is lkp",
			"causal: builder check; else hangs",
			"asserted for causal; tile_q 32 with lkp 64 hung without", func(f *attentionPlace) verdict {
				if !stated(f.lqp, f.nq, f.lkp) || f.lqp%f.nq != 0 {
					return undecided()
				}
				// R-L1-9 covers larger query tiles.
				return failIf(f.tq() < f.lkp || f.shape.Causal && f.tq() != f.lkp,
					"lqp/num_q_tiles is %d, lkp is %d", f.tq(), f.lkp)
			}),

		flash("R-CH-4", "HW", "A", "attention: at most 2 concurrent heads, each with its own DRAM channels",
			"out of channels", "",
			func(f *attentionPlace) verdict {
				if !stated(f.hpu) {
					return undecided()
				}
				return atMost(f.hpu, f.array.ShimStreams, "heads", "heads_per_unroll is %d", f.hpu)
			}),

		flash("R-CH-5", "HW", "A", "attention: heads_per_unroll*num_q_tiles is the number of columns, at most 8, "+
			"and the cores that share the keys are the rows, at most 4", "does not place", "",
			func(f *attentionPlace) verdict {
				cols, rows := f.herd()
				if !stated(f.hpu, f.nq, cols, rows) {
					return undecided()
				}
				return firstFailure(
					atMost(f.hpu*f.nq, f.array.Columns, "columns", "%d concurrent heads with %d query tiles each",
						f.hpu, f.nq),
					atMost(rows, f.array.Rows, "rows", "the keys are shared by %d cores of a column", rows),
					failIf(f.hpu*f.nq != cols, "%d concurrent heads with %d query tiles each are %d columns, the "+
						"herd has %d", f.hpu, f.nq,
						f.hpu*f.nq, cols))
			}),

		flash("R-L1-9", "HW", "A", "attention: query tile, key and value chunk, sums, scores, four vectors and the "+
			"stack fit a core",
			"L1 overflow (tile_q >= 128)",
			"assumes value chunk and sums lkp wide, the builder's narrowest; R-L1-10 covers head_dim 256",
			func(f *attentionPlace) verdict { return f.core(f.shape.HeadDim < 256) }),

		flash("R-L1-10", "HW", "B", "attention with head_dim 256 and more: the same sum", "L1 overflow (72 KB)",
			"our sum is 67072 bytes, upstream has 72 KB, so a program that does not fit may pass; lkp 32 runs",
			func(f *attentionPlace) verdict { return f.core(f.shape.HeadDim >= 256) }),

		attentionRule("R-MAP-3", "API", "A", "head-first attention with head_dim 128 has values and result in "+
			"halves of 64: Split 2",
			"wrong layout, silently", "",
			func(f *attentionPlace) verdict {
				o, ok := f.op.(op.Attention)
				if !ok || f.m.Layout != "head-first" || o.HeadDim != 64 && o.HeadDim != 128 {
					return undecided()
				}
				return failIf(max(1, o.Split) != o.HeadDim/64, "Split is %d for head_dim %d", o.Split, o.HeadDim)
			}).withAdvice(func(p *place) string { return "set Split to " + quotient(p.shape.HeadDim, 64) }),

		temporalRule("R-DIV-12", "API", "A",
			"temporal attention: queries are a multiple of lqp, num_q_tiles is 8 or 16, heads_per_unroll divides "+
				"the key heads, and heads_per_unroll*2*group is at most 8 columns", "builder check", "",
			func(f *attentionPlace) verdict {
				if !stated(f.nq, f.hpu) {
					return undecided()
				}
				return firstFailure(
					multiple(f.shape.Rows, f.lqp, "the number of queries", "lqp"),
					multiple(f.lqp, f.nq, "lqp", "num_q_tiles"),
					multiple(f.shape.KVHeads, f.hpu, "the number of key heads", "heads_per_unroll"),
					failIf(f.nq != 8 && f.nq != 16, "num_q_tiles is %d", f.nq),
					failIf(f.shape.Causal && f.lqp != f.lkp*f.nq, "lqp/num_q_tiles is %d, lkp is %d", f.tq(), f.lkp),
					atMost(2*f.hpu*f.shape.Heads/f.shape.KVHeads, f.array.Columns, "columns",
						"%d concurrent key heads with groups of %d query heads",
						f.hpu, f.shape.Heads/f.shape.KVHeads))
			}),

		temporalRule("R-L1-11", "API", "A",
			"temporal attention: queries, staging, sums, a key chunk, scores and two vectors of a core's query "+
				"tiles fit a core",
			"builder check",
			"counts staging and sums without aliasing: 43264 bytes for lkp 32, upstream has about 31 KB; it may "+
				"refuse a launch that fits with aliasing",
			func(f *attentionPlace) verdict {
				if !stated(f.lqp, f.nq, f.lkp) || f.nq%8 != 0 {
					return undecided()
				}
				t, hd := f.nq/8, f.shape.HeadDim // t query tiles per core: num_q_tiles = 4 * 2 * t
				tq := f.tq()
				n := 2*t*tq*hd + 2*2*tq*hd + 2*t*tq*hd + 2*f.lkp*hd + 2*t*tq*f.lkp + 8*tq
				return atMost(n, f.array.CoreMemory, "bytes",
					"query tiles of %d x %d and key chunks of %d in a core", tq, hd, f.lkp)
			}),

		temporalRule("R-BD-6", "MEAS", "B", "temporal attention: groups of 3 query heads, or at most 4 rounds of "+
			"lqp queries",
			"deadlock, or program memory overflow", "",
			func(f *attentionPlace) verdict {
				if !stated(f.lqp) {
					return undecided()
				}
				if f.shape.Heads == 3*f.shape.KVHeads {
					return holds()
				}
				return atMost(divUp(f.shape.Rows, f.lqp), 4, "rounds", "%d queries in rounds of %d", f.shape.Rows,
					f.lqp)
			}),
	}
}

// attentionPlace is an attention launch with named tile sizes.
type attentionPlace struct {
	*place
	lqp, lkp, nq, hpu int
}

// tq returns the rows of a query tile.
func (f *attentionPlace) tq() int { return f.lqp / max(1, f.nq) }

func attentionRule(id, kind, conf, text, symptom, note string, check func(*attentionPlace) verdict) rule {
	return launchRule(id, kind, conf, text, symptom, note, func(p *place) verdict {
		if o, ok := p.op.(op.Attention); p.kernel != Attention || ok && o.Cached {
			return undecided()
		}
		return check(&attentionPlace{p, p.tile(0), p.tile(1), p.tile(2), p.tile(3)})
	})
}

func temporalRule(id, kind, conf, text, symptom, note string, check func(*attentionPlace) verdict) rule {
	return attentionRule(id, kind, conf, text, symptom, note, func(f *attentionPlace) verdict {
		if f.m.Variant != "temporal" {
			return undecided()
		}
		return check(f)
	})
}

// core checks the sum of a core's buffers.
func (f *attentionPlace) core(applies bool) verdict {
	if !applies || !stated(f.lqp, f.nq, f.lkp) {
		return undecided()
	}
	tq, hd, c := f.tq(), f.shape.HeadDim, f.lkp
	n := 2*(tq*hd+ // queries
		c*c+c*c+ // a chunk of keys and one of values, lkp wide
		tq*c+ // sums
		tq*c+ // scores
		4*tq) + f.array.Stack
	return atMost(n, f.array.CoreMemory, "bytes", "query tiles of %d x %d with chunks of %d in a core", tq, hd, c)
}
