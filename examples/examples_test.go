// Package examples tests the programs in the folders beside it: they are built, and run as a user would run them.
package examples

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
)

func TestExamples(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "./generate", "./chat").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	example := func(name, stdin string, args ...string) (stdout, stderr string, err error) {
		var out, errs strings.Builder
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
		err = cmd.Run()
		return out.String(), errs.String(), err
	}
	t.Run("generate", func(t *testing.T) {
		out, stderr, err := example("generate", "", testenv.DemoModel(t), "The capital of France is")
		if err != nil || !strings.Contains(out, "Paris") {
			t.Errorf("%v: stdout %q, stderr %q", err, out, stderr)
		}
	})
	t.Run("chat", func(t *testing.T) { // the second question means nothing without the first
		out, stderr, err := example("chat", "What is the capital of France?\nAnd of Italy?\n", testenv.DemoModel(t))
		answers := strings.Split(out, "> ")
		if err != nil || len(answers) != 4 || !strings.Contains(answers[1], "Paris") || !strings.Contains(answers[2], "Rome") {
			t.Errorf("%v: stdout %q, stderr %q", err, out, stderr)
		}
	})
	base := filepath.Join(testenv.Root(), "testdata", "tiny-models", "qwen2-bias") // no tokenizer, no template
	for _, tc := range []struct {
		mistake, name, says string
		args                []string
	}{
		{"no arguments", "generate", "usage", nil},
		{"no arguments", "chat", "usage", nil},
		{"no model", "generate", "nosuch", []string{"nosuch", "Hello"}},
		{"no model", "chat", "nosuch", []string{"nosuch"}},
		{"no tokenizer", "generate", "tokenizer.json", []string{base, "Hello"}},
	} {
		t.Run(tc.name+" with "+tc.mistake, func(t *testing.T) {
			if out, stderr, err := example(tc.name, "", tc.args...); err == nil || !strings.Contains(stderr, tc.says) {
				t.Errorf("%v: stdout %q, stderr %q, want an error that says %q", err, out, stderr, tc.says)
			}
		})
	}
}
