package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// put writes a text file and makes its parent folders.
func put(t *testing.T, path, text string) string {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// promptTokens generates one token and returns the number of prompt tokens.
func promptTokens(t *testing.T, args ...string) int {
	t.Helper()
	out := succeed(t, "", append([]string{"run", "--json", "--temp", "0", "-n", "1"}, args...)...)
	return parse[runResult](t, out).PromptTokens
}

// The flags of the chat template reach it. Special tokens in messages are plain text unless a flag
// allows them.
func TestRunTemplateFlags(t *testing.T) {
	dir := chatty(t)
	file := put(t, filepath.Join(t.TempDir(), "t.jinja"),
		"{{ messages[0].content }}{% if enable_thinking is defined %}{{ 'T' if enable_thinking else 'FF' }}{% "+
			"endif %}{{ x or '' }}")
	for _, tc := range []struct {
		args []string
		want int
	}{
		{[]string{"--chat-template", file, dir, "abc"}, 3},
		{[]string{"--chat-template", file, "--think", dir, "abc"}, 4},
		{[]string{"--chat-template", file, "--no-think", dir, "abc"}, 5},
		{[]string{"--chat-template", file, "--template-var", `x="12345"`, "--template-var", "y=[1, {}]", dir,
			"abc"}, 8},
		{[]string{"--chat-template", file, "--template-var", "enable_thinking=true", dir, "abc"}, 4},
		{[]string{"--chat-template", file, dir, "<|user|>"}, len("<|user|>")},
		{[]string{"--chat-template", file, "--allow-special", dir, "<|user|>"}, 1},
		{[]string{dir, "<|end|>"}, 1 + 1 + len("user: ") + len("<|end|>") + 1 + len("assistant: ")},
	} {
		if got := promptTokens(t, tc.args...); got != tc.want {
			t.Errorf("%v: %d tokens, want %d", tc.args, got, tc.want)
		}
	}
}

// A wrong chat template flag is a usage error with exit code 2, before a model is opened.
func TestTemplateFlagErrors(t *testing.T) {
	dir := chatty(t)
	broken := put(t, filepath.Join(t.TempDir(), "broken.jinja"), "a\n{% if %}")
	empty := put(t, filepath.Join(t.TempDir(), "empty.jinja"), "\n")
	binary := put(t, filepath.Join(t.TempDir(), "binary.jinja"), "a\xff")
	for _, tc := range []struct {
		args []string
		says string
	}{
		{[]string{"--chat-template", filepath.Join(dir, "absent.jinja")}, "absent.jinja"},
		{[]string{"--chat-template", ""}, "--chat-template is empty"},
		{[]string{"--chat-template", dir}, "not a regular file"},
		{[]string{"--chat-template", broken}, "template line 2"},
		{[]string{"--chat-template", empty}, "is empty"},
		{[]string{"--chat-template", binary}, "not valid UTF-8: byte 1"},
		{[]string{"--chat-template", put(t, filepath.Join(t.TempDir(), "x"), pointer)}, "Git LFS pointer"},
		{[]string{"--think", "--no-think"}, "think"},
		{[]string{"--template-var", "x"}, "want NAME=JSON"},
		{[]string{"--template-var", "x=Monday"}, `the value of x is not JSON: Monday (quote a text: 'x="..."')`},
		{[]string{"--template-var", "x="}, "not JSON"},
		{[]string{"--template-var", "x=1 2"}, "not JSON"},
		{[]string{"--template-var", "1x=1"}, `"1x" is not the name`},
		{[]string{"--template-var", "x=1", "--template-var", "x=2"}, "x is given twice"},
		{[]string{"--template-var", "messages=[]"}, "messages is set from the conversation"},
		{[]string{"--template-var", "enable_thinking=1", "--think"}, "use one of these"},
	} {
		for _, command_ := range [][]string{{"run", dir, "x"}, {"chat", dir}, {"template", dir}} {
			r := command("{}", append(slices.Clone(command_), tc.args...)...)
			if r.code != 2 || !strings.Contains(r.stderr, tc.says) || r.out != "" {
				t.Errorf("%v: exit code %d, %q, want 2 and %q", append(command_, tc.args...), r.code, r.stderr, tc.says)
			}
		}
	}
	for _, args := range [][]string{{"--raw", "--think"}, {"--raw", "--allow-special"}, {"--ids", "1",
		"--template-var", "x=1"}, {"--raw", "--chat-template", broken}} {
		if r := command("", append([]string{"run", dir}, args...)...); r.code != 2 {
			t.Errorf("run %v: exit code %d, %q", args, r.code, r.stderr)
		}
	}
	if err := os.Remove(filepath.Join(dir, "tokenizer_config.json")); err != nil {
		t.Fatal(err)
	}
	if r := command("", "run", dir, "x", "--think"); r.code != 1 || !strings.Contains(r.stderr, "has none") {
		t.Errorf("--think without a template: exit code %d, %q", r.code, r.stderr)
	}
}

// chat has the flags too.
func TestChatTemplateFlags(t *testing.T) {
	dir := chatty(t)
	file := put(t, filepath.Join(t.TempDir(), "t.jinja"),
		"{% if enable_thinking %}{{ raise_exception('thinks ' + x) }}{% endif %}{{ messages[0].content }}")
	args := []string{"chat", dir, "--temp", "0", "-n", "2", "--chat-template", file, "--template-var", `x="hard"`}
	succeed(t, "hello\n", append(args, "--no-think")...)
	r := command("hello\n", append(args, "--think")...)
	if r.code != 1 || !strings.Contains(r.stderr, "thinks hard") {
		t.Errorf("exit code %d, %q", r.code, r.stderr)
	}
}

// named writes a second template for conversations with tools into a model.
func named(t *testing.T, dir string) {
	t.Helper()
	put(t, filepath.Join(dir, "additional_chat_templates", "tool_use.jinja"), "TOOLS{{ tools|length }}")
}

// A conversation with tools uses the template tool_use. --name selects any template.
func TestNamedTemplates(t *testing.T) {
	dir := chatty(t)
	named(t, dir)
	const plain = `{"messages": [{"role": "user", "content": "hi"}]}`
	const tools = `{"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": ` +
		`{"name": "f"}}]}`
	const want = "<|begin|><|user|>user: hi"
	for _, tc := range []struct {
		stdin string
		args  []string
		want  string
	}{
		{plain, nil, want},
		{tools, nil, "TOOLS1"},
		{tools, []string{"--name", "default"}, want},
		{tools, []string{"--name", "tool_use"}, "TOOLS1"},
	} {
		if got := succeed(t, tc.stdin, append([]string{"template", dir}, tc.args...)...); got != tc.want {
			t.Errorf("%s %v: %q, want %q", tc.stdin, tc.args, got, tc.want)
		}
	}
	r := command(plain, "template", dir, "--name", "rag")
	if r.code != 2 || !strings.Contains(r.stderr, "the model has default, tool_use") {
		t.Errorf("exit code %d, %q", r.code, r.stderr)
	}
	info := parse[modelInfo](t, succeed(t, "", "info", dir, "--json"))
	if !info.HasTemplate || !slices.Equal(info.Templates, []string{"default", "tool_use"}) ||
		!strings.Contains(info.Template, "tool_use, 1 line of Jinja") {
		t.Errorf("info: %+v", info)
	}
}

// Flags of npukit template set fields that the conversation lacks.
func TestTemplateCommandFlags(t *testing.T) {
	dir := chatty(t)
	file := put(t, filepath.Join(t.TempDir(), "t.jinja"), "{{ bos_token }}{{ enable_thinking }}{{ x }}")
	const stdin = `{"messages": [], "y": 1}`
	got := succeed(t, stdin, "template", dir, "--chat-template", file, "--think", "--template-var", `x={"a": 1}`)
	if want := "<|begin|>True{'a': 1}"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := succeed(t, stdin, "template", file, "--no-think"); got != "False" {
		t.Errorf("%q", got)
	}
	for _, args := range [][]string{{dir, "--template-var", "y=2"}, {file, "--chat-template", file}, {file,
		"--name", "x"}, {dir, "--name", "x", "--chat-template", file}} {
		if r := command(stdin, append([]string{"template"}, args...)...); r.code != 2 {
			t.Errorf("%v: exit code %d, %q", args, r.code, r.stderr)
		}
	}
}

const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab\nsize 98362432\n"

// Every command names a Git LFS pointer that is in place of a file.
func TestPointers(t *testing.T) {
	gguf := put(t, filepath.Join(t.TempDir(), "m.gguf"), pointer)
	dir := chatty(t)
	put(t, filepath.Join(dir, "tokenizer.json"), pointer)
	for _, args := range [][]string{{"run", gguf, "x"}, {"info", gguf}, {"tokenize", gguf, "x"}, {"template", gguf},
		{"run", dir, "x"}, {"tokenize", dir, "x"}} {
		r := command("{}", args...)
		if r.code != 1 || !strings.Contains(r.stderr, "is a Git LFS pointer") || !strings.Contains(r.stderr,
			"git lfs pull") {
			t.Errorf("%v: exit code %d, %q", args, r.code, r.stderr)
		}
	}
}

// Tokens that only tokenizer_config.json has are tokens for the command, as they are for a model.
func TestTokenizeAddedDecoder(t *testing.T) {
	dir := chatty(t)
	path := filepath.Join(dir, "tokenizer_config.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	config["added_tokens_decoder"] = map[string]any{"300": map[string]any{"content": "<tool>", "special": true}}
	write(t, path, config)
	if got, want := parse[[]int32](t, succeed(t, "", "tokenize", dir, "--json", "a<tool>b")), []int32{tokenBegin,
		'a', 300, 'b'}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A folder of the Hugging Face cache is a valid MODEL, with the name of its repository.
func TestHubCache(t *testing.T) {
	from := chatty(t)
	hub := filepath.Join(t.TempDir(), "models--acme--tiny")
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{filepath.Join("refs", "main"): "abc"}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Join("snapshots", "abc", e.Name())] = string(data)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		put(t, filepath.Join(hub, name), files[name])
	}
	if got := parse[runResult](t, succeed(t, "", "run", hub, "--json", "-n", "1", "--temp", "0",
		"hi")); got.Model != "tiny" {
		t.Errorf("the model is called %q", got.Model)
	}
	if got := parse[[]int32](t, succeed(t, "", "tokenize", hub, "--json", "hi")); !slices.Equal(got,
		[]int32{tokenBegin, 'h', 'i'}) {
		t.Errorf("ids %v", got)
	}
	if got := succeed(t, `{"messages": [{"role": "user", "content": "hi"}]}`, "template",
		hub); got != "<|begin|><|user|>user: hi" {
		t.Errorf("%q", got)
	}
	if got := parse[modelInfo](t, succeed(t, "", "info", hub, "--json")); got.Name != "tiny" {
		t.Errorf("info calls the model %q", got.Name)
	}
	put(t, filepath.Join(hub, "snapshots", "def", "config.json"), "{}")
	put(t, filepath.Join(hub, "refs", "main"), "999")
	for _, args := range [][]string{{"run", hub, "x"}, {"tokenize", hub, "x"}, {"template", hub}, {"info", hub},
		{"estimate", hub}} {
		if r := command("{}", args...); r.code != 1 || !strings.Contains(r.stderr, "abc, def") {
			t.Errorf("%v: exit code %d, %q", args, r.code, r.stderr)
		}
	}
}
