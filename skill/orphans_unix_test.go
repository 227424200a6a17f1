//go:build unix

package skill

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/internal/childproc/orphantest"
)

// kill -9 of a deployment ends its evaluator, even one that hangs, and its agent with what that has
// started.
func TestChildrenEndWithTheirParent(t *testing.T) {
	for what, processes := range map[string]int{"evaluator": 1, "agent": 2} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pids")
			parent := exec.Command(must(os.Executable()))
			parent.Env = append(os.Environ(), orphanMode+"="+what+" "+file)
			must(0, parent.Start())
			pids := orphantest.PIDs(t, file, processes)
			must(0, parent.Process.Kill())
			_ = parent.Wait() // killed
			orphantest.Gone(t, pids...)
		})
	}
}
