package skill

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/skilltest"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// agrees returns an evaluator that accepts the plan of the journal, and counts its calls.
func agrees(asked *int) Evaluator {
	return func(_ context.Context, dir string) (EvaluationReport, error) {
		*asked++
		s, err := ReadState(dir)
		if err != nil {
			return EvaluationReport{}, err
		}
		return EvaluationReport{OK: true, Plan: s.Plan,
			Checks: []journal.EvaluationCheck{{Name: "a test", OK: true, Detail: ""}}}, nil
	}
}

// accepted deploys a model, and evaluates it with success.
func accepted(t *testing.T, path string, opts *Options) {
	t.Helper()
	t.Chdir(filepath.Dir(path))
	asked := 0
	opts.plain, opts.Evaluate = true, agrees(&asked)
	d := deployment(t, filepath.Base(path), skilltest.OpenCPU(t), opts)
	if err := d.Run(context.Background()); err != nil || asked != 1 {
		t.Fatalf("%v; evaluated %d times", err, asked)
	}
	skilltest.Must(0, d.Close())
	t.Chdir(t.TempDir())
}

func planStatus(t *testing.T, dir string) plan.Status {
	t.Helper()
	p, err := plan.Read(filepath.Join(dir, workspace.FilePlan))
	if err != nil {
		t.Fatal(err)
	}
	return p.Status
}

// There is no verdict if the evaluator cannot read something: a model that has moved, a wrong path,
// a file without permissions. The plan stays accepted, and the journal does not change. A damaged
// checkpoint fails, if the journal has its path.
func TestUnreadIsNoVerdict(t *testing.T) {
	ctx, dev, opts := context.Background(), skilltest.OpenCPU(t), small(t)
	// found from here; the test goes elsewhere
	path, other := filepath.Join(t.TempDir(), "m"), skilltest.Tiny("qwen2-bias")
	skilltest.Must(0, os.CopyFS(path, os.DirFS(skilltest.Tiny("smollm-mha"))))
	accepted(t, path, opts)
	settle := func(o *EvaluateOptions) (EvaluationReport, error) {
		o.Positions, o.Repetitions, o.written = 32, 3, true
		return Settle(ctx, opts.Dir, lend(dev), func(ctx context.Context, dir string) (EvaluationReport, error) {
			return Evaluate(ctx, dir, dev, o)
		}, o)
	}
	was := skilltest.Must(os.ReadFile(filepath.Join(opts.Dir, journal.FileJournal)))
	silent := func(what string, o *EvaluateOptions, names string) {
		t.Helper()
		_, err := settle(o)
		if err == nil || !strings.Contains(err.Error(), "no verdict") || !strings.Contains(err.Error(), names) {
			t.Errorf("%s: %v, want no verdict and %q", what, err, names)
		}
		if s := planStatus(t, opts.Dir); s != plan.Accepted ||
			!bytes.Equal(was, skilltest.Must(os.ReadFile(filepath.Join(opts.Dir, journal.FileJournal)))) {
			t.Errorf("%s: the plan is %q, or the journal was changed", what, s)
		}
	}
	for _, name := range []string{workspace.FilePerformance, workspace.FileThresholds, "progress.md"} {
		mend := unreadable(t, filepath.Join(opts.Dir, name))
		silent("a file that cannot be read", &EvaluateOptions{}, name)
		mend()
	}
	skilltest.Must(0, os.Rename(path, path+"-away"))
	silent("the model has moved", &EvaluateOptions{}, path)
	silent("a path that is none", &EvaluateOptions{Model: path + "-nowhere"}, "nowhere")
	silent("a golden file that is none", &EvaluateOptions{Model: path + "-away", Golden: path}, path)
	silent("another model", &EvaluateOptions{Model: other}, "qwen2")
	if r, err := settle(&EvaluateOptions{Model: path + "-away"}); err != nil ||
		failing(r)[0] != "computed" { // all but what was not computed; its golden file has moved with it
		t.Errorf("the model's new place: %v, %q", err, failing(r))
	}
	skilltest.Must(0, os.Rename(path+"-away", path))
	skilltest.Must(0, os.WriteFile(filepath.Join(path, "config.json"), []byte("{"), 0o644))
	r, err := settle(&EvaluateOptions{})
	if err != nil || len(failing(r)) != 1 || failing(r)[0] != "model" || planStatus(t, opts.Dir) != plan.Failed {
		t.Errorf("a damaged checkpoint: %v, %q", err, failing(r))
	}
}

