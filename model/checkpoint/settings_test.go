package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu/dtype"
)

// describe returns the settings of a Generation as text.
func describe(g *Generation) string {
	var parts []string
	add := func(name string, v any) {
		if p := reflect.ValueOf(v); !p.IsNil() {
			parts = append(parts, fmt.Sprintf("%s %v", name, p.Elem()))
		}
	}
	add("sample", g.DoSample)
	add("temperature", g.Temperature)
	add("k", g.TopK)
	add("p", g.TopP)
	add("min", g.MinP)
	add("penalty", g.RepetitionPenalty)
	if g.BOS != nil {
		parts = append(parts, fmt.Sprint("bos ", g.BOS))
	}
	if g.EOS != nil {
		parts = append(parts, fmt.Sprint("eos ", g.EOS))
	}
	return strings.Join(parts, ", ")
}

// No sampling default prevents a model from opening. Values mean the same as in transformers and
// vLLM; values that these reject are ignored with a warning.
func TestGenerationConfig(t *testing.T) {
	for _, tc := range []struct{ name, file, want, warns string }{
		{"all fields", `{"do_sample": true, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05, ` +
			`"repetition_penalty": 1.1, "eos_token_id": [4, 5], "bos_token_id": 3, "transformers_version": "5.24.0"}`,
			"sample true, temperature 0.7, k 20, p 0.8, min 0.05, penalty 1.1, bos [3], eos [4 5]", ""},
		{"vLLM's -1 is all tokens", `{"top_k": -1, "do_sample": true}`, "sample true, k 0", ""},
		{"transformers' 0 is all tokens", `{"top_k": 0}`, "k 0", ""},
		{"a float that is whole", `{"top_k": 20.0, "do_sample": true}`, "sample true, k 20", ""},
		{"a float that is not", `{"top_k": 20.5}`, "", "top_k is 20.5: ignored, since it must be a whole number"},
		{"a large top_k", `{"top_k": 1e12}`, "k 2147483647", ""},
		{"a negative top_k", `{"top_k": -3}`, "k 0", "top_k is -3: read as 0, which keeps every token"},
		{"greedy settings",
			`{"do_sample": true, "temperature": 0.0, "top_k": 1, "top_p": 0.001, "repetition_penalty": 1.05}`,
			"sample true, temperature 0, k 1, p 0.001, penalty 1.05", ""},
		{"nulls", `{"temperature": null, "top_k": null, "top_p": null, "eos_token_id": null, "do_sample": null}`, "",
			""},
		{"top_p over 1", `{"top_p": 1.01}`, "p 1", "top_p is 1.01: read as 1"},
		{"top_p 0 keeps one token", `{"top_p": 0.0}`, "p 0", ""},
		{"negative top_p", `{"top_p": -0.5}`, "", "top_p is -0.5: ignored, since it must be 0 to 1"},
		{"min_p over 1", `{"min_p": 2}`, "", "min_p is 2: ignored"},
		{"negative temperature", `{"temperature": -1, "do_sample": true}`, "sample true",
			"temperature is -1: ignored, since it must be 0 or more"},
		{"no penalty", `{"repetition_penalty": 0.0}`, "penalty 1", "repetition_penalty is 0.0: read as 1"},
		{"negative penalty", `{"repetition_penalty": -1}`, "", "repetition_penalty is -1: ignored"},
		{"a penalty that overflows", `{"repetition_penalty": 1e39}`, "", "repetition_penalty is 1e39: ignored"},
		{"Python's NaN", `{"temperature": NaN, "top_k": 5}`, "k 5", `temperature is "NaN": ignored`},
		{"Python's Infinity", `{"temperature": -Infinity, "top_p": Infinity}`, "p 1",
			`temperature is "-Infinity": ignored` + "\ntop_p is \"Infinity\": read as 1"},
		{"NaN in a string stays", `{"_from": "a \" NaN \\", "top_k": 5}`, "k 5", ""},
		{"a number as string", `{"temperature": "0.7"}`, "temperature 0.7",
			`temperature is "0.7": read as the number 0.7`},
		{"another string", `{"temperature": "warm"}`, "", `temperature is "warm": ignored, since it must be a number`},
		{"a list", `{"top_p": [0.9]}`, "", "top_p is [0.9]: ignored, since it must be a number"},
		{"a truth value as number", `{"top_k": true}`, "", "top_k is true: ignored"},
		{"a number as truth value", `{"do_sample": 1}`, "sample true", "do_sample is 1: read as true"},
		{"a string as truth value", `{"do_sample": "False"}`, "sample false", `do_sample is "False": read as false`},
		{"another truth value", `{"do_sample": "maybe"}`, "", "do_sample is \"maybe\": ignored"},
		{"a byte order mark", "\ufeff" + `{"temperature": 0.7}`, "temperature 0.7", ""},
		{"comments", "{\"temperature\": 0.7, // warm\n \"top_p\": 0.8}", "", "is not valid JSON, line 1"},
		{"an empty file", "", "", "is empty: ignored"},
		{"null", "null", "", "is null"},
		{"a list of settings", `[{"top_k": 1}]`, "", "is a JSON array, expected an object: the whole " +
			"file is ignored"},
		{"ids of other kinds", `{"eos_token_id": ["2", 3.0, "</s>", 99, -1, null, true], "bos_token_id": {}}`,
			"eos [2 3]",
			`bos_token_id is {}: ignored, since it must be a token id` + "\n" +
				`eos_token_id is "</s>": ignored` + "\n" + "eos_token_id is null: ignored\n" +
				"eos_token_id is true: ignored\n" +
				"eos_token_id is 99: ignored, since it is outside the vocabulary of 32 tokens\n" +
				"eos_token_id is -1: ignored"},
		{"too many ids", `{"eos_token_id": [1` + strings.Repeat(", 1", maxIDs) + `]}`, "", "eos_token_id is [1, 1"},
		{"settings that are not there", `{"num_beams": 1, "no_repeat_ngram_size": 3, "typical_p": null}`, "",
			"no_repeat_ngram_size is 3: ignored, since npukit has no no_repeat_ngram_size"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := writeTiny(t, tiny("llama"))
			put(t, filepath.Join(dir, "generation_config.json"), []byte(tc.file))
			c := open(t, dir)
			if got := describe(c.Generation()); got != tc.want {
				t.Errorf("it sets %q, want %q", got, tc.want)
			}
			var want []string
			if tc.warns != "" {
				want = strings.Split(tc.warns, "\n")
			}
			got := c.Warnings()
			matches := len(got) == len(want)
			for i := 0; matches && i < len(want); i++ {
				matches = strings.HasPrefix(got[i], "generation_config.json: ") && strings.Contains(got[i], want[i])
			}
			if !matches {
				t.Errorf("warnings %q, want %q", got, want)
			}
		})
	}
	c := open(t, writeTiny(t, tiny("llama")))
	if got := describe(c.Generation()); got != "" || c.Warnings() != nil {
		t.Errorf("without a file: %q, %q", got, c.Warnings())
	}
}

