package model

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/chat"
	"github.com/npukit/npukit/npu/cpu"
)

// chatML are the control tokens of SmolLM and Qwen, in SmolLM's order.
var chatML = []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>"}

// llama3 are those of Llama 3.
var llama3 = []string{"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"}

// saysHi is a chain of "hi", a token that should end the answer, "user", and the token after that.
func saysHi(end, after string) [][]string {
	return [][]string{{"x", "h", "i", end, "u", "s", "e", "r", after}}
}

// openChain opens a chain as a folder, or as a GGUF file if it has metadata.
func openChain(t testing.TB, c ckptgen.Chain) *Model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "chain")
	write := c.Write
	if c.Meta != nil {
		path += ".gguf"
		write = c.WriteGGUF
	}
	if err := write(path); err != nil {
		t.Fatal(err)
	}
	return open(t, path, "", nil)
}

// Answers end at the tokens that the files name, and at control tokens with well-known texts. Each
// case was a public bug report about a model with contradictory or outdated files.
func TestEndTokens(t *testing.T) {
	const (
		bos = "tokenizer.ggml.bos_token_id"
		eos = "tokenizer.ggml.eos_token_id"
		eot = "tokenizer.ggml.eot_token_id"
	)
	gguf := func(pre, key string, id uint32) []ckptgen.KV {
		return []ckptgen.KV{{Key: "tokenizer.ggml.pre", Value: pre}, {Key: key, Value: id}}
	}
	toEOT, toEOM := saysHi("<|eot_id|>", "<|end_of_text|>"), saysHi("<|eom_id|>", "<|end_of_text|>")
	toEnd, toText := saysHi("<|im_end|>", "<|endoftext|>"), saysHi("<|endoftext|>", "<|im_end|>")
	type fields = map[string]any
	for _, tc := range []struct {
		name  string
		chain ckptgen.Chain
		ends  []EndToken // nil: not compared
	}{
		{
			"GGUF, eos right", ckptgen.Chain{Control: llama3, Says: toEOT, Meta: gguf("llama-bpe", eos, 2)},
			[]EndToken{
				{2, "<|eot_id|>", []string{eos, originText}},
				{3, "<|eom_id|>", []string{originText}},
				{1, "<|end_of_text|>", []string{originText}},
			},
		},
		{"GGUF, eos stale", ckptgen.Chain{Control: llama3, Says: toEOT, Meta: gguf("llama-bpe", eos, 1)}, nil},
		{"GGUF, eom", ckptgen.Chain{Control: llama3, Says: toEOM, Meta: gguf("llama-bpe", eos, 2)}, nil},
		{"GGUF, eos missing", ckptgen.Chain{Control: llama3, Says: toEOT, Meta: gguf("llama-bpe", bos, 0)}, nil},
		{"GGUF, Qwen stale", ckptgen.Chain{Control: chatML, Says: toEnd, Meta: gguf("qwen2", eos, 0)}, nil},
		{"GGUF, Qwen ends as a base model",
			ckptgen.Chain{Control: chatML, Says: toText, Meta: gguf("qwen2", eos, 2)}, nil},
		{
			"GGUF, a key of its own",
			ckptgen.Chain{Control: []string{"<stop>"}, Says: saysHi("<stop>", "."), Meta: gguf("gpt-2", eot, 0)},
			[]EndToken{{0, "<stop>", []string{eot}}},
		},
		{
			"config.json stale",
			ckptgen.Chain{Control: chatML, Says: toEnd, Config: fields{"eos_token_id": 0},
				TokenizerConfig: fields{"eos_token": "<|im_end|>"}},
			[]EndToken{
				{0, "<|endoftext|>", []string{"config.json", originText}},
				{2, "<|im_end|>", []string{"tokenizer_config.json", originText}},
			},
		},
		{
			"generation_config.json stale",
			ckptgen.Chain{Control: chatML, Says: toEnd, Config: fields{"eos_token_id": 2},
				Generation: fields{"eos_token_id": 0}},
			[]EndToken{
				{0, "<|endoftext|>", []string{"generation_config.json", originText}},
				{2, "<|im_end|>", []string{"config.json", originText}},
			},
		},
		{
			"a list",
			ckptgen.Chain{Control: []string{"<a>", "<b>"}, Says: saysHi("<b>", "<a>"),
				Generation: fields{"eos_token_id": []int{0, 1}}},
			nil,
		},
		{
			"tokenizer_config.json alone",
			ckptgen.Chain{Control: []string{"<stop>"}, Says: saysHi("<stop>", "."),
				TokenizerConfig: fields{"eos_token": fields{"content": "<stop>"}}},
			[]EndToken{{0, "<stop>", []string{"tokenizer_config.json"}}},
		},
		{
			"an added token that is text",
			ckptgen.Chain{Added: []string{"<|im_end|>"}, Says: saysHi("<|im_end|>", ".")},
			[]EndToken{{0, "<|im_end|>", []string{originText}}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := openChain(t, tc.chain)
			got, err := m.Complete(t.Context(), Text("x"),
				&GenerateOptions{MaxTokens: 40, Sampling: &Sampling{}})
			end := tc.chain.Says[0][3]
			want := tc.chain.IDs("h", "i", end)
			if err != nil || got.Text != "hi" || got.Stats.Reason != StopEOS ||
				!slices.Equal(got.Tokens, want) {
				t.Errorf("%q (%s, %v, %v), want \"hi\", which ends at %s", got.Text,
					got.Stats.Reason, got.Tokens, err, end)
			}
			if ends := EndTokens(m.ck, m.tok); tc.ends != nil && !reflect.DeepEqual(ends, tc.ends) {
				t.Errorf("end tokens %v, want %v", ends, tc.ends)
			}
			past := &GenerateOptions{MaxTokens: 7, IgnoreEOS: true, Sampling: &Sampling{}}
			got, err = m.Complete(t.Context(), Text("x"), past)
			if text := strings.ReplaceAll(got.Text, end, ""); err != nil || text != "hiuser" ||
				got.Stats.Reason != StopLength {
				t.Errorf("past the end: %q (%s, %v), want \"hiuser\"", got.Text, got.Stats.Reason, err)
			}
		})
	}
}

