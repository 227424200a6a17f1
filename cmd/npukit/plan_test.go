package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/published"
)

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
		got = append(got, p.Name+" "+p.Instance)
	}
	for _, p := range want {
		names = append(names, p.Name+" "+p.Instance)
	}
	slices.Sort(got)
	slices.Sort(names)
	if !slices.Equal(got, names) {
		t.Errorf("programs %q, published are %q", got, names)
	}
	if p := r.Programs[0]; p.Name != "rms_gemms_rope" || p.Prefill != 16 || p.Decode != 0 || p.Time < 1e3 ||
		p.Arguments[0].Bytes != 2048*2048*2 || p.Launches[1].Mapping.Variant != "fused-cast" {
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
