//go:build unix

package childproc

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/childproc/orphantest"
)

const shellOfTests = shell

// A command's result, output and error are those of exec.Cmd.Run.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), shell, "-c", "read -r x; echo got $x; exit 7")
	cmd.Stdin, cmd.Stdout = strings.NewReader("it\n"), &out
	var exit *exec.ExitError
	if err := Run(cmd); !errors.As(err, &exit) || exit.ExitCode() != 7 || out.String() != "got it\n" {
		t.Errorf("%v, %q", err, out.String())
	}
	if err := Run(exec.CommandContext(t.Context(), "/no/such/command")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no command: %v", err)
	}
}

// What a command leaves behind, holding its output open, is killed and is no error.
func TestLeftBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), shell, "-c", "sleep 1000 & echo $! >"+file)
	cmd.Stdout, cmd.WaitDelay = &out, 100*time.Millisecond
	if err := Run(cmd); err != nil {
		t.Error(err)
	}
	orphantest.Gone(t, orphantest.PIDs(t, file, 1)...)
}

// The end of the context ends the command with its children.
func TestCancel(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error)
	go func() {
		done <- Run(exec.CommandContext(ctx, shell, "-c", "sleep 1000 & echo $$ $! >"+file+"; wait"))
	}()
	pids := orphantest.PIDs(t, file, 2)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) && err == nil {
		t.Errorf("%v", err)
	}
	orphantest.Gone(t, pids...)
}

// kill -9 of a process ends the command that it runs, with the command's children.
func TestKilledParent(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), "CHILDPROC_TEST_RUN=sleep 1000 & echo $$ $! $PPID >"+file+"; wait")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	pids := orphantest.PIDs(t, file, 3)
	if pids[2] != parent.Process.Pid {
		t.Fatalf("the command's parent is %d, want %d", pids[2], parent.Process.Pid)
	}
	for _, pid := range pids {
		if !orphantest.Lives(pid) {
			t.Fatalf("process %d has ended already", pid)
		}
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed
	orphantest.Gone(t, pids[:2]...)
}