// unreadable makes a file one that exists and cannot be read. Permissions do not keep root from
// reading, but /proc/self/mem cannot be read at its start.
func unreadable(t *testing.T, file string) (mend func()) {
	t.Helper()
	readable := func() bool {
		_, err := os.ReadFile(file)
		return err == nil || errors.Is(err, os.ErrNotExist)
	}
	skilltest.Must(0, os.Chmod(file, 0))
	if !readable() {
		return func() { skilltest.Must(0, os.Chmod(file, 0o644)) }
	}
	skilltest.Must(0, os.Chmod(file, 0o644))
	skilltest.Must(0, os.Rename(file, file+"-away"))
	if os.Symlink("/proc/self/mem", file) != nil || readable() {
		t.Skip("everything can be read here")
	}
	return func() { skilltest.Must(0, os.Rename(file+"-away", file)) }
}

// A check that fails is a verdict, although the evaluator cannot read another file. The report
// names that file, which is not touched.
func TestRefusedBesideAnUnreadFile(t *testing.T) {
	ctx, dev, opts := context.Background(), skilltest.OpenCPU(t), small(t)
	accepted(t, skilltest.Tiny("smollm-mha"), opts)
	fresh := func() *victim {
		v := &victim{t: t, dir: filepath.Join(t.TempDir(), "w")}
		copyTo(t, opts.Dir, v.dir)
		return v
	}
	settle := func(v *victim) (EvaluationReport, error) {
		o := &EvaluateOptions{Positions: 32, Repetitions: 3, written: true}
		return Settle(ctx, v.dir, lend(dev), func(ctx context.Context, dir string) (EvaluationReport, error) {
			return Evaluate(ctx, dir, dev, o)
		}, o)
	}
	for _, name := range []string{workspace.FilePerformance, "progress.md"} {
		v := fresh()
		v.replace(workspace.FileThresholds, `"pearson": 0.99`, `"pearson": 0.90`)
		before := v.read(name)
		mend := unreadable(t, filepath.Join(v.dir, name))
		r, err := settle(v)
		if err != nil || r.OK || !slices.Equal(failing(r), []string{"thresholds file", "evaluation"}) ||
			!strings.Contains(r.Checks[len(r.Checks)-1].Detail, name) {
			t.Errorf("%s: %v, %+v", name, err, r.Checks)
		}
		if s := skilltest.Must(ReadState(v.dir)); planStatus(t, v.dir) != plan.Failed ||
			s.Phases[Evaluation].Status != journal.Failed {
			t.Errorf("%s: the plan is %q, the evaluation %q", name, planStatus(t, v.dir), s.Phases[Evaluation].Status)
		}
		if mend(); !bytes.Equal(v.read(name), before) {
			t.Errorf("%s was written again", name)
		}
	}
	// A page that was changed is not touched, even if there is no plan to judge.
	v := fresh()
	skilltest.Must(0, os.Remove(filepath.Join(v.dir, workspace.FilePlan)))
	v.replace("progress.md", "passed", "Passed")
	before := v.read("progress.md")
	if r, err := settle(v); err != nil || !slices.Equal(failing(r), []string{"pages", "plan"}) ||
		!bytes.Equal(v.read("progress.md"), before) {
		t.Errorf("%v, %q; the page is %.100q", err, failing(r), v.read("progress.md"))
	}
}

