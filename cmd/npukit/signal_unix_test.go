//go:build unix

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/output"
)

// patient is the timeout for events that should take 100 ms: machines that run tests are busy.
const patient = 3 * time.Second

// Ctrl-C in every stage ends the command quickly with exit code 130, no partial files and no
// output.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	chatty := chatty(t)
	// The model is slow enough to be interrupted in each stage.
	slow := filepath.Join(dir, "slow")
	err := ckptgen.Write(slow, ckptgen.Spec{Family: "llama", Layers: 4, Hidden: 512, Heads: 8, FFN: 2048, Vocab: 512,
		Context: 1 << 20, Tie: true}, 1)
	if err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(dir, "trace.json")
	for _, tc := range []struct {
		name  string
		args  []string
		stdin io.Reader // nil is a pipe that stays open and silent
		after int       // bytes of stdout to wait for; 0 waits for a fixed time
	}{
		{"reading the prompt", []string{"run", chatty, "-"}, nil, 0},
		{"tokenizing", []string{"tokenize", chatty, "-"}, bytes.NewReader(bytes.Repeat([]byte("word "), 40<<20)), 0},
		{"prefill", []string{"run", slow, "--ids", strings.Repeat("1,", 30000) + "2", "--json"}, nil, 0},
		{"decode", []string{"run", slow, "--ids", "1,2,3", "--ignore-eos", "--trace", trace}, nil, 20},
		{"bench", []string{"bench", slow, "--pp", "8192", "--json"}, nil, 0},
		{"chat, waiting for a message", []string{"chat", chatty}, nil, 0},
		{"chat, answering", []string{"chat", chatty, "--ignore-eos"}, strings.NewReader("Hello\n"), 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := process(t, tc.args...)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if cmd.Stdin = tc.stdin; tc.stdin == nil {
				silent, keep, err := os.Pipe()
				if err != nil {
					t.Fatal(err)
				}
				defer silent.Close()
				defer keep.Close()
				cmd.Stdin = silent
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			if _, err := io.ReadFull(out, make([]byte, tc.after)); err != nil {
				t.Fatalf("%v; stderr: %s", err, stderr.String())
			}
			if tc.after == 0 {
				time.Sleep(500 * time.Millisecond)
			}
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			sent := time.Now()
			if tc.after > 0 {
				go io.Copy(io.Discard, out)
			}
			state, err := cmd.Process.Wait()
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(sent)
			t.Logf("ended after %v", took)
			if state.ExitCode() != 130 || took > patient {
				t.Errorf("exit code %d after %v, want 130 within 100 ms", state.ExitCode(), took)
			}
			if tc.after == 0 {
				if rest, _ := io.ReadAll(out); len(rest) > 0 {
					t.Errorf("stdout %.80q, want nothing", rest)
				}
			}
		})
	}
	left, err := filepath.Glob(filepath.Join(dir, "*trace*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// If the reader closes the pipe, the command ends without a message.
func TestBrokenPipe(t *testing.T) {
	cmd := process(t, "run", chatty(t), "Hello", "--ignore-eos")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	out.Close()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(10 * patient):
		t.Fatal("the command still runs")
	}
	if stderr.Len() > 0 {
		t.Errorf("stderr %q, want nothing", stderr.String())
	}
}

// The device's threads leave one P for other goroutines.
func TestGOMAXPROCS(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	succeed(t, "", "devices", "--threads", "2")
	if got := runtime.GOMAXPROCS(0); got != 3 {
		t.Errorf("GOMAXPROCS is %d with 2 threads, want 3", got)
	}
}

// Output to a pipe or a device writes into it and never replaces it: as root, a rename over
// /dev/null would persist.
func TestWriteFileIntoAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := os.OpenFile(pipe, os.O_RDWR, 0) // neither side blocks on open
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := output.File(pipe, []byte("text")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(pipe); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Fatalf("the pipe is replaced: %v, %v", info, err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(r, got); err != nil || string(got) != "text" {
		t.Errorf("the pipe has %q, %v", got, err)
	}
}