// Text that only looks like an end token is text.
func TestNotEndTokens(t *testing.T) {
	for name, c := range map[string]ckptgen.Chain{
		"a word of the vocabulary": {Words: []string{"<|im_end|>"}, Says: saysHi("<|im_end|>", ".")},
		"gpt-oss's end of a message": {Control: []string{"<|end|>", "<|return|>"},
			Says: saysHi("<|end|>", "<|return|>")},
		"another control token": {Control: []string{"<|python_tag|>"}, Says: saysHi("<|python_tag|>", ".")},
	} {
		m := openChain(t, c)
		got, err := m.Complete(t.Context(), Text("x"),
			&GenerateOptions{MaxTokens: 7, Sampling: &Sampling{}})
		want := "hiuser"
		if c.Words != nil {
			want = "hi<|im_end|>user"
		}
		if err != nil || got.Text != want {
			t.Errorf("%s: %q, %v, want %q", name, got.Text, err, want)
		}
	}
}

// Early conversions of instruct models name the base model's end token. The demo model with such a
// file ends its answer at the same token as with its own.
func TestStaleEndOfDemoModel(t *testing.T) {
	data, err := os.ReadFile(testenv.DemoModel(t))
	if err != nil {
		t.Fatal(err)
	}
	key := append([]byte("tokenizer.ggml.eos_token_id"), 4, 0, 0, 0) // a uint32
	at := bytes.Index(data, key) + len(key)
	if at < len(key) || data[at] != 2 {
		t.Fatal("the model's end token is not where it should be")
	}
	data[at] = 0
	path := filepath.Join(t.TempDir(), "stale.gguf")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	m := open(t, path, "", nil)
	messages := []chat.Message{{Role: "user", Content: "What is the capital of France?"}}
	opts := &GenerateOptions{MaxTokens: 200, Sampling: &Sampling{}}
	got, err := m.Complete(t.Context(), Messages(messages, nil), opts)
	if err != nil || len(got.Tokens) != 8 || got.Stats.Reason != StopEOS ||
		!strings.Contains(got.Text, "Paris") {
		t.Errorf("%+v, %v, want 8 tokens and the end", got, err)
	}
}

