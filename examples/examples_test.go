// Package examples tests the programs in the folders beside it: each is built and run as a user would.
package examples

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
)

// example builds an example and runs it.
func example(t *testing.T, name, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", bin, "./"+name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var out, errs strings.Builder
	cmd := exec.Command(bin, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func TestGenerate(t *testing.T) {
	out, stderr, err := example(t, "generate", "", testenv.DemoModel(t), "The capital of France is")
	if err != nil || !strings.Contains(out, "Paris") {
		t.Errorf("%v: stdout %q, stderr %q", err, out, stderr)
	}
}

// The second question means nothing without the first.
func TestChat(t *testing.T) {
	out, stderr, err := example(t, "chat", "What is the capital of France?\nAnd of Italy?\n", testenv.DemoModel(t))
	answers := strings.Split(out, "> ")
	if err != nil || len(answers) != 4 || !strings.Contains(answers[1], "Paris") || !strings.Contains(answers[2], "Rome") {
		t.Errorf("%v: stdout %q, stderr %q", err, out, stderr)
	}
}

// What cannot work is said, and the exit code tells.
func TestMistakes(t *testing.T) {
	base := filepath.Join(testenv.Root(), "testdata", "tiny-models", "qwen2-bias") // no tokenizer, no template
	for _, tc := range []struct {
		name, stdin, says string
		args              []string
	}{
		{"generate", "", "usage", nil},
		{"chat", "", "usage", nil},
		{"generate", "", "nosuch", []string{"nosuch", "Hello"}},
		{"chat", "", "nosuch", []string{"nosuch"}},
		{"generate", "", "tokenizer.json", []string{base, "Hello"}},
	} {
		if out, stderr, err := example(t, tc.name, tc.stdin, tc.args...); err == nil || !strings.Contains(stderr, tc.says) {
			t.Errorf("%s %v: %v, stdout %q, stderr %q, want %q there", tc.name, tc.args, err, out, stderr, tc.says)
		}
	}
}
