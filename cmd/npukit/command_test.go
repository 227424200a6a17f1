package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/skill"
)

// asCommand, set in the environment, makes the test binary the command itself, for tests that need
// a separate process.
const asCommand = "NPUKIT_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	skill.Main(openDeviceText, nil) // evaluations start this binary again
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// process returns the command as a separate process that is not yet started.
func process(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	return cmd
}

// result is the output of one execution of the command.
type result struct {
	code        int
	out, stderr string
}

// command runs the command in this process.
func command(stdin string, args ...string) result {
	var out, stderr bytes.Buffer
	code := run(args, strings.NewReader(stdin), &out, &stderr)
	return result{code, out.String(), stderr.String()}
}

// succeed runs the command. It fails the test unless the exit code is 0 and stderr is empty: in a
// pipe a successful command is quiet.
func succeed(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	r := command(stdin, args...)
	if r.code != 0 || r.stderr != "" {
		t.Fatalf("npukit %s: exit code %d, stderr %q", strings.Join(args, " "), r.code, r.stderr)
	}
	return r.out
}

// parse decodes JSON that the command printed. It fails the test if more than one value follows.
func parse[T any](t *testing.T, text string) (v T) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("more than one JSON value: %s", text)
	}
	return v
}

func tiny(name string) string { return filepath.Join(testenv.Root(), "testdata", "tiny-models", name) }

// Special tokens of the model that chatty writes. Its other tokens are the bytes.
const (
	tokenBegin = 256 + iota
	tokenUser
	tokenEnd
	chattyVocab
)

// chattyTemplate marks the roles and raises an exception for one word.
const chattyTemplate = `{{ bos_token }}{% for m in messages %}{% if 'forbidden' in m.content %}{{ ` +
	`raise_exception('that word is forbidden') }}{% endif %}` +
	`<|user|>{{ m.role }}: {{ m.content }}{% endfor %}{% if add_generation_prompt %}<|user|>assistant: {% endif %}`

// chatty writes a model with random weights, a tokenizer and a chat template. Its text is
// meaningless but deterministic.
func chatty(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "chatty")
	err := ckptgen.Write(dir, ckptgen.Spec{
		Family: "llama", Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, FFN: 128, Vocab: chattyVocab, Context: 4096,
		Tie:   true,
		Extra: map[string]any{"bos_token_id": tokenBegin, "eos_token_id": tokenEnd},
	}, 7)
	if err != nil {
		t.Fatal(err)
	}
	vocab := map[string]int{}
	next := 256
	// The byte-level alphabet of GPT-2 maps printable bytes to themselves and other bytes to
	// letters from U+0100 on.
	for b := range 256 {
		r := rune(b)
		if b <= ' ' || b >= 0x7f && b <= 0xa0 || b == 0xad {
			r = rune(next)
			next++
		}
		vocab[string(r)] = b
	}
	added := []map[string]any{}
	for id, text := range map[int]string{tokenBegin: "<|begin|>", tokenUser: "<|user|>", tokenEnd: "<|end|>"} {
		added = append(added, map[string]any{"id": id, "content": text, "special": true, "single_word": false,
			"lstrip": false, "rstrip": false, "normalized": false})
	}
	write(t, filepath.Join(dir, "tokenizer.json"), map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": nil,
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
			"use_regex": true},
		"post_processor": map[string]any{
			"type": "TemplateProcessing",
			"single": []any{map[string]any{"SpecialToken": map[string]any{"id": "<|begin|>", "type_id": 0}},
				map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}}},
			"pair": []any{map[string]any{"Sequence": map[string]any{"id": "A", "type_id": 0}},
				map[string]any{"Sequence": map[string]any{"id": "B", "type_id": 1}}},
			"special_tokens": map[string]any{"<|begin|>": map[string]any{"id": "<|begin|>", "ids": []int{tokenBegin},
				"tokens": []string{"<|begin|>"}}},
		},
		"decoder": map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
			"use_regex": true},
		"model": map[string]any{
			"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil,
			"end_of_word_suffix": nil, "fuse_unk": false,
			"byte_fallback": false, "vocab": vocab, "merges": []string{},
		},
	})
	write(t, filepath.Join(dir, "tokenizer_config.json"), map[string]any{"bos_token": "<|begin|>",
		"eos_token": "<|end|>", "chat_template": chattyTemplate})
	return dir
}

