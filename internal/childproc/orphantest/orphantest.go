//go:build unix

// Package orphantest helps tests that kill a process and look for the processes that it has left.
package orphantest

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// PIDs waits for a file with one line of n process ids.
func PIDs(t testing.TB, file string, n int) []int {
	t.Helper()
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
		data, err := os.ReadFile(file)
		if err != nil || !bytes.HasSuffix(data, []byte("\n")) {
			continue
		}
		var pids []int
		for _, f := range strings.Fields(string(data)) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
		if len(pids) != n {
			t.Fatalf("%q, want %d process ids", data, n)
		}
		return pids
	}
	t.Fatalf("%s was not written", file)
	return nil
}

// Gone waits for processes to end.
func Gone(t testing.TB, pids ...int) {
	t.Helper()
	for _, pid := range pids {
		for began := time.Now(); Lives(pid); time.Sleep(10 * time.Millisecond) {
			if time.Since(began) > time.Minute {
				_ = syscall.Kill(pid, syscall.SIGKILL) // best effort: the test has failed
				t.Fatalf("process %d lives on", pid)
			}
		}
	}
}

// Lives reports whether a process runs. A zombie that nobody has waited for does not.
func Lives(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true // no /proc here
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(rest, "Z")
}
