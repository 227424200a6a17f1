package evaluate

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/skilltest"
)

// Notes are those of this user's evaluator about one subject, in order. Other lines, and all lines
// after them, are dropped.
func TestEvaluationNotes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "notes")
	steps := []string{"one", "two", "three"}
	n := skilltest.Must(openNotes(dir, [32]byte{1}))
	for _, s := range steps {
		skilltest.Must(0, n.add(note{Step: s, Checks: []journal.EvaluationCheck{{Name: "check " + s, OK: true,
			Detail: "well"}}}))
	}
	skilltest.Must(0, n.close(false))
	path := n.file.Name()
	right := skilltest.Must(os.ReadFile(path))
	lines := bytes.SplitAfter(right, []byte("\n"))
	key := skilltest.Must(os.ReadFile(filepath.Join(dir, fileNotesKey)))
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
		skilltest.Must(0, os.WriteFile(path, tc.data, 0o600))
		skilltest.Must(0, os.WriteFile(filepath.Join(dir, fileNotesKey), tc.key, 0o600))
		n := skilltest.Must(openNotes(dir, [32]byte{1}))
		if len(n.kept) != tc.want {
			t.Errorf("%s: %d notes are taken, want %d", name, len(n.kept), tc.want)
		}
		// New notes are read again after the notes that were kept.
		skilltest.Must(0, n.add(note{Step: "more"}))
		skilltest.Must(0, n.close(false))
		n = skilltest.Must(openNotes(dir, [32]byte{1}))
		if len(n.kept) != tc.want+1 {
			t.Errorf("%s: %d notes after one more, want %d", name, len(n.kept), tc.want+1)
		}
		skilltest.Must(0, n.close(false))
	}
	skilltest.Must(0, os.WriteFile(path, right, 0o600))
	other := skilltest.Must(openNotes(dir, [32]byte{2}))
	if len(other.kept) != 0 {
		t.Error("the notes of another subject are taken")
	}
	skilltest.Must(0, other.close(true))
	if list := skilltest.Must(filepath.Glob(filepath.Join(dir, "*"+notesExt))); len(list) != 1 {
		t.Errorf("with a verdict notes remain: %q", list)
	}
}
