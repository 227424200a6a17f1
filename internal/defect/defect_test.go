package defect_test

import (
	"context"
	"path"
	"slices"
	"testing"

	"github.com/npukit/npukit/internal/defect"
)

// tiny are the five models that defects are shown on.
var tiny = map[string]defect.Model{
	"llama-tied-rope-scaled": {Layers: 3, Heads: 4, KVHeads: 2, HeadDim: 16, Hidden: 64},
	"llama-untied-sharded":   {Layers: 4, Heads: 6, KVHeads: 3, HeadDim: 16, Hidden: 96},
	"smollm-mha":             {Layers: 2, Heads: 4, KVHeads: 4, HeadDim: 16, Hidden: 64},
	"qwen2-bias":             {Layers: 3, Heads: 7, KVHeads: 1, HeadDim: 16, Hidden: 112, QKVBias: true},
	"qwen3-qknorm":           {Layers: 3, Heads: 4, KVHeads: 2, HeadDim: 32, Hidden: 64, QKNorm: true},
}

// A catalogue that names a tap wrongly would accuse a diagnosis that is right.
func TestCatalogueIsConsistent(t *testing.T) {
	all := defect.All()
	if len(all) < 20 {
		t.Errorf("%d defects, want at least 20", len(all))
	}
	names, kinds := map[string]bool{}, map[string]bool{}
	for _, d := range all {
		if names[d.Name] {
			t.Errorf("%s: there are two of that name", d.Name)
		}
		names[d.Name], kinds[d.Op] = true, true
		if d.Description == "" || d.Op == "" || !d.In(d.First) || d.Seen == "" {
			t.Errorf("%s: it does not say what it is, or where it is seen first: %+v", d.Name, d)
		}
		for _, p := range d.Launches {
			if _, err := path.Match(p, ""); err != nil {
				t.Errorf("%s: pattern %s: %v", d.Name, p, err)
			}
		}
		m, ok := tiny[d.Model]
		if !ok || !d.Applies(m) {
			t.Errorf("%s: it is to show on %q, where it does not apply", d.Name, d.Model)
		}
	}
	for _, kind := range []string{"MatMul", "Embed", "Pick", "RMSNorm", "RoPE", "KVWrite", "Attention", "SiLUMul",
		"Add"} {
		if !kinds[kind] {
			t.Errorf("no defect sits in %s", kind)
		}
	}
	models := map[string]bool{}
	for _, d := range all {
		models[d.Model] = true
	}
	if len(models) != len(tiny) {
		t.Errorf("the defects are shown on %d of the %d models", len(models), len(tiny))
	}
}

func TestDefectsDoNotApplyEverywhere(t *testing.T) {
	for name, models := range map[string][]string{
		// One query head to each, one key-value head for all: both mappings are the same.
		"attention-head-modulo": {"smollm-mha", "qwen2-bias"},
		"bias-skipped":          {"smollm-mha", "qwen3-qknorm"},
		"q-norm-skipped":        {"qwen2-bias"},
	} {
		i := slices.IndexFunc(defect.All(), func(d *defect.Defect) bool { return d.Name == name })
		for _, m := range models {
			if d := defect.All()[i]; d.Applies(tiny[m]) {
				t.Errorf("%s is said to show on %s", name, m)
			}
		}
	}
}

func TestContextCarriesADefect(t *testing.T) {
	ctx := context.Background()
	if defect.From(ctx) != nil {
		t.Error("a context has a defect by itself")
	}
	d := defect.All()[0]
	if defect.From(defect.With(ctx, d)) != d {
		t.Error("the defect is lost")
	}
}

func TestLaunchesAreFoundByTapName(t *testing.T) {
	d := &defect.Defect{Launches: []string{"layer.*.attn.q_rope", "layer.1.ffn.norm"}}
	for tap, want := range map[string]bool{
		"layer.0.attn.q_rope": true, "layer.17.attn.q_rope": true, "layer.1.ffn.norm": true,
		"layer.0.attn.k_rope": false, "layer.0.attn.q": false, "layer.0.ffn.norm": false, "layer.11.ffn.norm": false,
		"head.norm": false,
	} {
		if d.In(tap) != want {
			t.Errorf("%s: %v, want %v", tap, !want, want)
		}
	}
}
