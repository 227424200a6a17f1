//go:build unix

package xdna

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/childproc/orphantest"
)

// Killing a process with kill -9 ends its compiler and all that the compiler started. The next
// compilation removes the temporary files in the cache.
func TestCompilerEndsWithItsParent(t *testing.T) {
	c, _ := compiler(t, "works")
	self := c.Command[0]
	parent := exec.Command(self)
	file := filepath.Join(c.Cache, "pids")
	parent.Env = append(os.Environ(), compilerMode+"=", compilerParent+"="+file)
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	pids := orphantest.PIDs(t, file, 2)
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed
	orphantest.Gone(t, pids...)
	hidden := func() (names []string) {
		entries, err := os.ReadDir(c.Cache)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".") {
				names = append(names, e.Name())
			}
		}
		return names
	}
	if n := len(hidden()); n != 1 {
		t.Errorf("the killed process left %d folders, want 1", n)
	}
	if _, err := c.artefact(context.Background(), addProgram("add")); err != nil {
		t.Error(err)
	}
	if left := hidden(); len(left) > 0 {
		t.Errorf("left in the cache: %q", left)
	}
}
