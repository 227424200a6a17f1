//go:build unix

package skill

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// What lies in a journal's place and is none is refused by whoever reads it, at once: a pipe, of which nothing would ever come, and more than fits into memory.
func TestNoJournal(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"is no regular file": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"at most are written": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, FileJournal)
		if err := put(path); err != nil {
			t.Skip(err)
		}
		if _, err := ReadState(dir); !errors.Is(err, ErrJournal) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if _, _, err := openJournal(path); !errors.Is(err, ErrJournal) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s, to write to: %v", name, err)
		}
	}
}
