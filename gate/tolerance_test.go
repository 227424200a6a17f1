package gate_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu/op"
)

func TestTolerancesThatProveNothingAreRefused(t *testing.T) {
	for want, tol := range map[string]gate.Tolerance{
		"Note: empty":              {Atol: 1},
		"Atol: -1":                 {Atol: -1, Note: "n"},
		"Atol: +Inf":               {Atol: math.Inf(1), Note: "n"},
		"MeanRelL1: NaN":           {MeanRelL1: math.NaN(), Note: "n"},
		"Rtol: 1, want less":       {Rtol: 1, Note: "n"},
		"Mismatches: 0.5":          {Mismatches: 0.5, Note: "n"},
		"Mismatches: 2":            {Mismatches: 2, Note: "n"},
		"Pearson: 1.5":             {Pearson: 1.5, Note: "n"},
		"MeanRelL1, RelL2 or Peak": {Mismatches: 1, Pearson: 0.999, Note: "correlation alone"},
		"cannot tell an output from its": {Mismatches: 1, Cosine: 0.999, MinRowCosine: 0.99,
			Note: "cosine alone"},
		"Peak below 1 - Rtol": {Mismatches: 1, MeanRelL1: 1, RelL2: 2, Peak: 1,
			Note: "bounds that zeros meet"},
		"the element-wise bound is disabled": {Mismatches: 1, MaxAbs: 1e30,
			Note: "an absolute bound that may be any size"},
		"gate: Note: empty:": {Atol: 1, Note: "  "},
	} {
		var input *gate.InputError
		if err := tol.Validate(); !errors.As(err, &input) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one about %q", tol, err, want)
		}
	}
}

// No valid tolerance passes zeros or the doubled reference. If the bounds are too wide for the
// data, nothing passes.
func TestNoToleranceAcceptsZerosOrTheDouble(t *testing.T) {
	want := random(1, 4000)
	zeros, double := make([]float32, len(want)), make([]float32, len(want))
	for i, v := range want {
		double[i] = 2 * v
	}
	wide := []gate.Tolerance{
		{Atol: 1e30, Note: "n"},
		{Atol: 1e30, Pearson: 0.99, Cosine: 0.99, Note: "n"},
		{Atol: 1, Mismatches: 0.1, Note: "n"},
		{Rtol: 0.999, Note: "n"},
		{Mismatches: 1, MeanRelL1: 0.999, Note: "n"},
		{Mismatches: 1, RelL2: 0.999, Note: "n"},
		{Mismatches: 1, Peak: 0.999, Pearson: 0.9, Note: "n"},
		{Atol: 1e30, MaxAbs: 1e30, MaxRel: 1e30, MeanRelL1: 1e30, RelL2: 1e30, Peak: 1e30, MaxRowL1: 1e30,
			Note: "n"},
	}
	for _, tol := range wide {
		for name, got := range map[string][]float32{"zeros": zeros, "double": double} {
			if r, err := gate.Check(got, want, 40, tol); err != nil || r.OK() {
				t.Errorf("%s pass %+v: %v", name, tol, err)
			}
		}
	}
	r, err := gate.Check(want, want, len(want), wide[0])
	if err != nil || r.OK() || r.Reasons[0].Metric != gate.Blind {
		t.Errorf("a bound of 1e30 proves something: %v\n%v", err, r)
	}
}

// every has an op of each kind.
var every = []op.Op{
	op.MatMul{M: 64, K: 2048, N: 512}, op.MatMul{M: 1, K: 2048, N: 512}, op.MatMul{M: op.Rows, K: 8,
		N: 8}, op.RMSNorm{Rows: 4, Width: 64},
	op.LayerNorm{Rows: 4, Width: 64}, op.RoPE{Rows: 4, Heads: 2, HeadDim: 64}, op.SiLUMul{Rows: 4,
		Width: 64}, op.Add{Rows: 4, Width: 64},
	op.Add{Rows: 4, Width: 64, Broadcast: true}, op.GELU{Rows: 4, Width: 64,
		Tanh: true}, op.GELU{Rows: 4, Width: 64},
	op.Attention{Rows: 4, Heads: 4, KVHeads: 2, HeadDim: 64}, op.KVWrite{Rows: 4, KVHeads: 2,
		HeadDim: 8}, op.Embed{Rows: 4, Vocab: 8, Width: 8},
	op.Pick{Picks: 1, Rows: 4, Width: 8}, op.Cast{Rows: 4, Width: 8}, op.Permute{Shape: []int{2, 3},
		Perm: []int{1, 0}},
	op.Slice{Rows: 4, Width: 8, N: 4}, op.Concat{Rows: 4, Widths: []int{4, 4}},
}

func TestPublishedTolerancesAreSound(t *testing.T) {
	for _, o := range every {
		tol, ok := gate.Published(o)
		if gelu, is := o.(op.GELU); is && !gelu.Tanh {
			if ok {
				t.Error("the registry has no GELU without tanh")
			}
			continue
		}
		if err := tol.Validate(); !ok || err != nil {
			t.Errorf("%s: %v, %v", o.Kind(), ok, err)
		}
	}
	if err := gate.PublishedLow().Validate(); err != nil {
		t.Error(err)
	}
}

// All three bounds of the paper's gate must hold.
func TestPaperNeedsAllThree(t *testing.T) {
	var input *gate.InputError
	if _, err := gate.Paper(1, 0, 0.99, "n"); !errors.As(err, &input) {
		t.Error("two bounds are enough, it says")
	}
	if _, err := gate.Paper(1, 0.1, 0.99, ""); !errors.As(err, &input) {
		t.Error("a gate without provenance")
	}
	tol, err := gate.Paper(0.5, 0.1, 0.999, "a test's")
	if err != nil {
		t.Fatal(err)
	}
	want := random(1, 5000)
	for _, tc := range []struct {
		name   string
		got    func(i int, v float32) float32
		caught string
	}{
		{"a little noise", func(i int, v float32) float32 { return v + 0.01*float32(i%3-1) }, ""},
		{"one element far off", func(i int, v float32) float32 {
			if i == 77 {
				return v + 0.6
			}
			return v
		}, gate.MaxAbs},
		// Pearson is 1, no element is 0.5 off
		{"an eighth too large", func(_ int, v float32) float32 { return v * 1.12 }, gate.MeanRelL1},
		{"signs lost near zero", func(_ int, v float32) float32 {
			if v > -0.3 && v < 0.3 {
				return -v
			}
			return v
		}, gate.Pearson},
	} {
		got := make([]float32, len(want))
		for i, v := range want {
			got[i] = tc.got(i, v)
		}
		r, err := gate.Check(got, want, len(want), tol)
		if err != nil {
			t.Fatal(err)
		}
		if tc.caught == "" != r.OK() || tc.caught != "" && !reasonOf(r.Reasons, tc.caught) {
			t.Errorf("%s: want %q\n%v", tc.name, tc.caught, r)
		}
	}
}

func reasonOf(reasons []gate.Reason, metric string) bool {
	for _, r := range reasons {
		if r.Metric == metric {
			return true
		}
	}
	return false
}
