//go:build unix

package readfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A named pipe without a writer is an error at once, also through a link, or if it replaces the
// file between the check and the opening.
func TestNamedPipe(t *testing.T) {
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for _, path := range []string{pipe, link} {
		go func() {
			_, err := Regular(path, 100)
			done <- err
		}()
		select {
		case err := <-done:
			if !errors.Is(err, ErrNotRegular) || !strings.Contains(err.Error(), "a named pipe") {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("reading %s hangs", path)
		}
	}
	go func() {
		f, err := open(pipe)
		if err == nil {
			err = f.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("opening a pipe hangs")
	}
}
