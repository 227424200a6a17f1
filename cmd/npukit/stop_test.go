package main

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model"
)

// stale writes a model that answers "hi" and then <|im_end|>, while its config.json names another
// end token.
func stale(t *testing.T) (path string, c ckptgen.Chain) {
	t.Helper()
	c = ckptgen.Chain{
		Control:    []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
		Says:       [][]string{{"x", "h", "i", "<|im_end|>", "u", "s", "e", "r", "<|endoftext|>"}, {"\n", "h"}},
		Config:     map[string]any{"eos_token_id": 0},
		Generation: `{"top_k": -2, "temperature": "0.7"}`,
		TokenizerConfig: map[string]any{
			"eos_token": "<|im_end|>",
			"chat_template": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content " +
				"}}<|im_end|>\n{% endfor %}" +
				"<|im_start|>assistant{{ '\n' }}",
		},
	}
	path = filepath.Join(t.TempDir(), "stale")
	if err := c.Write(path); err != nil {
		t.Fatal(err)
	}
	return path, c
}

// run and chat end an answer at end tokens, strings and ids, and run prints the reason.
func TestStops(t *testing.T) {
	m, c := stale(t)
	for _, tc := range []struct {
		args   string
		text   string
		reason model.StopReason
	}{
		{"", "hi", model.StopEOS},
		{"--ignore-eos -n 7", "hiuser", model.StopLength},
		{"--stop <|im_end|>", "hi", model.StopString},
		{"--ignore-eos --stop <|im_end|>", "hi", model.StopString},
		{"--stop-id 2", "hi", model.StopString},
		{"--ignore-eos --stop nothing --stop s --stop-id 0", "hiu", model.StopString},
		{"--ignore-eos --stop-id 1,0 -n 20", "hiuser", model.StopString},
		{"--read-weights", "hi", model.StopEOS},
	} {
		args := append([]string{"run", m, "--raw", "--temp", "0", "--json", "x"}, strings.Fields(tc.args)...)
		got := parse[runResult](t, succeed(t, "", args...))
		if got.Text != tc.text || got.StopReason != tc.reason {
			t.Errorf("run %s: %q (%s), want %q (%s)", tc.args, got.Text, got.StopReason, tc.text, tc.reason)
		}
	}
	for args, want := range map[string]string{
		"": "hi\n", fmt.Sprintf("--stop-id %d", c.ID("i")): "h\n", "--stop i": "h\n",
		"--ignore-eos --stop er": "hius\n",
	} {
		if got := succeed(t, "hello\n", append([]string{"chat", m, "--temp", "0"},
			strings.Fields(args)...)...); got != want {
			t.Errorf("chat %s: %q, want %q", args, got, want)
		}
	}
}

// info lists the tokens that end an answer with their source, and settings that are read
// differently from the file.
func TestInfoEndTokens(t *testing.T) {
	m, _ := stale(t)
	got := parse[modelInfo](t, succeed(t, "", "info", m, "--json"))
	want := []model.EndToken{
		{ID: 0, Text: "<|endoftext|>", Origins: []string{"config.json", "token text"}},
		{ID: 2, Text: "<|im_end|>", Origins: []string{"tokenizer_config.json", "token text"}},
	}
	if !reflect.DeepEqual(got.EndTokens, want) {
		t.Errorf("end tokens %v, want %v", got.EndTokens, want)
	}
	if len(got.Warnings) != 2 || !strings.Contains(got.Warnings[1], "top_k is -2: read as 0") {
		t.Errorf("warnings %q", got.Warnings)
	}
	text := succeed(t, "", "info", m)
	for _, line := range []string{
		`end tokens    0 "<|endoftext|>" (config.json, token text); 2 "<|im_end|>" (tokenizer_config.json, token text)`,
		`warnings      generation_config.json: temperature is "0.7": read as the number 0.7`,
		`              generation_config.json: top_k is -2: read as 0, which keeps every token`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("info lacks the line %q:\n%s", line, text)
		}
	}
	bare := parse[modelInfo](t, succeed(t, "", "info", tiny("smollm-mha"), "--json"))
	if bare.Warnings == nil || len(bare.Warnings) != 0 || len(bare.EndTokens) != 1 || bare.EndTokens[0].Text != "" {
		t.Errorf("without a tokenizer: %v, %q", bare.EndTokens, bare.Warnings)
	}
}
