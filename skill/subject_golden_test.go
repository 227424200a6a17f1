package skill

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/report"
	"github.com/npukit/npukit/skill/internal/skilltest"
	"github.com/npukit/npukit/skill/internal/subject"
)

// A golden file that no gate could use is refused before anything is written, with the file and the
// field. Otherwise it would fail phase 3.
func TestGoldenIsRefusedFirst(t *testing.T) {
	dev := skilltest.OpenCPU(t)
	path := skilltest.Tiny("smollm-mha")
	other := filepath.Join(skilltest.Tiny("qwen3-qknorm"), "golden.safetensors")
	pipe := filepath.Join(t.TempDir(), "golden.json")
	if err := os.Mkdir(pipe, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		golden string
		seqLen int
		says   []string
	}{
		"longer than a session":   {"", 16, []string{"golden.safetensors", "input_ids", "16 positions"}},
		"of another model":        {other, 96, []string{"qwen3-qknorm", "another model"}},
		"of the demo model":       {"builtin:smollm2-135m-instruct-q4_1", 96, []string{"another model"}},
		"no file":                 {pipe, 96, []string{pipe, "not a regular file"}},
		"a name that is not here": {"builtin:none", 96, []string{"builtin:none"}},
	} {
		opts := small(t)
		opts.Dir, opts.Golden, opts.SeqLen = filepath.Join(t.TempDir(), "w"), tc.golden, tc.seqLen
		d, err := NewDeployment(path, dev, opts)
		if err == nil {
			t.Errorf("%s: it is taken", name)
			d.Close()
			continue
		}
		for _, says := range tc.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q in it", name, err, says)
			}
		}
		if _, err := os.Stat(opts.Dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a workspace was made", name)
		}
	}
}

// The demo model is compared with the reference outputs that npukit has for it, under any name and
// again when the deployment resumes.
func TestDemoModelHasAReference(t *testing.T) {
	path := filepath.Join(t.TempDir(), "any.gguf")
	if err := os.Symlink(testenv.DemoModel(t), path); err != nil {
		t.Skip(err)
	}
	dev, opts := skilltest.OpenCPU(t), small(t)
	opts.SeqLen = 96
	for range 2 {
		d := deployment(t, path, dev, opts)
		s := d.State().Subject
		if !golden.IsBuiltIn(s.Golden) || len(d.reference.Golden.Sequences) != 5 ||
			s.GoldenSum != d.reference.Golden.Sum {
			t.Fatalf("the reference is %q", s.Golden)
		}
		if text := s.Reference(); !strings.HasPrefix(text, "Independent reference") ||
			!strings.Contains(text, "transformers") {
			t.Errorf("it says %q", text)
		}
		if _, g := subject.Paths(*s, "", ""); g != s.Golden {
			t.Errorf("an evaluator takes %q", g)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Without an independent reference, progress, pages and the evaluator tell it.
func TestNoIndependentReference(t *testing.T) {
	path := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors"} {
		if err := os.Symlink(filepath.Join(skilltest.Tiny("smollm-mha"), name), filepath.Join(path, name)); err != nil {
			t.Skip(err)
		}
	}
	opts := small(t)
	var notes []string
	opts.Observe = func(e Event) {
		if e.What == eventNote {
			notes = append(notes, e.Text)
		}
	}
	d := deployment(t, path, skilltest.OpenCPU(t), opts)
	if _, err := d.RunPhase(context.Background(), Reference); err != nil {
		t.Fatal(err)
	}
	const says = "No independent reference"
	if len(notes) != 1 || !strings.Contains(notes[0], says) {
		t.Errorf("progress: %q", notes)
	}
	for _, name := range []string{"plan.md", "progress.md"} {
		if page := string(skilltest.Must(os.ReadFile(d.ws.Path(name)))); !strings.Contains(page, says) {
			t.Errorf("%s:\n%s", name, page)
		}
	}
	evaluated := &EvaluationReport{Reference: d.State().Subject.Reference()}
	if page := string(report.Evaluation(evaluated, d.State(), "cpu")); !strings.Contains(page, says) {
		t.Errorf("the evaluation:\n%s", page)
	}
	if list := gatesOf(t, d, Reference); slices.Contains(list, journal.GateOracleGolden) {
		t.Errorf("gates without a reference: %q", list)
	}
}
