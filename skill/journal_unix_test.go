//go:build unix

package skill

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/skilltest"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// A file that cannot be a journal is refused at once: a pipe, from which a read would not return,
// and a file that does not fit into memory.
func TestNoJournal(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"is not a regular file": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"has at most": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, journal.FileJournal)
		if err := put(path); err != nil {
			t.Skip(err)
		}
		if _, err := ReadState(dir); !errors.Is(err, journal.ErrJournal) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := journal.Open(path); !errors.Is(err, journal.ErrJournal) || !strings.Contains(err.Error(),
			name) {
			t.Errorf("%s, to write to: %v", name, err)
		}
	}
}

// A pipe in place of a derived file is replaced, and one in place of the plan is not a plan.
// Neither is read.
func TestPipesAreNotRead(t *testing.T) {
	w, err := workspace.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	path := w.Path(workspace.FilePlan)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err)
	}
	if err := markFailed(path); err != nil {
		t.Error(err)
	}
	err = w.Put(workspace.FilePlan, []byte("{}\n"))
	if err != nil || string(skilltest.Must(os.ReadFile(path))) != "{}\n" {
		t.Error(err)
	}
}
