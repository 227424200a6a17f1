package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/sim"
)

// smollm2 opens SmolLM2-135M with the device's own plan.
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

// greedy is what follows a prompt.
func greedy(t testing.TB, m *model.Model, prompt string, n int) string {
	t.Helper()
	text := ""
	for tok, err := range m.Generate(t.Context(), model.Text(prompt), &model.GenerateOptions{MaxTokens: n}) {
		if err != nil {
			t.Fatal(err)
		}
		text += tok.Text
	}
	return text
}

// A real model runs on the virtual device, whose programs and host steps work on each other's results with every sync in place, and says
// what it says on the software device.
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
	if got, want := greedy(t, smollm2(t, d), prompt, tokens), greedy(t, smollm2(t, host), prompt, tokens); got != want {
		t.Errorf("%q continues with %q, on npu/cpu with %q", prompt, got, want)
	}
}

// What it costs to compute the array's numbers on this machine, beside what the array is predicted to take: a prompt of 2048 tokens, and
// tokens after it. Targets on two cores: 30 s and 30 tokens/s.
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
