package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/deploytest"
	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/tokenizer"
	"github.com/npukit/npukit/skill"
)

func TestMain(m *testing.M) {
	skill.Main(openDevice, nil)
	os.Exit(m.Run())
}

// What is reported is the last measurement of the plan that was decided, and a heading follows an
// empty line even if parts are missing.
func TestReportedFigures(t *testing.T) {
	s := &skill.State{Plan: "kept", Phases: make([]skill.PhaseState, len(skill.Phases()))}
	measured := `[{"value":{"plan_sha256":"first","ttft_s":3,"tokens_per_s":1}},
		{"value":{"plan_sha256":"kept","ttft_s":2,"tokens_per_s":1}},
		{"value":{"plan_sha256":"rejected","ttft_s":7,"tokens_per_s":1}}]`
	if err := json.Unmarshal([]byte(measured), &s.Measured); err != nil {
		t.Fatal(err)
	}
	if _, ok := reported(s); ok {
		t.Error("figures are reported before phase 6 has passed")
	}
	s.Phases[skill.Finalise].Status = "passed"
	r := &report{}
	reportedFigures(r, []deployed{{subject{model: "tiny", device: "cpu", note: "a model"}, s}})
	if !strings.HasSuffix(r.String(), "\n| tiny | cpu | 2.00 s | 1 | - | - | 0 of 0 |\n\n") {
		t.Errorf("the page is %s", r)
	}
}

// A deployment that was cut short goes on where it was, ends accepted, and stands in the page
// beside those that were not run, and beside what the nine configs let expect.
func TestReport(t *testing.T) {
	ctx, work := context.Background(), t.TempDir()
	s := subject{name: "tiny-cpu", model: "tiny", device: "cpu", seqLen: 64, note: "a model of the tests",
		gguf: filepath.Join(testenv.Root(), "testdata", "tiny-models", "smollm-mha")}
	if err := s.deploy(ctx, work, 1); err == nil {
		t.Error("a budget of a nanosecond was enough")
	}
	deploytest.Deploy(t, s.folder(work), func() error { return s.deploy(ctx, work, 0) })
	data, err := os.ReadFile(filepath.Join(s.folder(work), "plan.json"))
	if err != nil || !strings.Contains(string(data), `"accepted"`) {
		t.Fatalf("the plan is %.200s, %v", data, err)
	}
	text, err := page(ctx, work, "on a quiet machine", append([]subject{s}, subjects()[0]), published.Models()[:2],
		time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| tiny, a model of the tests | cpu | 64 |", "| accepted |", "Not run: smollm2-cpu",
		"chunks of 128 rows", "14 times as fast", "LM head of the last row only",
		"Llama-3.2-3B", "5 January 2026", "on a quiet machine",
		"in turns with the plan before it", "turns, noise", "9. layouts without host transposes",
		"| Llama-3.2-3B | 77.3 | 49.9 |", "37.12 s to 1.02 s"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}

// The tokenizer of the widened model gives the ids that the file's own gives.
func TestWidenedTokenizer(t *testing.T) {
	ck, err := checkpoint.Open(testenv.DemoModel(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	want, err := model.OpenTokenizer(ck)
	if err != nil {
		t.Fatal(err)
	}
	v := ck.Text().Vocab
	if v == nil {
		t.Fatal("the file has no vocabulary")
	}
	dir := t.TempDir()
	if err := writeTokenizer(dir, *v); err != nil {
		t.Fatal(err)
	}
	got, err := tokenizer.Open(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"The lighthouse has 214 steps, and \"nobody\" counts them.",
		"  if x != nil {\n\treturn 1987\n}", "<|im_start|>user\nÄpfel, 苹果<|im_end|>"} {
		a, err1 := got.Encode(text, nil)
		b, err2 := want.Encode(text, nil)
		if err1 != nil || err2 != nil || !slices.Equal(a, b) {
			t.Errorf("%q: %v, %v; want %v, %v", text, a, err1, b, err2)
		}
	}
}