// A stop string that is a special token stops at the token, because the stream has no text for it.
// So does one that is an end token, and the reason is StopString.
func TestStopAtTokens(t *testing.T) {
	c := ckptgen.Chain{Control: append([]string{"<|python_tag|>"}, chatML...), Added: []string{"<think>"},
		Says: [][]string{
			{"x", "h", "<|python_tag|>", "i", "<think>", "j", "<|im_end|>", "u", "<|endoftext|>"},
		}}
	m := openChain(t, c)
	for _, tc := range []struct {
		name   string
		opts   GenerateOptions
		text   string
		tokens int
		reason StopReason
	}{
		{"nothing", GenerateOptions{}, "hi<think>j", 6, StopEOS},
		{"a special token", GenerateOptions{Stop: []string{"<|python_tag|>"}}, "h", 2, StopString},
		{"a special token in white space", GenerateOptions{Stop: []string{" <|python_tag|>\n"}}, "h", 2, StopString},
		{"its id", GenerateOptions{StopIDs: c.IDs("<|python_tag|>")}, "h", 2, StopString},
		{"an end token", GenerateOptions{Stop: []string{"<|im_end|>"}},
			"hi<think>j", 6, StopString},
		{"an end token's id", GenerateOptions{StopIDs: c.IDs("<|im_end|>")}, "hi<think>j", 6, StopString},
		{"an ignored end token", GenerateOptions{IgnoreEOS: true, Stop: []string{"<|im_end|>"}},
			"hi<think>j", 6, StopString},
		{"an added token that is text", GenerateOptions{Stop: []string{"<think>"}}, "hi", 4, StopString},
		{"text in an added token", GenerateOptions{Stop: []string{"ink"}}, "hi<th", 4, StopString},
		{"the first of several", GenerateOptions{Stop: []string{"j", "", "<|python_tag|>"}}, "h", 2, StopString},
		{"what never comes", GenerateOptions{Stop: []string{"<|im_start|>", "<|nothing|>"}}, "hi<think>j", 6, StopEOS},
	} {
		tc.opts.MaxTokens, tc.opts.Sampling = 20, &Sampling{}
		got, err := m.Complete(context.Background(), Text("x"), &tc.opts)
		if err != nil || got.Text != tc.text || len(got.Tokens) != tc.tokens ||
			got.Stats.Reason != tc.reason {
			t.Errorf("%s: %+v, %v; want %q, %d tokens, %s", tc.name, got, err, tc.text, tc.tokens,
				tc.reason)
		}
	}
}

// Without a tokenizer the ids in the files still end a text.
func TestEndTokensWithoutTokenizer(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	ends := EndTokens(m.ck, m.tok)
	want := []EndToken{{ID: int32(m.Checkpoint().Config().EOS[0]), Origins: []string{"config.json"}}}
	if !reflect.DeepEqual(ends, want) {
		t.Errorf("end tokens %v, want %v", ends, want)
	}
}

// With ReadWeights a model survives the truncation of its file. With a mapping the process would
// end.
func TestReadWeights(t *testing.T) {
	sharded := filepath.Join(t.TempDir(), "sharded")
	if err := os.CopyFS(sharded, os.DirFS(tiny("llama-untied-sharded"))); err != nil {
		t.Fatal(err)
	}
	gguf := filepath.Join(t.TempDir(), "chain.gguf")
	c := ckptgen.Chain{Control: chatML, Says: saysHi("<|im_end|>", ".")}
	if err := c.WriteGGUF(gguf); err != nil {
		t.Fatal(err)
	}
	for path, pattern := range map[string]string{sharded: "*.safetensors", gguf: ""} {
		for _, inPlace := range []bool{false, true} {
			prompt := IDs([]int32{3, 1, 2})
			opts := &GenerateOptions{MaxTokens: 8, IgnoreEOS: true, Sampling: &Sampling{}}
			want, err := open(t, path, "", nil).Complete(context.Background(), prompt, opts)
			if err != nil {
				t.Fatal(err)
			}
			copied := filepath.Join(t.TempDir(), filepath.Base(path))
			files := []string{copied}
			if pattern == "" {
				data, err := os.ReadFile(path)
				if err == nil {
					err = os.WriteFile(copied, data, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			} else {
				if err := os.CopyFS(copied, os.DirFS(path)); err != nil {
					t.Fatal(err)
				}
				if files, err = filepath.Glob(filepath.Join(copied, pattern)); err != nil || len(files) < 2 {
					t.Fatal(files, err)
				}
			}
			dev, err := cpu.Open(&cpu.Options{InPlace: inPlace})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			m, err := Open(context.Background(), dev, copied, &OpenOptions{ReadWeights: true})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			for _, file := range files {
				if err := os.Truncate(file, 16); err != nil {
					t.Fatal(err)
				}
			}
			got, err := m.Complete(context.Background(), prompt, opts)
			if err != nil || !slices.Equal(got.Tokens, want.Tokens) {
				t.Errorf("%s, in place %v: %v, %v, want %v", filepath.Base(path), inPlace,
					got.Tokens, err, want.Tokens)
			}
		}
	}
}