// A check that fails is a verdict, although the evaluator could not go on.
func TestRefusedWithoutAModel(t *testing.T) {
	ctx, dev, opts := context.Background(), skilltest.OpenCPU(t), small(t)
	path := filepath.Join(t.TempDir(), "m")
	skilltest.Must(0, os.CopyFS(path, os.DirFS(skilltest.Tiny("smollm-mha"))))
	accepted(t, path, opts)
	v := &victim{t: t, dir: opts.Dir}
	v.replace(workspace.FileThresholds, `"pearson": 0.99`, `"pearson": 0.90`)
	skilltest.Must(0, os.Rename(path, path+"-away"))
	r, err := Settle(ctx, opts.Dir, lend(dev), func(ctx context.Context, dir string) (EvaluationReport, error) {
		return Evaluate(ctx, dir, dev, nil)
	}, nil)
	if err != nil || r.OK || len(failing(r)) != 2 || failing(r)[0] != "thresholds file" ||
		planStatus(t, opts.Dir) != plan.Failed {
		t.Errorf("%v, %q, the plan is %s", err, failing(r), planStatus(t, opts.Dir))
	}
}

// After an evaluation that failed because of the files, the next deployment is evaluated again,
// even if it repairs them first.
func TestRefusedIsEvaluatedAgain(t *testing.T) {
	ctx, dev, path := context.Background(), skilltest.OpenCPU(t), skilltest.Tiny("smollm-mha")
	opts := small(t)
	accepted(t, path, opts)
	for name, change := range map[string]func(data []byte) []byte{
		workspace.FilePerformance: func(data []byte) []byte {
			return bytes.Replace(data, []byte(`"tokens_per_s": `), []byte(`"tokens_per_s": 9`), 1)
		},
		workspace.FileThresholds: func(data []byte) []byte {
			return append([]byte(`{"gain": 0.5,`),
				data[1:]...)
		}, // which a reader of the last of two would not see
		"progress.md": func(data []byte) []byte {
			return bytes.Replace(data, []byte("passed"),
				[]byte("Passed"), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &EvaluateOptions{Positions: 32, Repetitions: 3, written: true}
			v := &victim{t: t, dir: opts.Dir}
			before, right := v.read(journal.FileJournal), v.read(name)
			v.write(name, change(right))
			r, err := Settle(ctx, opts.Dir, lend(dev), func(ctx context.Context, dir string) (EvaluationReport, error) {
				return Evaluate(ctx, dir, dev, o)
			}, o)
			if err != nil || r.OK || planStatus(t, opts.Dir) != plan.Failed {
				t.Fatalf("%v, %q", err, failing(r))
			}
			if s := skilltest.Must(ReadState(opts.Dir)); s.Phases[Evaluation].Status != journal.Failed ||
				s.PlanStatus() != plan.Failed || !bytes.HasPrefix(v.read(journal.FileJournal), before) {
				t.Errorf("in the journal the evaluation is %s", s.Phases[Evaluation].Status)
			}
			if bytes.Equal(v.read(name), right) {
				t.Error("what was changed is gone")
			}
			asked := 0
			again := *opts
			again.Evaluate = agrees(&asked)
			d := deployment(t, path, dev, &again)
			if err := d.Run(ctx); err != nil || asked != 1 || d.State().PlanStatus() != plan.Accepted {
				t.Errorf("deployed again: %v, evaluated %d times", err, asked)
			}
			skilltest.Must(0, d.Close())
		})
	}
}

// Reading an empty journal is an error.
func TestEmptyJournal(t *testing.T) {
	dir := t.TempDir()
	skilltest.Must(0, os.WriteFile(filepath.Join(dir, journal.FileJournal), nil, 0o644))
	if s, err := ReadState(dir); s != nil || !errors.Is(err, journal.ErrJournal) || !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), journal.FileJournal) {
		t.Errorf("%v, %v", s, err)
	}
	empty := func(context.Context, string) (EvaluationReport, error) {
		return EvaluationReport{Checks: []journal.EvaluationCheck{{Name: "a test", OK: true, Detail: ""}}}, nil
	}
	if _, err := Settle(context.Background(), dir, lend(nil), empty, nil); !errors.Is(err, journal.ErrJournal) {
		t.Errorf("settled: %v", err)
	}
}