// Invalid end tokens of config.json are ignored in the same way.
func TestConfigTokens(t *testing.T) {
	dir := writeTiny(t, tiny("llama"))
	file := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	odd := strings.Replace(string(data), `"eos_token_id": 2`, `"eos_token_id": [32, "2", "</s>"]`, 1)
	odd = strings.Replace(odd, `"bos_token_id": 1`, `"bos_token_id": -1`, 1)
	put(t, file, []byte("\ufeff"+odd))
	c := open(t, dir)
	if got := c.Config(); len(got.BOS) != 0 || !slices.Equal(got.EOS, []int{2}) {
		t.Errorf("BOS %v, EOS %v, want none and 2", got.BOS, got.EOS)
	}
	if got := c.Warnings(); len(got) != 3 || !strings.HasPrefix(got[0], "config.json: bos_token_id is -1: ignored") {
		t.Errorf("warnings %q", got)
	}
}

// With ReadWeights a checkpoint has the same tensors, and keeps them if its files shrink to
// nothing.
func TestReadWeights(t *testing.T) {
	sharded := tiny("llama")
	sharded.Shards = 3
	gguf, _ := newGGUFModel(t, tiny("llama"), dtype.F32) // q and k are rearranged
	for name, path := range map[string]string{
		"safetensors": writeTiny(t, tiny("qwen3")),
		"shards":      writeTiny(t, sharded),
		"GGUF":        gguf.write(t),
	} {
		t.Run(name, func(t *testing.T) {
			want := map[string][]byte{}
			mapped := open(t, path)
			for _, w := range mapped.Tensors() {
				want[w.Name] = slices.Clone(must(mapped.Tensor(w.Name)).Data)
			}
			if err := mapped.Close(); err != nil {
				t.Fatal(err)
			}
			c, err := Open(path, &OpenOptions{ReadWeights: true})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			files, err := filepath.Glob(filepath.Join(path, "*.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			if name == "GGUF" {
				files = []string{path}
			}
			for _, file := range files {
				if err := os.Truncate(file, 1); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // as if a device had made a copy in between
				for name, data := range want {
					if !slices.Equal(must(c.Tensor(name)).Data, data) {
						t.Errorf("%s has other elements", name)
					}
					c.Release(name)
				}
			}
			if bad, err := c.NonFinite(t.Context()); err != nil || len(bad) > 0 {
				t.Errorf("not finite: %v, %v", bad, err)
			}
			if len(want) == 0 || len(files) == 0 {
				t.Error("nothing was compared")
			}
		})
	}
	empty := filepath.Join(t.TempDir(), "empty.gguf")
	put(t, empty, nil)
	_, err := Open(empty, &OpenOptions{ReadWeights: true})
	if err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty file: %v", err)
	}
}
