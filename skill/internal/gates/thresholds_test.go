package gates

import (
	"context"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/skilltest"
)

// arraySpecs returns small models whose plans for the array differ: merges, padding, biases, norms,
// heads of 64 and of 128.
func arraySpecs() map[string]ckptgen.Spec {
	spec := func(family string, hidden, heads, kv, hd, ffn int) ckptgen.Spec {
		return ckptgen.Spec{Family: family, Layers: 2, Hidden: hidden, Heads: heads, KVHeads: kv, HeadDim: hd,
			FFN: ffn, Vocab: 600, Context: FarMeasured, Tie: true}
	}
	return map[string]ckptgen.Spec{
		"llama":        spec("llama", 512, 8, 4, 64, 1024),
		"llama-padded": spec("llama", 192, 9, 3, 64, 512),
		"qwen2-padded": spec("qwen2", 448, 7, 1, 64, 512),
		"qwen3-hd128":  spec("qwen3", 256, 4, 2, 128, 512),
	}
}

// measuredPaper is the distance of a right device from the oracle in the paper's three conditions.
type measuredPaper struct{ atol, rtol, distance float64 } // distance of Pearson from 1

func (m *measuredPaper) add(v Verdict) {
	r := v.(gate.Report)
	m.atol, m.rtol = max(m.atol, r.Metrics.MaxAbs/r.Metrics.RMS), max(m.rtol, r.Metrics.MeanRelL1)
	m.distance = max(m.distance, 1-r.Metrics.Pearson)
}

// The table of the bounds agrees with right devices.
func TestPaperBoundsAreMeasured(t *testing.T) {
	t.Parallel()
	type run struct {
		path   string
		dev    npu.Device
		recipe func(journal.Recipe) journal.Recipe
	}
	runs := map[string][]run{}
	cpu := skilltest.OpenCPU(t)
	for _, name := range []string{"llama-tied-rope-scaled", "llama-untied-sharded", "qwen2-bias", "qwen3-qknorm",
		"smollm-mha"} {
		same := func(r journal.Recipe) journal.Recipe { return r }
		runs["cpu-bf16"] = append(runs["cpu-bf16"], run{skilltest.Tiny(name), cpu, same})
		runs["cpu-f32"] = append(runs["cpu-f32"], run{skilltest.Tiny(name), cpu,
			func(r journal.Recipe) journal.Recipe { r.Activations, r.Cache = dtype.F32, dtype.F32; return r }})
	}
	for _, spec := range arraySpecs() {
		dir := t.TempDir()
		if err := ckptgen.Write(dir, spec, 7); err != nil {
			t.Fatal(err)
		}
		runs["npu"] = append(runs["npu"], run{dir, skilltest.OpenSim(t, sim.Options{}),
			func(r journal.Recipe) journal.Recipe {
				tuned := plan.TunedKnobs()
				r.Prefill, r.Decode = &tuned, &tuned
				return r
			}})
	}
	for format, list := range runs {
		var block, far, logits measuredPaper
		for _, r := range list {
			e := newBench(t, r.path, r.dev, 96, 48)
			e.Recipe = r.recipe(e.Recipe.Clone())
			for _, c := range []struct {
				check func(context.Context, *Bench) (Verdict, error)
				into  *measuredPaper
			}{{checkBlock, &block}, {checkPaper, &logits}, {checkBlockFar, &far}} {
				if c.into == &far {
					e.Recipe.SeqLen = FarMeasured
				}
				v, err := c.check(context.Background(), e)
				if err != nil {
					t.Fatal(err)
				}
				c.into.add(v)
			}
		}
		m := paperMeasured()[format]
		block.matches(t, format+" block", m.tinyBlock)
		far.matches(t, format+" far", m.tinyFar)
		logits.matches(t, format+" logits", m.tinyLogits)
	}
}

// matches compares a table with measurements on this machine, whose kernels may sum in another
// order.
func (m measuredPaper) matches(t *testing.T, name string, want errorOf) {
	t.Helper()
	t.Logf("%s: largest absolute error %.3g rms, mean relative %.3g, Pearson 1-%.3g", name, m.atol, m.rtol, m.distance)
	for _, x := range []struct {
		what      string
		got, want float64
	}{{"absolute", m.atol, want.abs}, {"relative", m.rtol, want.rel}, {"Pearson", m.distance, want.distance}} {
		if !(x.got < 1.5*x.want && x.got > x.want/3) {
			t.Errorf("%s: the error (%s) is %.3g, the table says %.3g: measure again", name, x.what, x.got, x.want)
		}
	}
}

// The number format follows the activations, the weights and the device: FP32 activations with
// quantised weights that the device keeps, or expands to BF16; BF16 activations with weights that
// are rounded, or multiplied as integers.
func TestFormatOfQuantisedWeights(t *testing.T) {
	for _, c := range []struct {
		activations, weights dtype.Type
		info                 npu.Info
		want                 string
	}{
		{dtype.F32, dtype.Q4_1, npu.Info{Kind: "cpu", Repacked: []dtype.Type{dtype.Q4_1}}, "cpu-f32"},
		{dtype.F32, dtype.Q4_1, npu.Info{Kind: "cpu", InPlace: []dtype.Type{dtype.Q4_1}}, "cpu-f32"},
		{dtype.F32, dtype.Q4_1, npu.Info{Kind: "cpu", Repacked: []dtype.Type{dtype.Q8_0}}, "cpu-f32-expanded"},
		{dtype.F32, dtype.Q4_1, skilltest.OpenCPU(t).Info(), "cpu-f32"},
		{dtype.BF16, dtype.Q4_1, npu.Info{Kind: "cpu", Repacked: []dtype.Type{dtype.Q4_1}}, "cpu-bf16-blocks"},
		{dtype.BF16, dtype.Q4_1, npu.Info{Kind: "cpu", Repacked: []dtype.Type{dtype.Q4_1},
			Rounded: []dtype.Type{dtype.Q4_1}}, "cpu-bf16-expanded"},
		{dtype.F32, dtype.Q4_1, npu.Info{Kind: "cpu", Repacked: []dtype.Type{dtype.Q4_1},
			Rounded: []dtype.Type{dtype.Q4_1}}, "cpu-f32"},
		{dtype.BF16, dtype.BF16, skilltest.OpenCPU(t).Info(), "cpu-bf16"},
		{dtype.BF16, dtype.Q4_1, npu.Info{Kind: "sim", Array: "xdna2"}, "npu"},
	} {
		p := &plan.Plan{Activations: c.activations, Cache: c.activations}
		if got := p.NumberFormat(c.info, c.weights); got != c.want {
			t.Errorf("%v with %v on %+v: %s, want %s", c.activations, c.weights, c.info, got, c.want)
		}
	}
}
