package xdna2

import (
	"fmt"
	"math"
	"testing"
)

func (c config) rho() RhoDims {
	return RhoDims{Layers: c.layers, Emb: c.emb, Query: c.qWidth(), KV: c.kvWidth(), FFN: c.hidden}
}

// The formula reproduces the paper's 18 values from the paper's speeds. Those are printed with two
// digits, hence the tolerance of 0.01 beyond rounding.
func TestRhoMatchesPublishedValues(t *testing.T) {
	paper, ok := BaselineNamed("paper")
	if !ok {
		t.Fatal("no baseline named paper")
	}
	for _, c := range configs() {
		row, ok := paper.Row(c.name)
		if !ok {
			t.Fatalf("%s is not in the paper's table", c.name)
		}
		prefill, decode, err := Rho(RhoRun{c.rho(), seq, row.TTFT, row.TokensPerSec}, RhoReference(), RhoAsPublished)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(prefill-row.RhoPrefill) > 0.01 || math.Abs(decode-row.RhoDecode) > 0.01 {
			t.Errorf("%s: rho %.3f and %.3f, published %.2f and %.2f", c.name, prefill, decode, row.RhoPrefill,
				row.RhoDecode)
		}
	}
}

// With the true query width the two models whose heads are wider than their input score higher; the
// others do not change.
func TestRhoWithTrueWidth(t *testing.T) {
	paper, _ := BaselineNamed("paper")
	want := map[string][2]float64{"Qwen3-0.6B": {0.30, 0.54}, "Qwen3-4B": {0.61, 0.91}}
	for _, c := range configs() {
		row, _ := paper.Row(c.name)
		run := RhoRun{c.rho(), seq, row.TTFT, row.TokensPerSec}
		prefill, decode, err := Rho(run, RhoReference(), RhoTrueWidth)
		if err != nil {
			t.Fatal(err)
		}
		w, ok := want[c.name]
		if !ok {
			w[0], w[1], _ = Rho(run, RhoReference(), RhoAsPublished)
		}
		if math.Abs(prefill-w[0]) > 0.01 || math.Abs(decode-w[1]) > 0.01 {
			t.Errorf("%s: rho %.3f and %.3f, want %.2f and %.2f", c.name, prefill, decode, w[0], w[1])
		}
	}
}

func TestRhoOfTheReference(t *testing.T) {
	ref := RhoReference()
	prefill, decode, err := Rho(ref, ref, RhoAsPublished)
	if err != nil || prefill != 1 || decode != 1 {
		t.Errorf("Rho(reference, reference) = %v, %v, %v, want 1, 1, nil", prefill, decode, err)
	}
	if x := ref.Dims.PrefillFLOPs(ref.Seq, RhoAsPublished) / ref.TTFT / 1e12; math.Abs(x-3.28) > 0.01 {
		t.Errorf("the reference prefills at %.2f TFLOP/s, want 3.28", x)
	}
	if x := ref.Dims.DecodeBytes(ref.Seq, RhoAsPublished) * ref.TokensPerSec / 1e9; math.Abs(x-21.7) > 0.1 {
		t.Errorf("the reference decodes at %.1f GB/s, want 21.7", x)
	}
}

func TestRhoRejectsRunsWithoutTime(t *testing.T) {
	ref := RhoReference()
	for _, run := range []RhoRun{
		{},
		{Dims: ref.Dims, Seq: 2048, TTFT: 0, TokensPerSec: 1},
		{Dims: ref.Dims, Seq: 2048, TTFT: math.NaN(), TokensPerSec: 1},
	} {
		if _, _, err := Rho(run, ref, RhoAsPublished); err == nil {
			t.Errorf("Rho(%+v): no error", run)
		}
	}
}

func ExampleRho() {
	// Llama-3.2-3B, measured in the paper.
	run := RhoRun{Dims: RhoDims{Layers: 28, Emb: 3072, Query: 3072, KV: 1024, FFN: 8192}, Seq: 2048, TTFT: 3.5,
		TokensPerSec: 4.7}
	prefill, decode, err := Rho(run, RhoReference(), RhoAsPublished)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("prefill %.2f, decode %.2f\n", prefill, decode)
	// Output: prefill 1.07, decode 1.27
}
