package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/skill"
)

func TestMain(m *testing.M) {
	skill.Main(openDevice, nil)
	os.Exit(m.Run())
}

// A deployment that was cut short goes on where it was, ends accepted, and stands in the page beside those that were not run, and beside what the nine configs let expect.
func TestReport(t *testing.T) {
	ctx, work := context.Background(), t.TempDir()
	s := subject{name: "tiny-cpu", model: "tiny", device: "cpu", seqLen: 64, note: "a model of the tests", gguf: filepath.Join(testenv.Root(), "testdata", "tiny-models", "smollm-mha")}
	if err := s.deploy(ctx, work, 1); err == nil {
		t.Error("a budget of a nanosecond was enough")
	}
	if err := s.deploy(ctx, work, 0); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(s.folder(work), skill.FilePlan))
	if err != nil || !strings.Contains(string(data), `"accepted"`) {
		t.Fatalf("the plan is %.200s, %v", data, err)
	}
	text, err := page(ctx, work, append([]subject{s}, subjects()[0]), published.Models()[:2], time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| tiny, a model of the tests | cpu | 64 |", "| accepted |", "Not run: smollm2-cpu", "chunks of 128 rows", "14 times as fast", "LM head of the last row only",
		"Llama-3.2-3B", "5 January 2026"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}
