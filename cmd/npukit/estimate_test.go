package main

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/model/plan"
)

// llamaConfig is a config.json with the shape of Llama-3.2-1B.
func llamaConfig(t *testing.T) string {
	t.Helper()
	config := map[string]any{
		"model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
		"num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 8192,
		"vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "hidden_act": "silu",
		"tie_word_embeddings": true, "rope_theta": 500000.0,
	}
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// A config.json is enough for an estimate. It is near the published figures for this shape and has
// all programs, a timeline and a picture.
func TestEstimate(t *testing.T) {
	file := llamaConfig(t)
	dir := t.TempDir()
	trace, picture := filepath.Join(dir, "trace.json"), filepath.Join(dir, "estimate.png")
	e := parse[plan.Estimate](t, succeed(t, "", "estimate", file, "--host", "reference", "--json", "--trace", trace,
		"--plot", picture))
	if !e.Predicted || e.TTFT < 1 || e.TTFT > 1.5 || e.TokensPerSec < 9 || e.TokensPerSec > 14 ||
		e.Prefill.Dispatches != 49 || e.Decode.Dispatches != 33 {
		t.Errorf("TTFT %.2f s, %.1f tokens/s, %d and %d dispatches; published: 1.21 and 12.2, with 49 and "+
			"33",
			e.TTFT, e.TokensPerSec, e.Prefill.Dispatches, e.Decode.Dispatches)
	}
	var timeline struct {
		Events []struct{ Ph, Name string } `json:"traceEvents"`
	}
	data, err := os.ReadFile(trace)
	if err != nil || json.Unmarshal(data, &timeline) != nil || len(timeline.Events) < 49 {
		t.Errorf("the timeline has %d events, %v", len(timeline.Events), err)
	}
	if data, err := os.ReadFile(picture); err != nil || !strings.HasPrefix(string(data), "\x89PNG") {
		t.Errorf("the picture is not a PNG: %v", err)
	}

	text := succeed(t, "", "estimate", file)
	for _, want := range []string{"nothing here is measured", "rms_gemms_rope", "flash_attn", "o_gemv_ffn",
		"LARGEST LOSS", "rho"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	naive := parse[plan.Estimate](t, succeed(t, "", "estimate", file, "--naive", "--json"))
	if naive.TTFT < 5*e.TTFT || naive.Prefill.Dispatches != 241 {
		t.Errorf("the naive plan takes %.1f s with %d dispatches, want far more than %.2f s, with 15 a layer and "+
			"the LM head", naive.TTFT, naive.Prefill.Dispatches, e.TTFT)
	}
}

// Invalid input is an error that explains what to do.
func TestEstimateRefusals(t *testing.T) {
	file := llamaConfig(t)
	other := ckptgen.Spec{Family: "qwen3", Layers: 1, Hidden: 64, Heads: 2, HeadDim: 16, FFN: 64, Vocab: 32}
	small := t.TempDir()
	if err := ckptgen.Write(small, other, 1); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(half, []byte(`{"model_type": "llama", "hidden_size": 20`), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"estimate " + file + " --host mine", 2, "npukit or reference"},
		{"estimate " + file + " --seq 1", 2, "2 or more"},
		{"estimate " + file + " --seq 200000", 1, "131072"},
		{"estimate " + file + " --trace /nowhere/t.json", 1, "--trace"},
		{"estimate " + small, 1, "R-DIV-9"},
		{"estimate " + half, 1, "config.json: is not valid JSON"},
		{"estimate nothing.json", 1, "nothing.json"},
		{"estimate", 2, "MODEL is missing"},
	} {
		r := command("", strings.Fields(tc.args)...)
		if r.code != tc.code || !strings.Contains(r.stderr, tc.want) {
			t.Errorf("%s: exit code %d, %q; want %d and %q", tc.args, r.code, r.stderr, tc.code, tc.want)
		}
	}
}

// A model folder without weights gives the same estimate as its config.json.
func TestEstimateOfAFolder(t *testing.T) {
	file := llamaConfig(t)
	if folder, config := succeed(t, "", "estimate", filepath.Dir(file)),
		succeed(t, "", "estimate", file); folder != config {
		t.Errorf("a folder gives\n%s\nits config.json\n%s", folder, config)
	}
}

// A plan that the array cannot place is rejected with the rule, and a plan for another model by
// name.
func TestEstimateOfAnEditedPlan(t *testing.T) {
	c, err := configOf(llamaConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	made, err := plan.NewNPU(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "plan.json")
	save := func() {
		data, err := json.Marshal(made)
		if err == nil {
			err = os.WriteFile(file, data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	config := llamaConfig(t)
	save()
	if e := parse[plan.Estimate](t, succeed(t, "", "estimate", config, "--plan", file,
		"--json")); e.Prefill.Dispatches != 49 {
		t.Errorf("%d dispatches", e.Prefill.Dispatches)
	}
	for _, p := range made.Programs {
		for i := range p.Launches {
			if m := &p.Launches[i].Mapping; m.Variant == "fused-cast" && len(m.Tile) == 4 {
				m.Tile[3] = 2048 // columns of a tile
			}
		}
	}
	save()
	if r := command("", "estimate", config, "--plan", file); r.code != 1 || !strings.Contains(r.stderr, "R-") ||
		!strings.Contains(r.stderr, file) {
		t.Errorf("an impossible tile: exit code %d, %q", r.code, r.stderr)
	}
	made.Model.Hidden = 4096
	save()
	if r := command("", "estimate", config, "--plan", file); r.code != 1 ||
		!strings.Contains(r.stderr, "the plan is for") {
		t.Errorf("another model: exit code %d, %q", r.code, r.stderr)
	}
}

// --diff lists the changes to another plan and their predicted effect. A plan has no difference
// from itself.
func TestEstimateDiff(t *testing.T) {
	config := llamaConfig(t)
	dir := t.TempDir()
	same, naive := filepath.Join(dir, "same.json"), filepath.Join(dir, "naive.json")
	succeed(t, "", "estimate", config, "--plan-out", same)
	succeed(t, "", "estimate", config, "--naive", "--plan-out", naive)
	if text := succeed(t, "", "estimate", config, "--diff", same); !strings.Contains(text, "does the same") {
		t.Errorf("a plan and itself: %s", text)
	}
	e := parse[estimated](t, succeed(t, "", "estimate", config, "--diff", naive, "--json"))
	if e.Diff == nil || len(e.Diff.Changes) < 5 || e.Diff.TTFT < 5*e.TTFT || e.Diff.TokensPerSec > e.TokensPerSec/5 {
		t.Fatalf("with the naive plan: %+v", e.Diff)
	}
	text := succeed(t, "", "estimate", config, "--diff", naive)
	for _, want := range append([]string{"runtime.context_reuse: true -> false", "first token", "predicted", naive},
		e.Diff.Changes...) {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	back := parse[estimated](t, succeed(t, "", "estimate", config, "--plan", naive, "--diff", same, "--json"))
	if back.TTFT != e.Diff.TTFT || back.Diff.TTFT != e.TTFT {
		t.Errorf("back: %g -> %g s, forth: %g -> %g s", back.TTFT, back.Diff.TTFT, e.TTFT, e.Diff.TTFT)
	}
	if r := command("", "estimate", config, "--diff", config); r.code != 1 || !strings.Contains(r.stderr, "--diff") {
		t.Errorf("a file that is not a plan: exit code %d, %q", r.code, r.stderr)
	}
}

// The command prints the published programs of Llama-3.2-1B, from its config alone.
func TestPlan(t *testing.T) {
	file, out := llamaConfig(t), filepath.Join(t.TempDir(), "plan.json")
	r := parse[planReport](t, succeed(t, "", "plan", file, "--json", "--plan-out", out))
	want, err := published.Programs("llama32_1b")
	if err != nil {
		t.Fatal(err)
	}
	var got, names []string
	for _, p := range r.Programs {
		got = append(got, p.Program.Name+" "+cmp.Or(p.Program.Instance, p.Program.Name))
	}
	for _, p := range want {
		names = append(names, p.Name+" "+p.Instance)
	}
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("programs %q, published are %q", got, names)
	}
	if p := r.Programs[0]; p.Program.Name != "rms_gemms_rope" || p.Prefill != 16 || p.Decode != 0 || p.Time < 1e3 ||
		published.Args(p.Program) != want[0].Args || p.Program.Launches[1].Mapping.Variant != "fused-cast" {
		t.Errorf("the first program is %+v", p)
	}
	if !r.Predicted || r.TTFT <= 0 || len(r.Steps) != 22 {
		t.Errorf("predicted %v, first token %g s, %d steps", r.Predicted, r.TTFT, len(r.Steps))
	}
	if text := succeed(t, "", "estimate", file, "--plan", out); !strings.Contains(text, "o_gemv_ffn") {
		t.Errorf("the plan that was written is not read: %s", text)
	}
	text := succeed(t, "", "plan", file)
	for _, want := range []string{"predicted", "flash seq-first", "rope_q", "64x512x32x128", "cascade in cascade.o"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text lacks %q:\n%s", want, text)
		}
	}
	naive := parse[planReport](t, succeed(t, "", "plan", file, "--naive", "--json"))
	if len(naive.Programs) < 25 || naive.TTFT < 5*r.TTFT || naive.Steps != nil {
		t.Errorf("the naive plan has %d programs and takes %g s", len(naive.Programs), naive.TTFT)
	}
}

func TestPlanRefusals(t *testing.T) {
	file := llamaConfig(t)
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"plan", 2, "MODEL is missing"},
		{"plan nothing.json", 1, "nothing.json"},
		{"plan " + file + " --seq 1", 2, "2 or more"},
		{"plan " + file + " --seq 200000", 1, "131072"},
		{"plan " + file + " --plan-out /nowhere/p.json", 1, "--plan-out"},
	} {
		r := command("", strings.Fields(tc.args)...)
		if r.code != tc.code || !strings.Contains(r.stderr, tc.want) {
			t.Errorf("%s: exit code %d, %q; want %d and %q", tc.args, r.code, r.stderr, tc.code, tc.want)
		}
	}
}
