// Package examples tests the programs in the folders beside it: they are built, and run as a user
// would run them.
package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
)

func TestExamples(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "./generate", "./chat", "./estimate",
		"./customprogram").CombinedOutput(); err != nil {
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
		if err != nil || len(answers) != 4 || !strings.Contains(answers[1], "Paris") || !strings.Contains(answers[2],
			"Rome") {
			t.Errorf("%v: stdout %q, stderr %q", err, out, stderr)
		}
	})
	t.Run("estimate", func(t *testing.T) {
		out, stderr, err := example("estimate", "", writeConfig(t))
		if err != nil || !strings.Contains(out, "not measured") || strings.Count(out, "tokens/s") != 11 {
			t.Errorf("%v: stdout %q, stderr %q", err, out, stderr)
		}
	})
	t.Run("customprogram", func(t *testing.T) {
		out, stderr, err := example("customprogram", "")
		for _, want := range []string{"R-L1-4", "what would fit: tile_m 32 instead of 64",
			"fits: 3 launches in one dispatch", "y[0] begins with"} {
			if err != nil || !strings.Contains(out, want) {
				t.Fatalf("%v: stdout %q, stderr %q, want %q", err, out, stderr, want)
			}
		}
	})
	for name, args := range map[string]func(t *testing.T) []string{
		"generate":      func(t *testing.T) []string { return []string{testenv.DemoModel(t), "Hello"} },
		"chat":          func(t *testing.T) []string { return []string{testenv.DemoModel(t)} },
		"estimate":      func(t *testing.T) []string { return []string{writeConfig(t)} },
		"customprogram": func(*testing.T) []string { return nil },
	} {
		t.Run(name+" on a full disk", func(t *testing.T) {
			full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Skipf("needs /dev/full: %v", err)
			}
			defer full.Close()
			var stderr strings.Builder
			cmd := exec.Command(filepath.Join(bin, name), args(t)...)
			cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("Hello\n"), full, &stderr
			if err := cmd.Run(); err == nil || !strings.Contains(stderr.String(), "no space left") {
				t.Errorf("%v, stderr %q", err, stderr.String())
			}
		})
	}
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

// writeConfig writes a config.json of Qwen3-0.6B.
func writeConfig(t *testing.T) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.json")
	text := `{"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16,
		"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072,
		"vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "hidden_act": "silu",
		"rope_theta": 1000000, "tie_word_embeddings": true}`
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return config
}
