package rho

import (
	"fmt"
	"math"
	"testing"

	"github.com/npukit/npukit/internal/published"
)

const seq = 2048 // positions of the paper's runs

// dims returns a model's dimensions.
func dims(m published.Model) Dims {
	c := m.Config
	return Dims{Layers: c.Layers, Emb: c.Hidden, Query: c.Heads * c.HeadDim, KV: c.KVHeads * c.HeadDim, FFN: c.FFN}
}

// The formula reproduces the paper's 18 values from the paper's speeds. Those are printed with two
// digits, hence the tolerance of 0.01 beyond rounding.
func TestRhoMatchesPublishedValues(t *testing.T) {
	paper, ok := published.FindBaseline("paper")
	if !ok {
		t.Fatal("no baseline named paper")
	}
	for _, c := range published.Models() {
		row, ok := paper.Row(c.Name)
		if !ok {
			t.Fatalf("%s is not in the paper's table", c.Name)
		}
		prefill, decode, err := Of(Run{dims(c), seq, row.TTFT, row.TokensPerSec}, Reference(), AsPublished)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(prefill-row.RhoPrefill) > 0.01 || math.Abs(decode-row.RhoDecode) > 0.01 {
			t.Errorf("%s: rho %.3f and %.3f, published %.2f and %.2f", c.Name, prefill, decode, row.RhoPrefill,
				row.RhoDecode)
		}
	}
}

// With the true query width the two models whose heads are wider than their input score higher; the
// others do not change.
func TestRhoWithTrueWidth(t *testing.T) {
	paper, _ := published.FindBaseline("paper")
	want := map[string][2]float64{"Qwen3-0.6B": {0.30, 0.54}, "Qwen3-4B": {0.61, 0.91}}
	for _, c := range published.Models() {
		row, _ := paper.Row(c.Name)
		run := Run{dims(c), seq, row.TTFT, row.TokensPerSec}
		prefill, decode, err := Of(run, Reference(), TrueWidth)
		if err != nil {
			t.Fatal(err)
		}
		w, ok := want[c.Name]
		if !ok {
			w[0], w[1], _ = Of(run, Reference(), AsPublished)
		}
		if math.Abs(prefill-w[0]) > 0.01 || math.Abs(decode-w[1]) > 0.01 {
			t.Errorf("%s: rho %.3f and %.3f, want %.2f and %.2f", c.Name, prefill, decode, w[0], w[1])
		}
	}
}

func TestRhoOfTheReference(t *testing.T) {
	ref := Reference()
	prefill, decode, err := Of(ref, ref, AsPublished)
	if err != nil || prefill != 1 || decode != 1 {
		t.Errorf("Of(reference, reference) = %v, %v, %v, want 1, 1, nil", prefill, decode, err)
	}
	if x := ref.Dims.PrefillFLOPs(ref.Seq, AsPublished) / ref.TTFT / 1e12; math.Abs(x-3.28) > 0.01 {
		t.Errorf("the reference prefills at %.2f TFLOP/s, want 3.28", x)
	}
	if x := ref.Dims.DecodeBytes(ref.Seq, AsPublished) * ref.TokensPerSec / 1e9; math.Abs(x-21.7) > 0.1 {
		t.Errorf("the reference decodes at %.1f GB/s, want 21.7", x)
	}
}

func TestRhoRejectsRunsWithoutTime(t *testing.T) {
	ref := Reference()
	for _, run := range []Run{
		{},
		{Dims: ref.Dims, Seq: 2048, TTFT: 0, TokensPerSec: 1},
		{Dims: ref.Dims, Seq: 2048, TTFT: math.NaN(), TokensPerSec: 1},
	} {
		if _, _, err := Of(run, ref, AsPublished); err == nil {
			t.Errorf("Of(%+v): no error", run)
		}
	}
}

func ExampleOf() {
	// Llama-3.2-3B, measured in the paper.
	run := Run{Dims: Dims{Layers: 28, Emb: 3072, Query: 3072, KV: 1024, FFN: 8192}, Seq: 2048, TTFT: 3.5,
		TokensPerSec: 4.7}
	prefill, decode, err := Of(run, Reference(), AsPublished)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("prefill %.2f, decode %.2f\n", prefill, decode)
	// Output: prefill 1.07, decode 1.27
}