// write writes v to a file as JSON.
func write(t testing.TB, path string, v any) {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// cacheWith makes a model cache of empty files and folders, for tests that look only at names.
func cacheWith(t *testing.T, names ...string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("NPUKIT_CACHE", dir)
	for _, name := range names {
		path := filepath.Join(dir, "models", name)
		if !strings.HasSuffix(name, ".gguf") {
			path = filepath.Join(path, "config.json")
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// The exit code is 2 for a wrong command line and 1 for a failed command. stderr has the reason and
// what to do.
func TestExitCodes(t *testing.T) {
	cacheWith(t, "SmolLM2-135M-Instruct-Q4_1.gguf", "Qwen3-0.6B")
	m := chatty(t)
	bare := tiny("qwen2-bias") // no tokenizer, no template
	for _, tc := range []struct {
		name  string
		args  string
		stdin string
		code  int
		says  []string
	}{
		{"unknown subcommand", "rnu", "", 2, []string{"unknown command", "run"}},
		{"unknown flag", "run M --nosuch", "", 2, []string{"--nosuch", "npukit run --help"}},
		{"model missing", "run", "", 2, []string{"MODEL is missing"}},
		{"two prompts", "run M hello world", "", 2, []string{`"world"`, "quote"}},
		{"empty model", "run  hello", "", 2, []string{"MODEL is empty"}},
		{"unknown log level", "run M hi --log loud", "", 2, []string{`--log is "loud"`, "debug, info"}},
		{"unknown device", "run M hi --device gpu", "", 2, []string{`"gpu"`, "cpu, sim or xdna"}},
		{"a model that does not fit the array", "run M hi --device sim", "", 1, []string{"head_dim is 16", "R-DIV-9",
			"what would fit"}},
		{"negative threads", "run M hi --threads -1", "", 2, []string{"--threads"}},
		{"unknown kernels", "run M hi --kernels fast", "", 2, []string{`"fast"`, "avx2"}},
		{"too many threads", "run M hi --threads 100000", "", 2, []string{"--threads", "1024"}},
		{"no threads", "run M hi --threads 0", "", 2, []string{"--threads", "positive"}},
		{"no context", "run M hi --ctx 0", "", 2, []string{"--ctx", "positive"}},
		{"artefacts for the cpu", "run M hi --artefacts x", "", 2, []string{"--artefacts needs --device xdna", "cpu"}},
		{"a compiler for the virtual NPU", "run M hi --device sim --compile x", "", 2,
			[]string{"--compile needs --device xdna", "sim"}},
		{"top-p of 0", "run M hi --top-p 0", "", 2, []string{"--top-p is 0", "use 1 for all"}},
		{"no repeat-penalty", "run M hi --repeat-penalty 0", "", 2, []string{"--repeat-penalty is 0",
			"1 is no change"}},
		{"no tokens", "run M hi --max-tokens 0", "", 2, []string{"--max-tokens", "positive"}},
		{"an empty stop", "run M hi --stop ", "", 2, []string{"--stop is empty"}},
		{"a stop that is not text", "run M hi --stop a\xe9", "", 2, []string{"--stop is not valid UTF-8",
			"byte 1 is 0xe9"}},
		{"a stop without a tokenizer", "run " + bare + " --ids 1,2 --stop a", "", 1, []string{"--stop", "tokenizer"}},
		{"a system message that is not text", "run M hi --system \xe9", "", 2, []string{"--system is not valid UTF-8"}},
		{"a system message that is not text, in chat", "chat M --system \xe9", "", 2,
			[]string{"--system is not valid UTF-8"}},
		{"a prompt that looks like a flag", "run M -5", "", 2, []string{"write -- before"}},
		{"help on an unknown command", "help ops", "", 2, []string{`"ops"`}},
		{"help on an unknown subcommand", "help skills ops", "", 2, []string{`"skills ops"`}},
		{"negative temperature", "run M hi --temp -1", "", 2, []string{"--temp is -1, want 0 (greedy) or more"}},
		{"top-p above 1", "run M hi --top-p 1.5", "", 2, []string{"--top-p is 1.5, want 0 to 1"}},
		{"negative stop id", "run M hi --stop-id 3,-1", "", 2, []string{"--stop-id is -1, want a token id"}},
		{"stop ids that are not numbers", "chat M --stop-id x", "", 2,
			[]string{`--stop-id is "x", want whole numbers`}},
		{"a stop id outside the vocabulary", "run M hi --stop-id 5000", "", 1,
			[]string{"--stop-id is 5000, want an id"}},
		{"negative length", "run M hi --max-tokens -5", "", 2, []string{"--max-tokens"}},
		{"text and ids", "run M hi --ids 1,2", "", 2, []string{"either"}},
		{"a negative id", "run M --ids 1,-2", "", 2, []string{"--ids"}},
		{"ids that are not numbers", "run M --ids 1,a", "", 2, []string{`--ids is "1,a", want whole numbers`}},
		{"a negative seed", "run M hi --seed -1", "", 2, []string{`--seed is "-1", want a whole number from 0`}},
		{"a temperature that is not a number", "run M hi --temp hot", "", 2,
			[]string{`--temp is "hot", want a number`}},
		{"an integer out of range", "run M hi --top-k 99999999999999999999", "", 2,
			[]string{"--top-k is 99999999999999999999, which is out of range"}},
		{"a time without a unit", "deploy M --dir W --budget 30", "", 2,
			[]string{`--budget is "30", want a time such as 30m`}},
		{"logprobs without JSON", "run M hi --logprobs 3", "", 2, []string{"--json"}},
		{"raw and system", "run M hi --raw --system x", "", 2, []string{"raw", "system"}},
		{"unknown activations", "run M hi --activations f8", "", 2, []string{`"f8"`}},
		{"missing plan", "run M hi --plan nosuch.json", "", 1, []string{"nosuch.json"}},
		{"typo in a cached name", "run smollm2-135-instruct-q4_1 hi", "", 1,
			[]string{"Did you mean SmolLM2-135M-Instruct-Q4_1?", "Qwen3-0.6B"}},
		{"typo in a path", "run ./models/Qwen3-0.5B hi", "", 1, []string{"Did you mean Qwen3-0.6B?"}},
		{"typo in info", "info Qwen3", "", 1, []string{"Did you mean Qwen3-0.6B?"}},
		{"a file that is not a model", "run " + filepath.Join(m, "tokenizer.json") + " hi", "", 1, []string{"folder"}},
		{"empty prompt", "run M ", "", 1, []string{"the prompt is empty", "--raw"}},
		{"empty stdin", "run M -", "\n", 1, []string{"the prompt is empty"}},
		{"invalid UTF-8", "run M -", "ab\xff\xfe", 1, []string{"not valid UTF-8", "byte 2 is 0xff"}},
		{"template refuses", "run M forbidden", "", 1, []string{"that word is forbidden"}},
		{"prompt longer than the context", "run M " + strings.Repeat("x", 90) + " --ctx 64", "", 1,
			[]string{"64", "110"}},
		{"context beyond the model's", "run M hi --ctx 5000", "", 1, []string{"5000", "4096"}},
		{"text without a tokenizer", "run " + bare + " hi", "", 1, []string{"tokenizer.json"}},
		{"ids outside the vocabulary", "run " + bare + " --ids 1,300", "", 1, []string{"300"}},
		{"chat without a template", "chat " + bare, "", 1, []string{"template"}},
		{"trace into a folder", "run M hi -n 1 --trace " + m, "", 1, []string{"--trace", "is a folder"}},
		{"plan into stdout", "info M --plan-out -", "", 1, []string{"--plan-out: - is no file"}},
		{"plan into a folder", "info M --plan-out " + m, "", 1, []string{"--plan-out", "is a folder"}},
		{"reports into a file", "verify M --report " + filepath.Join(m, "config.json"), "", 1,
			[]string{"--report", "config.json"}},
		{"trace into no folder", "run M hi -n 1 --trace " + filepath.Join(t.TempDir(), "no", "trace.json"), "", 1,
			[]string{"trace"}},
		{"tokenize invalid UTF-8", "tokenize M -", "\xc3", 1, []string{"not valid UTF-8"}},
		{"tokenize an object", "tokenize M - --json", `{"a":1}`, 1, []string{"JSON array of strings",
			"of kind object"}},
		{"tokenize a list of numbers", "tokenize M - --json", `["a", 1]`, 1,
			[]string{"JSON array of strings: the value that ends at byte 7 is of kind number"}},
		{"tokenize null", "tokenize M - --json", `null`, 1, []string{"JSON array of strings"}},
		{"tokenize a list with null", "tokenize M - --json", `["a",null]`, 1, []string{"element 1 is null"}},
		{"tokenize truncated JSON", "tokenize M - --json", `["a",`, 1, []string{"JSON"}},
		{"tokenize invalid UTF-8 in JSON", "tokenize M - --json", "[\"\xff\"]", 1, []string{"not valid UTF-8"}},
		{"tokenize without a tokenizer", "tokenize " + bare + " hi", "", 1, []string{"tokenizer.json"}},
		{"template without messages", "template M", `{}`, 1, []string{"messages"}},
		{"template of truncated JSON", "template M", `{"messages": [`, 1, []string{"JSON at byte 14"}},
		{"template with trailing data", "template M", `{"messages": []} x`, 1,
			[]string{"JSON at byte 17", "trailing data"}},
		{"template of a list", "template M", `[1]`, 1, []string{"object"}},
		{"template of empty input", "template M", ``, 1, []string{"JSON"}},
		{"template of deeply nested JSON", "template M", strings.Repeat("[", 1<<20), 1, []string{"deep"}},
		{"template of invalid UTF-8", "template M", "{\"messages\": \"\xff\"}", 1, []string{"not valid UTF-8"}},
		{"template that raises", "template M", `{"messages": [{"role": "user", "content": "forbidden"}]}`, 1,
			[]string{"that word is forbidden"}},
		{"no template", "template " + bare, `{"messages": []}`, 1, []string{"template"}},
		{"bench without a test", "bench M --pp 0 --tg 0", "", 2, []string{"--pp", "--tg"}},
		{"bench of sessions without decode", "bench M --tg 0 --sessions 2", "", 2, []string{"--sessions", "--tg"}},
		{"skills export to an empty path", "skills export ", "", 2, []string{"DIR is empty"}},
		{"an argument to a command that takes none", "version x", "", 2, []string{"unexpected argument"}},
		{"bench of too many sessions", "bench M --sessions 100000", "", 2, []string{"--sessions", "256"}},
		{"bench of zero repetitions", "bench M --reps 0", "", 2, []string{"--reps"}},
		{"bench of a negative length", "bench M --pp -1", "", 2, []string{"-1"}},
		{"bench of an incomplete test", "bench M --tg 64@", "", 2, []string{"--tg", "512@1024", `"64@"`}},
		{"bench at a negative depth", "bench M --tg 64@-3", "", 2, []string{"-3"}},
		{"bench of zero sessions", "bench M --sessions 0", "", 2, []string{"--sessions"}},
		{"bench beyond the context", "bench M --pp 5000 --tg 0 --reps 1", "", 1, []string{"5001", "4096"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := strings.Split(tc.args, " ")
			for i, a := range args {
				if a == "M" {
					args[i] = m
				}
			}
			r := command(tc.stdin, args...)
			if r.code != tc.code {
				t.Errorf("exit code %d, want %d", r.code, tc.code)
			}
			if r.out != "" {
				t.Errorf("stdout %q, want nothing", r.out)
			}
			for _, s := range tc.says {
				if !strings.Contains(r.stderr, s) {
					t.Errorf("stderr %q does not contain %q", r.stderr, s)
				}
			}
			if tc.code == 2 && !strings.Contains(r.stderr, "--help") {
				t.Errorf("stderr %q does not point to --help", r.stderr)
			}
		})
	}
}

// A relative cache folder is an error, as in scripts/cache-dir.sh.
func TestRelativeCache(t *testing.T) {
	t.Setenv("NPUKIT_CACHE", "relative")
	if r := command("", "run", "SmolLM2", "hi"); r.code != 1 || !strings.Contains(r.stderr, "absolute") {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
}

// endless is a stream like /dev/zero.
type endless struct{}

func (endless) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// Reading an endless stdin ends with an error before memory runs out.
func TestEndlessStdin(t *testing.T) {
	m := chatty(t)
	for _, args := range [][]string{{"run", m, "-"}, {"tokenize", m, "-"}, {"template", m}, {"chat", m}} {
		var out, stderr strings.Builder
		if code := run(args, endless{}, &out, &stderr); code != 1 || out.String() != "" ||
			!strings.Contains(stderr.String(), "stdin has more than 256 MB") {
			t.Errorf("npukit %s: exit code %d, stderr %q", args[0], code, stderr.String())
		}
	}
}

// fullDisk fails every write.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

// A write error makes the command fail, also for help and version.
func TestFullDisk(t *testing.T) {
	for _, args := range []string{"--help", "help", "help run", "run --help", "--version", "version", "devices",
		"skills list", ""} {
		var stderr strings.Builder
		if code := run(strings.Fields(args), strings.NewReader(""), fullDisk{}, &stderr); code != 1 ||
			strings.Count(stderr.String(), "the disk is full") != 1 {
			t.Errorf("npukit %s: exit code %d, stderr %q", args, code, stderr.String())
		}
	}
}

// With an empty cache the error explains how to get a model.
func TestEmptyCache(t *testing.T) {
	cacheWith(t)
	r := command("", "run", "SmolLM2", "hi")
	if r.code != 1 || !strings.Contains(r.stderr, "make demo") {
		t.Errorf("exit code %d, stderr %q: want 1 and how to get a model", r.code, r.stderr)
	}
}

// The command never writes to the cache, and reports an error if it cannot read it.
func TestCacheThatCannotBeWritten(t *testing.T) {
	m := chatty(t)
	dir := t.TempDir()
	t.Setenv("NPUKIT_CACHE", dir)
	models := filepath.Join(dir, "models")
	if err := os.MkdirAll(models, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(m, filepath.Join(models, "chatty")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(models, 0o555); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(models, 0o755)
	before := listing(t, dir)
	succeed(t, "", "run", "chatty", "hi", "-n", "2")
	succeed(t, "", "info", "chatty")
	if after := listing(t, dir); after != before {
		t.Errorf("the cache was written to:\n%s\nbefore:\n%s", after, before)
	}

	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NPUKIT_CACHE", filepath.Join(dir, "file")) // the models folder would be below a file
	if r := command("", "run", "chatty", "hi"); r.code != 1 || !strings.Contains(r.stderr, "chatty") {
		t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
	}
}

func listing(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			fmt.Fprintln(&b, path, info.Size(), info.ModTime())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Every subcommand has help, with an example if it takes arguments.
func TestHelp(t *testing.T) {
	for _, name := range []string{"run", "chat", "info", "devices", "tokenize", "template", "bench", "version",
		"help"} {
		out := succeed(t, "", name, "--help")
		if !strings.Contains(out, "npukit "+name) || name != "version" && name != "help" &&
			!strings.Contains(out, "Examples:") {
			t.Errorf("npukit %s --help:\n%s", name, out)
		}
	}
	for _, args := range [][]string{{"version"}, {"--version"}} {
		if out := succeed(t, "", args...); !strings.HasPrefix(out, "npukit ") || strings.Count(out, "\n") != 1 {
			t.Errorf("%v prints %q", args, out)
		}
	}
}
