package sim_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/npu/xdna2"
)

// smollm2 opens SmolLM2-135M with the device's default plan.
func smollm2(t testing.TB, d npu.Device) *model.Model {
	t.Helper()
	m, err := model.Open(t.Context(), d, testenv.DemoModel(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// greedy returns the greedy continuation of a prompt.
func greedy(t testing.TB, m *model.Model, prompt string, n int) string {
	t.Helper()
	text := ""
	for tok, err := range m.Generate(t.Context(), model.Text(prompt),
		&model.GenerateOptions{MaxTokens: n}) {
		if err != nil {
			t.Fatal(err)
		}
		text += tok.Text
	}
	return text
}

// A real model runs on the virtual device with no missing sync between array programs and host
// steps, and generates the same text as the software device.
func TestModel(t *testing.T) {
	d, err := sim.Open(&sim.Options{Debug: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	host, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	const prompt, tokens = "The capital of France is", 4
	if got, want := greedy(t, smollm2(t, d), prompt, tokens),
		greedy(t, smollm2(t, host), prompt, tokens); got != want {
		t.Errorf("%q continues with %q, on npu/cpu with %q", prompt, got, want)
	}
}

// BenchmarkSmolLM2 measures the simulation speed on this machine and reports the predicted speed of
// the array: a prompt of 2048 tokens, then decode. Targets on two cores: 30 s and 30 tokens/s.
func BenchmarkSmolLM2(b *testing.B) {
	d, err := sim.Open(nil)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	b.Log(d.Info().Name)
	m := smollm2(b, d)
	ids := make([]int32, 2000)
	for i := range ids {
		ids[i] = int32(1000 + i)
	}
	for _, c := range []struct {
		name string
		ids  []int32
		unit string
	}{{"prefill 2048", ids, "predicted-s"}, {"decode", ids[:4], "predicted-tokens/s"}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				const tokens = 33
				limit := tokens
				if len(c.ids) > tokens {
					limit = 1
				}
				var first time.Time
				at, n := d.Clock(), 0
				opts := &model.GenerateOptions{MaxTokens: limit, IgnoreEOS: true}
				for _, err := range m.Generate(context.Background(), model.IDs(c.ids), opts) {
					if err != nil {
						b.Fatal(err)
					}
					if n++; n == 1 {
						first = time.Now()
						if limit > 1 {
							at = d.Clock()
						}
					}
				}
				if limit == 1 {
					b.ReportMetric((d.Clock() - at).Seconds(), c.unit)
					continue
				}
				b.ReportMetric(float64(n-1)/time.Since(first).Seconds(), "tokens/s")
				b.ReportMetric(float64(n-1)/(d.Clock()-at).Seconds(), c.unit)
			}
		})
	}
}

// A plan with one program per op has more programs than there are contexts. It still runs, reopens
// contexts at every token as often as the plan's estimate predicts, and generates the same text as
// with unlimited contexts. The merged plan reopens none.
func TestMorePrograms(t *testing.T) {
	dir := t.TempDir()
	spec := ckptgen.Spec{Family: "llama", Layers: 2, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64,
		FFN: 512, Vocab: 512, Context: 64, Tie: true}
	if err := ckptgen.Write(dir, spec, 7); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.ReadConfig(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, 40)
	for i := range ids {
		ids[i] = int32(7 * i)
	}
	// tokens returns the tokens after the prompt and the number of contexts opened for them.
	tokens := func(m *model.Model, n int) (list []int32, opened int) {
		t.Helper()
		ctx := npu.WithTracer(t.Context(), func(s npu.Span) {
			if s.Category == "predicted context" {
				opened++
			}
		})
		for tok, err := range m.Generate(ctx, model.IDs(ids),
			&model.GenerateOptions{MaxTokens: n, IgnoreEOS: true}) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, tok.ID)
		}
		return list, opened
	}
	generate := func(knobs plan.Knobs, contexts int) (list []int32, perToken int, p *plan.Plan) {
		t.Helper()
		p, err := plan.NewNPU(c, &plan.NPUOptions{Lengths: []int{64}, Knobs: &knobs})
		if err != nil {
			t.Fatal(err)
		}
		d, err := sim.Open(&sim.Options{Debug: true, Contexts: contexts})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		m, err := model.Open(t.Context(), d, dir, &model.OpenOptions{Plan: p})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		_, _ = tokens(m, 2) // open the first contexts
		_, few := tokens(m, 2)
		list, many := tokens(m, 5)
		return list, (many - few) / 3, p
	}
	_, reopened, merged := generate(plan.TunedKnobs(), 0)
	if err := merged.CheckContexts(xdna2.NPU2()); err != nil || reopened != 0 {
		t.Errorf("the merged plan opens %d contexts per token: %v", reopened, err)
	}
	knobs := plan.TunedKnobs()
	knobs.MergePre, knobs.MergePost = false, false
	knobs.LMRows = ""
	want, _, _ := generate(knobs, 64)
	got, reopened, naive := generate(knobs, 0)
	if !slices.Equal(got, want) {
		t.Errorf("tokens %v, want %v as with one context per program", got, want)
	}
	e, err := naive.Estimate(xdna2.NewClock(xdna2.HostNpukit()))
	if err != nil {
		t.Fatal(err)
	}
	if reopened == 0 || reopened != e.Decode.Opened {
		t.Errorf("%d contexts opened per token, predicted %d", reopened, e.Decode.Opened)
	}
	var refused *xdna2.ResourceError
	if err := naive.CheckContexts(xdna2.NPU2()); !errors.As(err, &refused) ||
		refused.Rule != "R-ELF-6" || refused.Available != 8 {
		t.Errorf("%v, want R-ELF-6 with 8 contexts", err)
	}
}
