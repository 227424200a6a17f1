package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nlpodyssey/safetensors"

	"github.com/npukit/npukit/internal/bench"
	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model"
)

// runOutput has the fields of `run --json` that programs outside this module read.
type runOutput struct {
	Text         *string `json:"text"`
	Tokens       []int32 `json:"tokens"`
	PromptTokens int     `json:"prompt_tokens"`
	LoadS        float64 `json:"load_s"`
	TTFTS        float64 `json:"ttft_s"`
	TotalS       float64 `json:"total_s"`
	TokensPerS   float64 `json:"tokens_per_s"`
	TimePerToken float64 `json:"time_per_token_s"`
	Seed         uint64  `json:"seed"`
	StopReason   string  `json:"stop_reason"`
	Logprobs     []struct {
		ID      int32
		Logprob float64
		Top     []struct {
			ID      int32
			Logprob float64
		}
	}
}

// The whole command, from flags to JSON, generates the tokens of Hugging Face's implementation.
func TestRunGivesTheReferenceTokens(t *testing.T) {
	for _, name := range []string{"llama-tied-rope-scaled", "qwen3-qknorm"} {
		data, err := os.ReadFile(filepath.Join(tiny(name), "golden.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		st, err := safetensors.Deserialize(data)
		if err != nil {
			t.Fatal(err)
		}
		numbers := func(name string) (list []string) {
			v, ok := st.Tensor(name)
			if !ok {
				t.Fatalf("no %q", name)
			}
			for b := v.Data(); len(b) > 0; b = b[8:] { // int64, little-endian, all below 65536
				list = append(list, fmt.Sprint(int(b[0])|int(b[1])<<8))
			}
			return list
		}
		ids, want := strings.Join(numbers("input_ids"), ","), strings.Join(numbers("greedy"), ",")
		args := []string{"run", tiny(name), "--ids", ids, "-n", "32", "--temp", "0", "--ignore-eos", "--activations",
			"f32"}
		if got := succeed(t, "", args...); got != want+"\n" {
			t.Errorf("%s: %swant %s", name, got, want)
		}
		out := parse[runOutput](t, succeed(t, "", append(args, "--json")...))
		got := strings.Trim(strings.ReplaceAll(fmt.Sprint(out.Tokens), " ", ","), "[]")
		if got != want || out.Text == nil || *out.Text != "" {
			t.Errorf("%s: --json has %s, want %s and an empty text", name, got, want)
		}
	}
}

// The figures of --json are consistent, as documented.
func TestRunFigures(t *testing.T) {
	out := parse[runOutput](t, succeed(t, "", "run", chatty(t), "Hello", "-n", "20", "--ignore-eos", "--json",
		"--logprobs", "2", "--seed", "5"))
	if len(out.Tokens) != 20 || out.PromptTokens != 1+1+len("user: Hello")+1+len("assistant: ") ||
		out.StopReason != "length" || out.Seed != 5 {
		t.Errorf("%+v", out)
	}
	if want := 19 / (out.TotalS - out.TTFTS); math.Abs(out.TokensPerS/want-1) > 1e-6 {
		t.Errorf("tokens_per_s %v, want (n-1)/(total-ttft) = %v", out.TokensPerS, want)
	}
	if math.Abs(out.TokensPerS*out.TimePerToken-1) > 1e-9 || out.LoadS <= 0 || out.TTFTS <= 0 {
		t.Errorf("%+v", out)
	}
	if len(out.Logprobs) != 20 {
		t.Fatalf("%d log probabilities for 20 tokens", len(out.Logprobs))
	}
	for i, l := range out.Logprobs {
		if l.ID != out.Tokens[i] || len(l.Top) != 2 || l.Logprob > l.Top[0].Logprob ||
			l.Top[0].Logprob < l.Top[1].Logprob || l.Top[0].Logprob > 0 {
			t.Errorf("token %d: %+v", i, l)
		}
	}
}

// Every way to pass a prompt gives the same prompt. --raw and --system change it.
func TestRunPrompts(t *testing.T) {
	m := chatty(t)
	tokens := func(stdin string, args ...string) int {
		t.Helper()
		return parse[runOutput](t, succeed(t, stdin, append([]string{"run", m, "--json", "-n", "1"},
			args...)...)).PromptTokens
	}
	want := tokens("", "Hello\nyou")
	for name, got := range map[string]int{
		"stdin":                       tokens("Hello\nyou", "-"),
		"stdin without -":             tokens("Hello\nyou"),
		"stdin with a newline at end": tokens("Hello\nyou\n"),
		"stdin from Windows":          tokens("Hello\nyou\r\n"),
	} {
		if got != want {
			t.Errorf("%s: %d tokens, want %d", name, got, want)
		}
	}
	if got := tokens("", "--raw", "Hello"); got != 6 {
		t.Errorf("raw: %d tokens, want BOS and 5 bytes", got)
	}
	if got := tokens("", "--raw", ""); got != 1 {
		t.Errorf("raw and empty: %d tokens, want BOS", got)
	}
	if got := tokens("", "--system", "Be nice", "Hello\nyou"); got != want+1+len("system: Be nice") {
		t.Errorf("with a system message: %d tokens, without: %d", got, want)
	}
}

// Sampling flags reach the sampler. Without flags the model's defaults apply.
func TestRunSampling(t *testing.T) {
	m := chatty(t)
	text := func(args ...string) string {
		t.Helper()
		return succeed(t, "", append([]string{"run", m, "Hello", "-n", "24", "--ignore-eos"}, args...)...)
	}
	greedy := text()
	if again := text("--temp", "0", "--seed", "9"); again != greedy {
		t.Errorf("--temp 0 gives %q, greedy is %q", again, greedy)
	}
	if one := text("--temp", "3", "--top-k", "1"); one != greedy {
		t.Errorf("--top-k 1 gives %q, greedy is %q", one, greedy)
	}
	a, b := text("--temp", "1.5", "--seed", "3"), text("--temp", "1.5", "--seed", "4")
	if a != text("--temp", "1.5", "--seed", "3") {
		t.Error("the same seed gives another text")
	}
	if a == b || a == greedy {
		t.Errorf("seeds 3 and 4 and greedy give %q, %q, %q", a, b, greedy)
	}
	if text("--repeat-penalty", "1.8") == greedy {
		t.Error("--repeat-penalty changes nothing")
	}
	write(t, filepath.Join(m, "generation_config.json"), map[string]any{"do_sample": true, "temperature": 1.5})
	// In a file that asks for sampling without top-k, top-k is 50, as in transformers.
	if got, want := text("--seed", "3"), text("--seed", "3", "--temp", "1.5", "--top-k", "50"); got != want {
		t.Errorf("the model's own temperature gives %q, flags give %q", got, want)
	}
	if got := text("--temp", "0"); got != greedy {
		t.Errorf("--temp 0 over the model's own temperature gives %q, want %q", got, greedy)
	}
}

// Generation stops at the requested place, and the output has the reason.
func TestRunStops(t *testing.T) {
	m := chatty(t)
	whole := parse[runOutput](t, succeed(t, "", "run", m, "Hello", "-n", "40", "--ignore-eos", "--temp", "2", "--seed",
		"1", "--json"))
	runes := []rune(*whole.Text)
	stop := string(runes[len(runes)/2 : len(runes)/2+2])
	cut := parse[runOutput](t, succeed(t, "", "run", m, "Hello", "-n", "40", "--ignore-eos", "--temp", "2", "--seed",
		"1", "--json", "--stop", stop, "--stop", "not there"))
	if before, _, _ := strings.Cut(*whole.Text, stop); *cut.Text != before ||
		cut.StopReason != string(model.StopString) {
		t.Errorf("stop %q in %q gives %q, %s", stop, *whole.Text, *cut.Text, cut.StopReason)
	}
	full := parse[runOutput](t, succeed(t, "", "run", m, "Hello", "--ctx", "48", "--ignore-eos", "--json"))
	if full.StopReason != string(model.StopContext) || full.PromptTokens+len(full.Tokens) != 48 {
		t.Errorf("context of 48: %d tokens of prompt, %d generated, %s", full.PromptTokens, len(full.Tokens),
			full.StopReason)
	}
}

// A trace is complete, has three tracks, and its spans are within the run.
func TestRunTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.json")
	succeed(t, "", "run", tiny("smollm-mha"), "--ids", "1,2,3", "-n", "4", "--ignore-eos", "--trace", path)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	trace := parse[struct {
		TraceEvents []struct {
			Name, Cat, Ph string
			TS, Dur       float64
			TID           int
		}
	}](t, string(data))
	tracks := []string{1: "host", 2: "program", 3: "op"}
	names := map[string]int{}
	for _, e := range trace.TraceEvents {
		if e.Ph != "X" {
			continue
		}
		if e.TS < 0 || e.Dur < 0 || e.TID < 1 || tracks[e.TID] != e.Cat {
			t.Errorf("%+v", e)
		}
		names[e.Cat+" "+e.Name]++
	}
	for name, want := range map[string]int{"host load": 1, "host sample": 4, "program layer.0": 4,
		"op layer.1.attn.q": 4, "op head.lm_head": 4} {
		if names[name] != want {
			t.Errorf("%d spans %q, want %d", names[name], name, want)
		}
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// Writing to a link keeps the link.
func TestWriteFileThroughALink(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{file, link} {
		if err := output.File(path, []byte(path)); err != nil {
			t.Error(err)
		}
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is replaced: %v, %v", info, err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != link {
		t.Errorf("the target of the link holds %q, %v", data, err)
	}
}

// run accepts a plan that info writes. Another file is rejected by name.
func TestPlanOutAndIn(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "plan.json")
	succeed(t, "", "info", tiny("qwen2-bias"), "--plan-out", path, "--activations", "f32")
	args := []string{"run", tiny("qwen2-bias"), "--ids", "5,6,7", "-n", "8", "--ignore-eos"}
	if got, want := succeed(t, "", append(args, "--plan", path)...),
		succeed(t, "", append(args, "--activations", "f32")...); got != want {
		t.Errorf("with the plan %s, without %s", got, want)
	}
	if r := command("", "run", tiny("qwen3-qknorm"), "--ids", "1", "--plan", path); r.code != 1 ||
		!strings.Contains(r.stderr, "plan is for") {
		t.Errorf("a plan for another model: exit code %d, %s", r.code, r.stderr)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, broken := range map[string][]byte{
		"half":    data[:len(data)/2],
		"unknown": bytes.Replace(data, []byte(`"chunk"`), []byte(`"chunks"`), 1),
		"none":    []byte("[]"),
	} {
		bad := filepath.Join(dir, name+".json")
		if err := os.WriteFile(bad, broken, 0o644); err != nil {
			t.Fatal(err)
		}
		if r := command("", append(args, "--plan", bad)...); r.code != 1 || !strings.Contains(r.stderr, name+".json") {
			t.Errorf("%s: exit code %d, %s", name, r.code, r.stderr)
		}
	}
}

// In a pipe, chat reads one message per line, prints only answers, and remembers the conversation.
func TestChatFromAPipe(t *testing.T) {
	m := chatty(t)
	args := []string{"chat", m, "-n", "8", "--ignore-eos"}
	first := succeed(t, "Hello\n", args...)
	if n := strings.Count(first, "\n"); n < 1 || !strings.HasSuffix(first, "\n") {
		t.Errorf("one turn gives %q", first)
	}
	if again := succeed(t, "Hello\n\n/clear\nHello", args...); again != first+first {
		t.Errorf("after /clear %q, want %q twice", again, first)
	}
	if again := succeed(t, "Hello\nHello\n", args...); again == first+first || !strings.HasPrefix(again, first) {
		t.Errorf("the second answer ignores the first: %q", again)
	}
	system := succeed(t, "Hello\n", append(args, "--system", "Be brief")...)
	if system == first {
		t.Error("--system changes nothing")
	}
	if got := succeed(t, "/system Be brief\nHello\n/exit\nnever read\n", args...); got != system {
		t.Errorf("/system gives %q, --system %q", got, system)
	}
	if got := succeed(t, "/system Be brief\n/system\nHello\n", args...); got != first {
		t.Errorf("after removing the system message %q, want %q", got, first)
	}
	if got := succeed(t, "", args...); got != "" {
		t.Errorf("no turns give %q", got)
	}
}

// An error in one message is printed, the other messages are answered, and the exit code is 1.
func TestChatGoesOnAfterErrors(t *testing.T) {
	m := chatty(t)
	first := succeed(t, "Hello\n", "chat", m, "-n", "8", "--ignore-eos")
	long := strings.Repeat("long ", 40)
	r := command("/nosuch\nforbidden\n"+long+"\n\xff\nHello\n", "chat", m, "-n", "8", "--ignore-eos", "--ctx", "128")
	if r.code != 1 || r.out != first {
		t.Errorf("exit code %d, stdout %q, want 1 and %q", r.code, r.out, first)
	}
	for _, s := range []string{"unknown command /nosuch", "that word is forbidden", "the context 128: /clear",
		"not valid UTF-8", "4 messages had no answer"} {
		if !strings.Contains(r.stderr, s) {
			t.Errorf("stderr lacks %q:\n%s", s, r.stderr)
		}
	}
}

func TestIsCommand(t *testing.T) {
	for word, want := range map[string]bool{"/clear": true, "/nosuch": true, "/": false, "/etc/passwd": false,
		"clear": false, "/Übung": false} {
		if isCommand(word) != want {
			t.Errorf("isCommand(%q) = %v", word, !want)
		}
	}
}

// info describes the model and where its ops run.
func TestInfoJSON(t *testing.T) {
	got := parse[modelInfo](t, succeed(t, "", "info", tiny("qwen3-qknorm"), "--json", "--in-place"))
	if got.Family != "qwen3" || got.Parameters != 203392 || !got.QKNorm || !got.Tied || got.HasTokenizer ||
		got.HasTemplate || !got.InPlace || got.NonFinite != nil {
		t.Errorf("%+v", got)
	}
	// By default the device may compress the weights, which changes only their size.
	if c := parse[modelInfo](t, succeed(t, "", "info", tiny("qwen3-qknorm"), "--json")); !c.Lossless ||
		c.InPlace != (c.DeviceBytes == c.FileBytes) || c.DeviceBytes < c.FileBytes*3/4 {
		t.Errorf("%d of %d bytes, in place %v, lossless %v", c.DeviceBytes, c.FileBytes, c.InPlace, c.Lossless)
	}
	// 3 layers, keys and values, 2 heads of 32, 2 bytes each
	if got.KV.BytesPerPosition != 3*2*2*32*2 || got.KV.BytesAtFull != got.KV.BytesPerPosition*2048 ||
		got.KV.Type != "BF16" {
		t.Errorf("KV cache: %+v", got.KV)
	}
	count := map[string]int{}
	for _, r := range got.Ops {
		count[r.Phase+" "+r.Op+" "+r.On] += r.Count
	}
	for key, want := range map[string]int{"prefill MatMul cpu": 3*7 + 1, "decode MatMul cpu": 3*7 + 1,
		"decode Attention cpu": 3, "decode sampling host": 1} {
		if count[key] != want {
			t.Errorf("%s: %d launches, want %d", key, count[key], want)
		}
	}
	with := parse[modelInfo](t, succeed(t, "", "info", chatty(t), "--json", "--check", "--ctx", "100"))
	if !with.HasTokenizer || !with.HasTemplate || with.NonFinite == nil || len(*with.NonFinite) != 0 ||
		with.KV.Positions != 100 {
		t.Errorf("%+v", with)
	}
}

// info --check reports weights that are NaN. The model still opens, and run and verify report the
// cause.
func TestInfoCheckFindsNaN(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join(tiny("smollm-mha"), name))
		if err != nil {
			t.Fatal(err)
		}
		if name == "model.safetensors" {
			copy(data[len(data)-4:], []byte{0, 0, 0xc0, 0x7f}) // the last weight, F32
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out := succeed(t, "", "info", dir); strings.Contains(out, "NaN or") {
		t.Errorf("without --check info reads the weights:\n%s", out)
	}
	if out := succeed(t, "", "info", dir, "--check"); !strings.Contains(out, "NaN or infinity in 1 tensor") {
		t.Errorf("info --check does not find the NaN:\n%s", out)
	}
	if r := command("", "run", dir, "--ids", "1"); r.code != 1 || !strings.Contains(r.stderr, "info --check") {
		t.Errorf("run: exit code %d, %s", r.code, r.stderr)
	}
	r := command("", "verify", dir)
	for _, want := range []string{dir, "NaN or infinity in 1 tensor", "model.norm.weight", "info --check"} {
		if r.code != 1 || !strings.Contains(r.stderr, want) {
			t.Errorf("verify: exit code %d, no %q in %s", r.code, want, r.stderr)
		}
	}
	if r := command("", "verify", dir, "--golden", goldenOf("smollm-mha")); r.code != 1 ||
		!strings.Contains(r.out, "info --check") {
		t.Errorf("verify --golden: exit code %d, %s", r.code, r.out)
	}
}

func TestInfoForPeople(t *testing.T) {
	out := succeed(t, "", "info", tiny("llama-tied-rope-scaled"), "--in-place")
	for _, s := range []string{"llama", "scaled as llama3", "no second copy", "bytes a position", "lm_head", "PROGRAM",
		"sampling"} {
		if !strings.Contains(out, s) {
			t.Errorf("no %q in\n%s", s, out)
		}
	}
	for line := range strings.Lines(out) {
		if strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") {
			t.Errorf("spaces at the end of %q", line)
		}
	}
}

// Tokens are printed as lines for a text, as an array with --json, and as arrays for a list.
// Special tokens are added around the text unless a flag disables that.
func TestTokenize(t *testing.T) {
	m := chatty(t)
	lines := succeed(t, "", "tokenize", m, "Hé<|end|>")
	want := "    256  \"<|begin|>\"\n     72  \"H\"\n    195  \"\\xc3\"\n    169  \"\\xa9\"\n    258  \"<|end|>\"\n"
	if lines != want {
		t.Errorf("%s, want\n%s", lines, want)
	}
	for _, tc := range []struct {
		stdin, want string
		args        []string
	}{
		{"", "[256,72,105]\n", []string{m, "Hi", "--json"}},
		{"", "[72,105]\n", []string{m, "Hi", "--json", "--no-special"}},
		{"", "[]\n", []string{m, "", "--json", "--no-special"}},
		{`["Hi", "", "<|end|>"]`, "[[256,72,105],[256],[256,258]]\n", []string{m, "-", "--json"}},
		{`["Hi", ""]`, "[[72,105],[]]\n", []string{filepath.Join(m, "tokenizer.json"), "-", "--json", "--no-special"}},
		{`[]`, "[]\n", []string{m, "--json"}},
	} {
		if got := succeed(t, tc.stdin, append([]string{"tokenize"}, tc.args...)...); got != tc.want {
			t.Errorf("tokenize %v gives %q, want %q", tc.args, got, tc.want)
		}
	}
	if got := succeed(t, "a\n", "tokenize", m, "-", "--no-special"); got != "     97  \"a\"\n     10  \"\\n\"\n" {
		t.Errorf("stdin is changed: %q", got)
	}
}

// A rendered template is printed byte for byte. A model provides its special tokens, which the
// conversation can override.
func TestTemplate(t *testing.T) {
	m := chatty(t)
	file := filepath.Join(t.TempDir(), "template.jinja")
	source := "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ mood }}\n{% endfor %}{{ tools | tojson }}"
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ template, stdin, want string }{
		{m, `{"messages": [{"role": "user", "content": "Hi"}], "add_generation_prompt": true}`,
			"<|begin|><|user|>user: Hi<|user|>assistant: "},
		{m, ` { "messages": [{"role": "user", "content": "Hi"}], "bos_token": "<s>"}`, "<s><|user|>user: Hi"},
		{m, `{"bos_token": null, "messages": [{"role": "user", "content": "Hi"}]}` + "\n", "<|user|>user: Hi"},
		{m, `{"messages": [{"role": "user", "content": "Hi"}]}` + "\n", "<|begin|><|user|>user: Hi"},
		{file, `{"messages": [{"role": "user", "content": "Hi"}], "bos_token": "<s>", "mood": "!", "tools": [{"b": 1,` +
			` "a": 2}]}`, "<s>Hi!\n[{\"b\": 1, \"a\": 2}]"},
	} {
		if got := succeed(t, tc.stdin, "template", tc.template); got != tc.want {
			t.Errorf("%s gives %q, want %q", tc.stdin, got, tc.want)
		}
	}
}

func TestDevices(t *testing.T) {
	list := parse[[]deviceEntry](t, succeed(t, "", "devices", "--json", "--threads", "1", "--kernels", "go"))
	if len(list) != 3 || list[0].Device != "cpu" || !list[0].Available || list[0].Threads != 1 ||
		list[0].Kernels != "go" || !list[1].Virtual {
		t.Errorf("%+v", list)
	}
	if out := succeed(t, "", "devices"); !strings.Contains(out, "predicts its times") {
		t.Error(out)
	}
}

// bench has one result per test, with the median between the extremes and the bytes that the plan
// must read.
func TestBench(t *testing.T) {
	m := tiny("smollm-mha")
	out := succeed(t, "", "bench", m, "--pp", "8,16", "--tg", "4,0", "--reps", "3", "--threads", "1", "--json")
	list := parse[[]bench.Result](t, out)
	var tests []string
	for _, r := range list {
		tests = append(tests, r.Name)
		if r.MinTokensPerS <= 0 || r.TokensPerS < r.MinTokensPerS || r.MaxTokensPerS < r.TokensPerS ||
			len(r.Samples) != 3 || r.Repetitions != 3 {
			t.Errorf("%+v", r)
		}
		if r.Threads != 1 || r.Device != "cpu" || r.DType != "F32" || r.ReadBandwidth <= 0 || r.PeakFLOPsPerS <= 0 ||
			r.PeakShare <= 0 || r.Machine == "" || r.Model == "" {
			t.Errorf("%+v", r)
		}
	}
	if !slices.Equal(tests, []string{"pp8", "pp16", "tg4"}) {
		t.Errorf("tests %v", tests)
	}
	// Decode reads all weights (F32 and tied, so the table is read as the LM head, plus one row as
	// the embedding) and the KV cache up to the token.
	info := parse[modelInfo](t, succeed(t, "", "info", m, "--json"))
	want := float64(info.FileBytes) + float64(4*info.Hidden) + float64(info.KV.BytesPerPosition)*(1+2+3+4)/4
	if got := list[2].BytesPerToken; math.Abs(got-want) > 0.5 {
		t.Errorf("%v bytes per token, want %v", got, want)
	}
	// At depth 12 the same tokens are 12 positions further, and a repetition must not find its
	// prompt in the KV cache.
	deep := parse[[]bench.Result](t, succeed(t, "", "bench", m, "--pp", "8@12", "--tg", "4@12", "--reps", "2",
		"--threads", "1", "--json"))
	if got := deep[1].BytesPerToken - list[2].BytesPerToken; deep[0].Name != "pp8@12" || deep[1].Name != "tg4@12" ||
		math.Abs(got-float64(12*info.KV.BytesPerPosition)) > 0.5 {
		t.Errorf("%s and %s, %v bytes per token more", deep[0].Name, deep[1].Name, got)
	}
	if deep[0].LoadSeconds <= 0 || runtime.GOOS == "linux" && deep[0].PeakRSS < 1<<20 || deep[0].Rho != 0 ||
		deep[1].Rho <= 0 {
		t.Errorf("%+v", deep)
	}
	// Concurrent sessions read the weights once, and generate the same texts as alone.
	both := parse[[]bench.Result](t, succeed(t, "", "bench", m, "--pp", "0", "--tg", "4", "--sessions", "3", "--reps",
		"1", "--threads", "1", "--json"))
	kv := float64(info.KV.BytesPerPosition) * (1 + 2 + 3 + 4) / 4
	if r := both[1]; len(both) != 2 || r.Name != "tg4 x 3" || r.Together == nil || r.Together.Sessions != 3 ||
		!r.Together.SameText || r.Together.Times <= 0 || r.Tokens != 12 ||
		math.Abs(r.BytesPerToken-((both[0].BytesPerToken-kv)/3+kv)) > 0.5 || both[0].Together != nil {
		t.Errorf("%+v", both)
	}
	raw := parse[[]map[string]json.RawMessage](t, out)
	for _, key := range []string{"model", "test", "tokens_per_s"} {
		if raw[0][key] == nil {
			t.Errorf("no %q in %s", key, out)
		}
	}
	if out := succeed(t, "", "bench", m, "--pp", "8", "--tg", "0", "--reps", "1"); !strings.Contains(out, "pp8") {
		t.Error(out)
	}
}

// The demo model answers a question.
func TestRunDemoModel(t *testing.T) {
	m := testenv.DemoModel(t)
	if got := succeed(t, "", "run", m, "What is the capital of France?", "--temp", "0", "-n",
		"16"); got != "The capital of France is Paris.\n" {
		t.Errorf("the answer is %q", got)
	}
}
