package xdna2

import (
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// config is the layout of a published model's programs, with the figures of the 2026-06 table (S =
// 2048). Source: mlir-air e972f2942, programming_examples/llms.
type config struct {
	name                                    string
	layers, emb, heads, kvHeads, hd, hidden int
	family                                  string // llama, qwen25, qwen3
	q, kv, o, gateUp, down                  string // GEMM variant of each projection
	prefill                                 []string
	split                                   bool // decode in five programs per layer instead of two
	headFirst                               bool
	lmParts, lmRows                         int
	ttft, tokens                            float64 // s, tokens/s
}

const seq = 2048

// dispatch is one program of a pass.
type dispatch struct {
	Name  string
	Work  []kernelRun
	Write int // bytes written and synced before each run
}

// pass is a prefill or the decoding of a token: programs per layer, and programs that run once.
type pass struct {
	Layers      int
	Layer, Once []dispatch
	Permute     int
	Split       bool

	Heads, KVHeads, HeadDim, Keys int
}

var (
	merged   = []string{"qkv", "attention", "o+ffn"}
	oneGate  = []string{"qkv", "attention", "o+norm", "gate", "up", "swiglu", "down+add"}
	pairGate = []string{"qkv", "attention", "o+norm", "gate+up", "swiglu", "down+add"}
	headOf   = []string{"qkv", "attention", "o+head", "down+add"}
)

func configs() []config {
	const f, d, l = "fused-cast", "drain", "direct"
	return []config{
		{"Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, "llama", f, d, f, f, f, merged, false, false, 8, 16384, 1.21, 12.2},
		{"Llama-3.2-3B", 28, 3072, 24, 8, 128, 8192, "llama", f, f, f, f, f, merged, true, true, 8, 16384, 3.70, 4.7},
		{"SmolLM2-1.7B", 24, 2048, 32, 32, 64, 8192, "llama", f, f, f, f, f, merged, false, false, 8, 16384, 2.02, 8.0},
		{"Qwen2.5-0.5B", 24, 896, 14, 2, 64, 4864, "qwen25", d, d, d, l, f, headOf, true, false, 19, 8192, 0.99, 11.9},
		{"Qwen2.5-1.5B", 28, 1536, 12, 2, 128, 8960, "qwen25", f, d, f, l, f, pairGate, true, true, 19, 8192, 2.43,
			6.6},
		{"Qwen2.5-3B", 36, 2048, 16, 2, 128, 11008, "qwen25", f, d, f, l, f, oneGate, true, true, 19, 8192, 4.24, 3.5},
		{"Qwen3-0.6B", 28, 1024, 16, 8, 128, 3072, "qwen3", f, d, f, f, f, merged, false, true, 19, 8192, 1.52, 11.7},
		{"Qwen3-1.7B", 28, 2048, 16, 8, 128, 6144, "qwen3", f, f, f, f, f, merged, false, true, 19, 8192, 2.08, 7.4},
		{"Qwen3-4B", 36, 2560, 32, 8, 128, 9728, "qwen3", f, f, f, f, f, oneGate, true, true, 19, 8192, 5.45, 3.5},
	}
}

func (c config) qWidth() int  { return c.heads * c.hd }
func (c config) kvWidth() int { return c.kvHeads * c.hd }

// pad returns the GEMM width for a width, which the 0.5B model pads.
func (c config) pad(n int) int {
	if c.emb == 896 && n < 1024 {
		return 1024
	}
	return n
}

// gemm returns a projection over the whole sequence: one launch, or two with a cast.
func gemm(k, n int, variant string) []kernelRun {
	tile := []int{64, 256, 32, 128}
	switch {
	case variant == "drain" && n == 256:
		tile = []int{32, 256, 32, 64}
	case variant == "drain" && k == 896:
		tile = []int{32, 128, 32, 128}
	case variant == "drain":
		tile = []int{32, 256, 32, 128}
	case variant == "direct":
		tile = []int{64, 128, 32, 64}
	case n == 9728:
		tile = []int{64, 64, 32, 128}
	case n == 2048 && k == 2048:
		tile = []int{64, 512, 32, 128}
	}
	m := npu.Mapping{Variant: variant, Tile: tile, Herd: []int{8, 4}}
	work := []kernelRun{{Op: op.MatMul{M: seq, K: k, N: n}, Mapping: m}}
	if variant == "fused-cast" {
		work = append(work, kernelRun{Op: op.Cast{Rows: seq, Width: n}, Mapping: npu.Mapping{Variant: variant}})
	}
	return work
}

// prefillPass returns the published sequence of programs of a prefill.
func (c config) prefillPass() pass {
	q, kv, emb, hid := c.qWidth(), c.kvWidth(), c.emb, c.hidden
	one := func(o op.Op) []kernelRun { return []kernelRun{{Op: o}} }
	norm := one(op.RMSNorm{Rows: seq, Width: emb})
	add := one(op.Add{Rows: seq, Width: emb})
	swiglu := one(op.SiLUMul{Rows: seq, Width: hid})
	o := gemm(q, c.pad(emb), c.o)
	gate := gemm(emb, hid, c.gateUp)
	down := gemm(hid, c.pad(emb), c.down)
	qkv := slices.Concat(norm, gemm(emb, c.pad(q), c.q), gemm(emb, c.pad(kv), c.kv), gemm(emb, c.pad(kv), c.kv))
	switch c.family {
	case "qwen25":
		for _, n := range []int{q, kv, kv} {
			qkv = append(qkv, kernelRun{Op: op.Add{Rows: seq, Width: n, Broadcast: true}})
		}
	case "qwen3":
		qkv = append(qkv,
			kernelRun{Op: op.RMSNorm{Rows: seq, Width: c.hd, Heads: c.heads}},
			kernelRun{Op: op.RMSNorm{Rows: seq, Width: c.hd, Heads: c.kvHeads}})
	}
	qkv = append(qkv,
		kernelRun{Op: op.RoPE{Rows: seq, Heads: c.heads, HeadDim: c.hd}},
		kernelRun{Op: op.RoPE{Rows: seq, Heads: c.kvHeads, HeadDim: c.hd}})
	attention := []kernelRun{{
		Op:      op.Attention{Rows: seq, Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.hd},
		Mapping: npu.Mapping{Variant: "flash", Tile: []int{256, 64, 4, 2}, Herd: []int{8, 4}},
	}}
	attention[0].Mapping.Layout = "seq-first"
	if c.headFirst {
		attention[0].Mapping.Layout = "head-first"
	}
	const bf16 = 2
	programs := map[string]dispatch{
		"qkv":       {Work: qkv, Write: bf16 * seq * emb},
		"attention": {Work: attention, Write: bf16 * seq * (2*q + 2*kv)}, // the zeroed output is written too
		"o+ffn":     {Work: slices.Concat(o, add, norm, gate, gate, swiglu, down, add), Write: bf16 * seq * (q + emb)},
		"o+head":    {Work: slices.Concat(o, add, norm, gate, gate, swiglu), Write: bf16 * seq * (q + emb)},
		"o+norm":    {Work: slices.Concat(o, add, norm), Write: bf16 * seq * (q + emb)},
		"gate":      {Work: gate, Write: bf16 * seq * emb},
		"up":        {Work: gate, Write: bf16 * seq * emb},
		"gate+up":   {Work: slices.Concat(gate, gate), Write: bf16 * seq * emb},
		"swiglu":    {Work: swiglu, Write: bf16 * 2 * seq * hid},
		"down+add":  {Work: slices.Concat(down, add), Write: bf16 * seq * (hid + emb)},
	}
	p := pass{Layers: c.layers, Once: []dispatch{c.lmHead()}, Permute: 2 * bf16 * seq * kv}
	if c.headFirst {
		p.Permute += 2 * bf16 * seq * (q + kv)
	}
	for _, name := range c.prefill {
		d := programs[name]
		d.Name = name
		p.Layer = append(p.Layer, d)
	}
	return p
}

// gemv returns a matrix-vector product with its published tile, which is limited by a core's memory.
func gemv(k, n int) kernelRun {
	tile := 16
	for tile*k > 24<<10 {
		tile /= 2
	}
	input := tile
	if k > 10<<10 {
		input = 1
	}
	m := npu.Mapping{Variant: "gemv", Tile: []int{tile, input}, Herd: []int{8, 1}}
	return kernelRun{Op: op.MatMul{M: 1, K: k, N: n}, Mapping: m}
}

func (c config) lmHead() dispatch {
	return dispatch{Name: "lm_head", Work: slices.Repeat([]kernelRun{gemv(c.emb, c.lmRows)}, c.lmParts)}
}

// decodePass returns the published sequence of programs of a token.
func (c config) decodePass() pass {
	q, kv, emb, hid := c.qWidth(), c.kvWidth(), c.emb, c.hidden
	in := []kernelRun{{Op: op.RMSNorm{Rows: 1, Width: emb}}, gemv(emb, q), gemv(emb, kv), gemv(emb, kv)}
	switch c.family {
	case "qwen25":
		for _, n := range []int{q, kv, kv} {
			in = append(in, kernelRun{Op: op.Add{Rows: 1, Width: n}})
		}
	case "qwen3":
		in = append(in,
			kernelRun{Op: op.RMSNorm{Rows: 1, Width: c.hd, Heads: c.heads}},
			kernelRun{Op: op.RMSNorm{Rows: 1, Width: c.hd, Heads: c.kvHeads}})
	}
	in = append(in,
		kernelRun{Op: op.RoPE{Rows: 1, Heads: c.heads, HeadDim: c.hd}},
		kernelRun{Op: op.RoPE{Rows: 1, Heads: c.kvHeads, HeadDim: c.hd}})
	p := pass{
		Layers: c.layers, Layer: []dispatch{{Name: "qkv", Work: in}}, Once: []dispatch{c.lmHead()}, Split: c.split,
		Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.hd, Keys: seq,
	}
	ffn := []kernelRun{gemv(q, emb), gemv(emb, hid), gemv(emb, hid), gemv(hid, emb)}
	if c.split {
		for i, name := range []string{"o", "gate", "up", "down"} {
			p.Layer = append(p.Layer, dispatch{Name: name, Work: ffn[i : i+1]})
		}
		return p
	}
	for i, stage := range []string{"cascade.o", "cascade.swiglu", "cascade.swiglu", "cascade.down"} {
		ffn[i].Mapping = npu.Mapping{Variant: "cascade", Fused: stage, Tile: []int{8, 2}, Herd: []int{8, 4}}
	}
	p.Layer = append(p.Layer, dispatch{Name: "o+ffn", Work: ffn})
	return p
}
