package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/doctor"
)

// On a machine without an NPU, doctor explains on stdout what to do, and the exit code is 1.
func TestDoctor(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "proc", "cpuinfo"), []byte("model name\t: Test 9000\n"),
		0o666); err != nil {
		t.Fatal(err)
	}
	r := command("", "doctor", "--root", root)
	if r.code != 1 || !strings.Contains(r.out, "ok       processor") || !strings.Contains(r.out, "problem  NPU") ||
		!strings.Contains(r.out, "-> ") {
		t.Errorf("exit code %d, output:\n%s", r.code, r.out)
	}
	if !strings.Contains(r.stderr, "problem") {
		t.Errorf("stderr %q", r.stderr)
	}
	r = command("", "doctor", "--root", root, "--json")
	var got doctor.Report
	if err := json.Unmarshal([]byte(r.out), &got); err != nil || r.code != 1 || got.Problems() == 0 ||
		got.Findings[0].Text != "Test 9000" {
		t.Errorf("exit code %d, %v, %+v", r.code, err, got)
	}
	if r := command("", "doctor", "--root", root, "--smoke"); r.code != 2 {
		t.Errorf("files of another machine and this one's NPU together: exit code %d", r.code)
	}
	for _, path := range []string{filepath.Join(root, "nowhere"), filepath.Join(root, "proc", "cpuinfo")} {
		if r := command("", "doctor", "--root", path); r.code != 1 || r.out != "" ||
			!strings.Contains(r.stderr, "--root: ") || !strings.Contains(r.stderr, path) {
			t.Errorf("the files of %s: exit code %d, output %q, stderr %q", path, r.code, r.out, r.stderr)
		}
	}
	if r := command("", "doctor", "something"); r.code != 2 {
		t.Errorf("an unexpected argument: exit code %d", r.code)
	}
}
