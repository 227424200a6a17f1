package xdna2

import (
	"math"
	"slices"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// config is a published model as its programs see it, and the 2026-06 table's figures for it (S = 2048).
// Source: mlir-air e972f2942, programming_examples/llms.
type config struct {
	name                                    string
	layers, emb, heads, kvHeads, hd, hidden int
	family                                  string // llama, qwen25, qwen3
	q, kv, o, gateUp, down                  string // GEMM variant of each projection
	prefill                                 []string
	split                                   bool // decode in five programs a layer instead of two
	headFirst                               bool
	lmParts, lmRows                         int
	ttft, tokens                            float64 // s, tokens/s
}

const seq = 2048

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
		{"Qwen2.5-1.5B", 28, 1536, 12, 2, 128, 8960, "qwen25", f, d, f, l, f, pairGate, true, true, 19, 8192, 2.43, 6.6},
		{"Qwen2.5-3B", 36, 2048, 16, 2, 128, 11008, "qwen25", f, d, f, l, f, oneGate, true, true, 19, 8192, 4.24, 3.5},
		{"Qwen3-0.6B", 28, 1024, 16, 8, 128, 3072, "qwen3", f, d, f, f, f, merged, false, true, 19, 8192, 1.52, 11.7},
		{"Qwen3-1.7B", 28, 2048, 16, 8, 128, 6144, "qwen3", f, f, f, f, f, merged, false, true, 19, 8192, 2.08, 7.4},
		{"Qwen3-4B", 36, 2560, 32, 8, 128, 9728, "qwen3", f, f, f, f, f, oneGate, true, true, 19, 8192, 5.45, 3.5},
	}
}

func (c config) qWidth() int  { return c.heads * c.hd }
func (c config) kvWidth() int { return c.kvHeads * c.hd }

// pad is what the 0.5B model's awkward widths become in its GEMMs.
func (c config) pad(n int) int {
	if c.emb == 896 && n < 1024 {
		return 1024
	}
	return n
}

// gemm is a projection over the whole sequence: one launch, or two with a cast.
func gemm(k, n int, variant string) []Work {
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
	work := []Work{{Op: op.MatMul{M: seq, K: k, N: n}, Mapping: m}}
	if variant == "fused-cast" {
		work = append(work, Work{Op: op.Cast{Rows: seq, Width: n}, Mapping: npu.Mapping{Variant: variant}})
	}
	return work
}

