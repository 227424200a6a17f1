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
)

// Notes are those of this user's evaluator about one subject, in their order: whatever else is there
// counts as not written, with all behind it.
func TestEvaluationNotes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "notes")
	steps := []string{"one", "two", "three"}
	n := must(openNotes(dir, [32]byte{1}))
	for _, s := range steps {
		must(0, n.add(evaluationNote{Step: s, Checks: []EvaluationCheck{{"check " + s, true, "well"}}}))
	}
	must(0, n.close(false))
	path := n.file.Name()
	right := must(os.ReadFile(path))
	lines := bytes.SplitAfter(right, []byte("\n"))
	key := must(os.ReadFile(filepath.Join(dir, fileNotesKey)))
	for name, tc := range map[string]struct {
		data []byte
		key  []byte
		want int
	}{
		"as they are":           {right, key, 3},
		"cut":                   {right[:len(right)-5], key, 2},
		"a line changed":        {bytes.Replace(right, []byte("check two"), []byte("check 222"), 1), key, 1},
		"a line left out":       {bytes.Join([][]byte{lines[0], lines[2]}, nil), key, 1},
		"lines in other order":  {bytes.Join([][]byte{lines[1], lines[0], lines[2]}, nil), key, 0},
		"a line in front":       {append([]byte("{}\n"), right...), key, 0},
		"the key of another":    {right, bytes.Repeat([]byte{7}, notesKeySize), 0},
		"of another subject":    {nil, key, 0},
		"no notes and no lines": {[]byte("\n\n"), key, 0},
	} {
		must(0, os.WriteFile(path, tc.data, 0o600))
		must(0, os.WriteFile(filepath.Join(dir, fileNotesKey), tc.key, 0o600))
		n := must(openNotes(dir, [32]byte{1}))
		if len(n.kept) != tc.want {
			t.Errorf("%s: %d notes are taken, want %d", name, len(n.kept), tc.want)
		}
		// What is added now is read again behind what was taken.
		must(0, n.add(evaluationNote{Step: "more"}))
		must(0, n.close(false))
		n = must(openNotes(dir, [32]byte{1}))
		if len(n.kept) != tc.want+1 {
			t.Errorf("%s: %d notes after one more, want %d", name, len(n.kept), tc.want+1)
		}
		must(0, n.close(false))
	}
	must(0, os.WriteFile(path, right, 0o600))
	other := must(openNotes(dir, [32]byte{2}))
	if len(other.kept) != 0 {
		t.Error("the notes of another subject are taken")
	}
	must(0, other.close(true))
	if list := must(filepath.Glob(filepath.Join(dir, "*"+notesExt))); len(list) != 1 {
		t.Errorf("with a verdict notes remain: %q", list)
	}
}

// An evaluation that was interrupted goes on where it was, comes to the same verdict, and takes nothing
// from its notes when the plan has changed since.
func TestEvaluationGoesOn(t *testing.T) {
	fresh := deployed(t)
	v, dev := fresh(t), openCPU(t)
	notes := t.TempDir()
	evaluate := func(v *victim, after int) (EvaluationReport, []string, error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var steps []string
		opts := loose()
		opts.Model, opts.Golden, opts.Notes = v.model, filepath.Join(v.model, "golden.safetensors"), notes
		opts.Observe = func(e Event) {
			if name, ok := strings.CutPrefix(e.Text, "gate "); ok && !strings.Contains(name, "holds") {
				steps = append(steps, name)
			}
			if strings.HasPrefix(e.Text, "control") && !strings.Contains(e.Text, "holds") {
				steps = append(steps, e.Text)
			}
			if len(steps) == after {
				cancel()
			}
		}
		r, err := Evaluate(ctx, v.dir, dev, opts)
		return r, steps, err
	}
	whole, all, err := evaluate(v, -1)
	if err != nil || !whole.OK {
		t.Fatalf("%v, %q", err, failing(whole))
	}
	done := 0
	for _, after := range []int{len(all) / 3, len(all) / 3} {
		_, steps, err := evaluate(v, after)
		if !errors.Is(err, context.Canceled) || len(steps) != after {
			t.Fatalf("interrupted: %v, %d steps", err, len(steps))
		}
		done += after - 1 // all but the one that was interrupted
	}
	r, steps, err := evaluate(v, -1)
	if err != nil || !r.OK || len(steps) > len(all)-done+6 { // a kind of kernel is a step with all its controls
		t.Errorf("%v, %q; %d steps of %d, and %d were done", err, failing(r), len(steps), len(all), done)
	}
	names := func(r EvaluationReport) (list []string) {
		for _, c := range r.Checks {
			list = append(list, c.Name)
		}
		return list
	}
	if !slices.Equal(names(r), names(whole)) {
		t.Errorf("its checks are %q, want %q", names(r), names(whole))
	}
	if list := must(filepath.Glob(filepath.Join(notes, "*"+notesExt))); len(list) > 0 {
		t.Errorf("with a verdict notes remain: %q", list)
	}
	if _, steps, err := evaluate(v, len(all)/2); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v, %d steps", err, len(steps))
	}
	v.swapPlan(wrongLayer(t))
	r, steps, err = evaluate(v, -1)
	if err != nil || r.OK || len(steps) == 0 || !slices.Contains(steps, all[0]) {
		t.Errorf("a swapped plan: %v, accepted %v, %q", err, r.OK, steps)
	}
}
