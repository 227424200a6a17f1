package childproc

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"
)

// TestMain is also the processes that tests kill: a parent that runs a command, and a child that
// ends with its parent.
func TestMain(m *testing.M) {
	if script := os.Getenv("CHILDPROC_TEST_RUN"); script != "" {
		if err := Run(exec.CommandContext(context.Background(), shellOfTests, "-c", script)); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	if how := os.Getenv("CHILDPROC_TEST_CHILD"); how != "" {
		ExitWithParent(os.Stdin, func() {
			if how == "obeys" {
				os.Exit(0)
			}
		}, 50*time.Millisecond)
		time.Sleep(time.Hour)
	}
	os.Exit(m.Run())
}

// A process ends when its parent's end of the pipe is closed, also if it does not stop when asked.
func TestExitWithParent(t *testing.T) {
	for how, code := range map[string]int{"obeys": 0, "hangs": exitOrphaned} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "CHILDPROC_TEST_CHILD="+how)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write([]byte("anything")); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // the exit code says how it ended
			close(ended)
		}()
		select {
		case <-ended:
			t.Fatalf("%s: it ended while its parent lived: %v", how, cmd.ProcessState)
		case <-time.After(200 * time.Millisecond):
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatalf("%s: it outlives its parent", how)
		}
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%s: exit code %d, want %d", how, got, code)
		}
	}
}