// prefillPass is the published sequence of programs of a prefill.
func (c config) prefillPass() Pass {
	q, kv, emb, hid := c.qWidth(), c.kvWidth(), c.emb, c.hidden
	one := func(o op.Op) []Work { return []Work{{Op: o}} }
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
			qkv = append(qkv, Work{Op: op.Add{Rows: seq, Width: n, Broadcast: true}})
		}
	case "qwen3":
		qkv = append(qkv, Work{Op: op.RMSNorm{Rows: seq, Width: c.hd, Heads: c.heads}}, Work{Op: op.RMSNorm{Rows: seq, Width: c.hd, Heads: c.kvHeads}})
	}
	qkv = append(qkv, Work{Op: op.RoPE{Rows: seq, Heads: c.heads, HeadDim: c.hd}}, Work{Op: op.RoPE{Rows: seq, Heads: c.kvHeads, HeadDim: c.hd}})
	attention := []Work{{
		Op:      op.Attention{Rows: seq, Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.hd},
		Mapping: npu.Mapping{Variant: "flash", Tile: []int{256, 64, 4, 2}, Herd: []int{8, 4}},
	}}
	attention[0].Mapping.Layout = "seq-first"
	if c.headFirst {
		attention[0].Mapping.Layout = "head-first"
	}
	const bf16 = 2
	programs := map[string]Dispatch{
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
	p := Pass{Layers: c.layers, Once: []Dispatch{c.lmHead()}, Permute: 2 * bf16 * seq * kv}
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

func gemv(k, n int) Work {
	return Work{Op: op.MatMul{M: 1, K: k, N: n}, Mapping: npu.Mapping{Variant: "gemv", Tile: []int{8, 8}, Herd: []int{8, 1}}}
}

func (c config) lmHead() Dispatch {
	return Dispatch{Name: "lm_head", Work: slices.Repeat([]Work{gemv(c.emb, c.lmRows)}, c.lmParts)}
}

// decodePass is the published sequence of programs of a token.
func (c config) decodePass() Pass {
	q, kv, emb, hid := c.qWidth(), c.kvWidth(), c.emb, c.hidden
	in := []Work{{Op: op.RMSNorm{Rows: 1, Width: emb}}, gemv(emb, q), gemv(emb, kv), gemv(emb, kv)}
	switch c.family {
	case "qwen25":
		for _, n := range []int{q, kv, kv} {
			in = append(in, Work{Op: op.Add{Rows: 1, Width: n}})
		}
	case "qwen3":
		in = append(in, Work{Op: op.RMSNorm{Rows: 1, Width: c.hd, Heads: c.heads}}, Work{Op: op.RMSNorm{Rows: 1, Width: c.hd, Heads: c.kvHeads}})
	}
	in = append(in, Work{Op: op.RoPE{Rows: 1, Heads: c.heads, HeadDim: c.hd}}, Work{Op: op.RoPE{Rows: 1, Heads: c.kvHeads, HeadDim: c.hd}})
	p := Pass{
		Layers: c.layers, Layer: []Dispatch{{Name: "qkv", Work: in}}, Once: []Dispatch{c.lmHead()}, Split: c.split,
		Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.hd, Keys: seq,
	}
	ffn := []Work{gemv(q, emb), gemv(emb, hid), gemv(emb, hid), gemv(hid, emb)}
	if c.split {
		for i, name := range []string{"o", "gate", "up", "down"} {
			p.Layer = append(p.Layer, Dispatch{Name: name, Work: ffn[i : i+1]})
		}
		return p
	}
	for i, stage := range []string{"cascade.o", "cascade.swiglu", "cascade.swiglu", "cascade.down"} {
		ffn[i].Mapping.Fused = stage
	}
	p.Layer = append(p.Layer, Dispatch{Name: "o+ffn", Work: ffn})
	return p
}

// predict gives predicted over published time, for TTFT and for a token.
func predict(t *testing.T, c *Clock, m config) (ttft, token float64) {
	t.Helper()
	prefill, err := c.Prefill(m.prefillPass())
	if err != nil {
		t.Fatal(err)
	}
	decode, err := c.Decode(m.decodePass())
	if err != nil {
		t.Fatal(err)
	}
	return prefill.Total() / (m.ttft * 1e6), decode.Total() / (1e6 / m.tokens)
}

// Nothing fitted to whole models: rows, single programs and micro-figures alone predict the nine published ones.
func TestWholeModelsAPriori(t *testing.T) {
	var off []float64
	for _, m := range configs() {
		a, b := predict(t, APriori(), m)
		t.Logf("%-13s TTFT %.2f s for %.2f (%+5.1f %%), %.1f tokens/s for %.1f (%+5.1f %%)", m.name,
			a*m.ttft, m.ttft, 100*(a-1), m.tokens/b, m.tokens, 100*(1/b-1))
		off = append(off, math.Abs(a-1), math.Abs(1/b-1))
	}
	t.Logf("median %.1f %%, worst %.1f %%", 100*quantile(off, 0.5), 100*quantile(off, 1))
	if got := quantile(off, 0.5); got > 0.10 {
		t.Errorf("the median error is %.1f %%, want at most 10 %%", 100*got)
	}
}

// fitGlobals fits the three globals to some models.
func fitGlobals(t *testing.T, models []config) *Clock {
	c := APriori()
	minimise([]*float64{&c.Deployed.Factor, &c.Host.PrefillLayer, &c.Host.DecodeCall}, 2*len(models), func(dst []float64) {
		for i, m := range models {
			a, b := predict(t, c, m)
			dst[2*i], dst[2*i+1] = math.Log(a), math.Log(b)
		}
	})
	return c
}

// Three globals for nine models, and each model judged by a fit that has not seen it.
func TestWholeModelsLeaveOneOut(t *testing.T) {
	var off []float64
	for i, m := range configs() {
		c := fitGlobals(t, slices.Delete(configs(), i, i+1))
		a, b := predict(t, c, m)
		t.Logf("%-13s TTFT %.2f s for %.2f (%+5.1f %%), %.1f tokens/s for %.1f (%+5.1f %%)   factor %.3f, layer %.0f us, call %.0f us", m.name,
			a*m.ttft, m.ttft, 100*(a-1), m.tokens/b, m.tokens, 100*(1/b-1), c.Deployed.Factor, c.Host.PrefillLayer, c.Host.DecodeCall)
		off = append(off, math.Abs(a-1), math.Abs(1/b-1))
	}
	slices.Sort(off)
	t.Logf("median %.1f %%, p90 %.1f %%, worst %.1f %%", 100*quantile(off, 0.5), 100*quantile(off, 0.9), 100*quantile(off, 1))
	if got := quantile(off, 0.5); got > 0.07 {
		t.Errorf("the median error is %.1f %%, want at most 7 %%", 100*got)
	}
	if n := len(off); off[n-3] > 0.15 || off[n-1] > 0.25 {
		t.Errorf("the worst errors are %.1f, want at most two above 0.15 and none above 0.25", off[n-4:])
	}
}

// The reference profile is the fit to all nine.
func TestReferenceProfileIsTheFit(t *testing.T) {
	c, ref := fitGlobals(t, configs()), NewClock(HostReference())
	for _, p := range []struct {
		name      string
		got, want float64
	}{
		{"factor", c.Deployed.Factor, ref.Deployed.Factor},
		{"prefill layer, us", c.Host.PrefillLayer, ref.Host.PrefillLayer},
		{"decode call, us", c.Host.DecodeCall, ref.Host.DecodeCall},
	} {
		if math.Abs(p.got/p.want-1) > 0.01 {
			t.Errorf("%s: the fit gives %.4g, the profile has %.4g", p.name, p.got, p.want)
		}
	}
}

// Where a pass of Llama-3.2-1B spends its time, against its published profile.
func TestLlamaPrefillProfile(t *testing.T) {
	cost, err := NewClock(HostReference()).Prefill(configs()[0].prefillPass())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("array %.0f ms (published 1062), calls %.0f, transfers %.0f (51), permute %.0f, host %.0f (161 with permute)",
		cost.Array/1e3, cost.Calls/1e3, cost.Transfers/1e3, cost.Permute/1e3, cost.Host/1e3)
	if math.Abs(cost.Array/1062e3-1) > 0.10 {
		t.Errorf("the array runs %.0f ms, published 1062", cost.Array/1e3)
	}
	if math.Abs(cost.Transfers/51e3-1) > 0.25 {
		t.Errorf("transfers take %.0f ms, published 51", cost.Transfers/1e3)
	}
}

// The time that the array itself runs in a prefill is published apart from the rest, and is no part of any fit.
func TestPrefillArrayTimeAgainstPublished(t *testing.T) {
	table, ok := BaselineNamed("2026-06")
	if !ok {
		t.Fatal("no baseline named 2026-06")
	}
	var off []float64
	for _, m := range configs() {
		row, ok := table.Row(m.name)
		if !ok || row.TTFT != m.ttft || row.TokensPerSec != m.tokens {
			t.Fatalf("%s: the baseline has %+v, the test %.2f s and %.1f tokens/s", m.name, row, m.ttft, m.tokens)
		}
		if row.ArrayPrefill == 0 {
			continue
		}
		cost, err := APriori().Prefill(m.prefillPass())
		if err != nil {
			t.Fatal(err)
		}
		got := cost.Array / 1e6
		t.Logf("%-13s %.2f s, published %.2f (%+5.1f %%)", m.name, got, row.ArrayPrefill, 100*(got/row.ArrayPrefill-1))
		off = append(off, math.Abs(got/row.ArrayPrefill-1))
	}
	if median := quantile(off, 0.5); median > 0.10 || quantile(off, 1) > 0.25 {
		t.Errorf("median %.1f %%, worst %.1f %%, want at most 10 and 25", 100*median, 100*quantile(off, 1))
	}
}
