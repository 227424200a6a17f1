package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/npu/dtype"
)

// tiny is the config of a model of a few kilobytes.
func tiny(family string) ckptgen.Spec {
	return ckptgen.Spec{Family: family, Layers: 2, Hidden: 16, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 24, Vocab: 32,
		Type: dtype.F32, Tie: true}
}

func writeTiny(tb testing.TB, s ckptgen.Spec) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	if err := ckptgen.Write(dir, s, 1); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func put(tb testing.TB, file string, b []byte) {
	tb.Helper()
	if err := os.WriteFile(file, b, 0o644); err != nil {
		tb.Fatal(err)
	}
}

func get(tb testing.TB, file string) []byte {
	tb.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// header rewrites the JSON header of a safetensors file.
func header(change func(string) string) func(t testing.TB, dir string) {
	return func(t testing.TB, dir string) {
		file := filepath.Join(dir, "model.safetensors")
		b := get(t, file)
		n := binary.LittleEndian.Uint64(b)
		before := string(b[8 : 8+n])
		after := change(before)
		if after == before {
			t.Fatal("the change changes nothing")
		}
		put(t, file, slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(after))), []byte(after), b[8+n:]))
	}
}

func replace(old, by string) func(t testing.TB, dir string) {
	return header(func(s string) string { return strings.Replace(s, old, by, 1) })
}

// tensors rewrites the file with other tensors.
func tensors(change func([]ckptgen.Tensor) []ckptgen.Tensor) func(t testing.TB, dir string) {
	return func(t testing.TB, dir string) {
		if err := ckptgen.WriteSafetensors(filepath.Join(dir, "model.safetensors"),
			change(tiny("llama").Tensors(1))); err != nil {
			t.Fatal(err)
		}
	}
}

func extra(names ...string) func(t testing.TB, dir string) {
	return tensors(func(all []ckptgen.Tensor) []ckptgen.Tensor {
		for _, name := range names {
			all = append(all, ckptgen.Tensor{Name: name, Type: dtype.F32, Shape: []int{1}, Data: make([]byte, 4)})
		}
		return all
	})
}

func truncate(to int64) func(t testing.TB, dir string) {
	return func(t testing.TB, dir string) {
		if err := os.Truncate(filepath.Join(dir, "model.safetensors"), to); err != nil {
			t.Fatal(err)
		}
	}
}

func config(change fields) func(t testing.TB, dir string) {
	return func(t testing.TB, dir string) {
		file := filepath.Join(dir, "config.json")
		var f fields
		if err := readJSON(file, &f); err != nil {
			t.Fatal(err)
		}
		f.with(change).write(t, file)
	}
}

func remove(names ...string) func(t testing.TB, dir string) {
	return func(t testing.TB, dir string) {
		for _, name := range names {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func instead(remove string, files ...string) func(t testing.TB, dir string) {
	return func(t testing.TB, dir string) {
		if err := os.Remove(filepath.Join(dir, remove)); err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(dir, f), []byte("x"))
		}
	}
}

// Each row breaks a valid checkpoint in one way. The error must name the file and the object.
func TestBadFolders(t *testing.T) {
	const q = `"model.layers.1.self_attn.q_proj.weight"`
	for _, tc := range []struct {
		name   string
		break_ func(t testing.TB, dir string)
		says   []string
		kind   error // for checkError
	}{
		{"no config", remove("config.json"), []string{"config.json: not found in", "model.safetensors"},
			fs.ErrNotExist},
		{"no weights", remove("model.safetensors"), []string{"model.safetensors: not found in", "index.json"},
			fs.ErrNotExist},
		{"Meta's layout", instead("config.json", "original/tokenizer.model", "consolidated.00.pth", "params.json"),
			[]string{"config.json: not found in", "Meta's layout", "tokenizer.json",
				"convert_llama_weights_to_hf"}, fs.ErrNotExist},
		{"only original/", instead("config.json", "original/tokenizer.model"), []string{"Meta's layout"},
			fs.ErrNotExist},
		{"only pickles", instead("model.safetensors", "pytorch_model.bin"),
			[]string{"pytorch_model", "save_pretrained"}, fs.ErrNotExist},
		{"weights of another name", instead("model.safetensors", "weights.safetensors"),
			[]string{"weights.safetensors"}, fs.ErrNotExist},
		{"a GGUF file in a folder", instead("config.json", "tiny.gguf"), []string{"tiny.gguf"}, fs.ErrNotExist},
		{"empty weights", truncate(0), []string{"model.safetensors", "is empty"}, errOfFile},
		{"truncated in the length", truncate(5), []string{"model.safetensors", "5 bytes"}, errOfFile},
		{"truncated in the header", truncate(100), []string{"model.safetensors", "truncated", "Fetch it again"},
			errOfFile},
		{"truncated in the data", truncate(8000), []string{"model.safetensors", "model.layers.", "takes bytes",
			"has only 5992", "truncated", "Fetch it again"}, errOfTensor},
		{"trailing bytes", func(t testing.TB, dir string) {
			file := filepath.Join(dir, "model.safetensors")
			put(t, file, append(get(t, file), 0))
		}, []string{"model.safetensors", "1 bytes follow the last tensor"}, errOfFile},
		{"Git LFS pointer", func(t testing.TB, dir string) {
			put(t, filepath.Join(dir, "model.safetensors"),
				[]byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"))
		}, []string{"Git LFS pointer", "git lfs pull"}, errOfFile},
		{"a folder as weights", func(t testing.TB, dir string) {
			remove("model.safetensors")(t, dir)
			if err := os.Mkdir(filepath.Join(dir, "model.safetensors"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, []string{"is a folder, expected a file"}, errOfFile},
		{"header longer than the file", func(t testing.TB, dir string) {
			put(t, filepath.Join(dir, "model.safetensors"),
				append(binary.LittleEndian.AppendUint64(nil, math.MaxUint64-4), "{}"...))
		}, []string{"header of 18446744073709551611 bytes, but only 2 follow"}, errOfFile},
		{"huge header", func(t testing.TB, dir string) {
			put(t, filepath.Join(dir, "model.safetensors"), append(binary.LittleEndian.AppendUint64(nil, maxHeader+1),
				make([]byte, maxHeader+1)...))
		}, []string{"at most 8388608"}, errOfFile},
		{"header is no JSON", header(func(s string) string { return "!" + s[1:] }), []string{"not valid JSON"},
			errOfFile},
		{"header is a list", header(func(string) string { return "[[]]" }), []string{"model.safetensors"},
			errOfFile},
		{"header is a number", header(func(string) string { return "1" }), []string{"not an object"}, errOfFile},
		{"header is nested", header(func(string) string { return `{"a":` + strings.Repeat("[", 100) }),
			[]string{"nested"}, errOfFile},
		{"overlapping tensors", header(func(s string) string {
			return strings.Replace(s, `"data_offsets":[2048,`, `"data_offsets":[2044,`, 1)
		}), []string{`"model.layers.0.input_layernorm.weight" overlaps "model.embed_tokens.weight"`},
			errOfTensor},
		{"hole between tensors", header(func(s string) string {
			return strings.Replace(s, `"data_offsets":[2048,`, `"data_offsets":[2052,`, 1)
		}), []string{`"model.layers.0.input_layernorm.weight" leaves 4 bytes unused`}, errOfTensor},
		{"offsets of another size", replace(`"shape":[32,16]`, `"shape":[31,16]`),
			[]string{"embed_tokens", "is [31 16] of F32", "2048 bytes"}, errOfTensor},
		{"offsets backwards", replace(`"data_offsets":[0,2048]`, `"data_offsets":[2048,0]`),
			[]string{"embed_tokens", "bytes 2048 to 0"}, errOfTensor},
		{"tensor beyond the file", header(func(s string) string {
			return `{"huge":{"dtype":"U8","shape":[9007199254740992],"data_offsets":[0,9007199254740992]},` + s[1:]
		}), []string{"model.safetensors", `"huge" takes bytes 0 to 9007199254740992`, "truncated"}, errOfTensor},
		{"shape that overflows", replace(`"shape":[32,16]`, `"shape":[4294967296,4294967296,16]`),
			[]string{"embed_tokens", "[4294967296 4294967296 16]"}, errOfTensor},
		{"shape that overflows to the right size", replace(`"shape":[32,16]`, `"shape":[4611686018427388032,16]`),
			[]string{"embed_tokens", "[4611686018427388032 16]"}, errOfTensor},
		{"negative shape", replace(`"shape":[32,16]`, `"shape":[-32,-16]`), []string{"shape"}, errOfFile},
		{"dimension beyond an int", replace(`"shape":[32,16]`, `"shape":[18446744073709551615,0]`),
			[]string{"embed_tokens"}, errOfTensor},
		{"empty tensor", replace(`"shape":[32,16],"data_offsets":[0,2048]`, `"shape":[0,16],"data_offsets":[0,0]`),
			[]string{"embed_tokens"}, errOfTensor},
		{"unknown type", replace(`"F32"`, `"F8_E4M3"`), []string{"F8_E4M3"}, errOfFile},
		{"type that is no weight", replace(`"dtype":"F32","shape":[32,16]`, `"dtype":"U32","shape":[32,16]`),
			[]string{"embed_tokens", "is U32", "BF16"}, errOfTensor},
		{"a tensor twice in the header", header(func(s string) string {
			return `{"model.norm.weight":{"dtype":"F32","shape":[16],"data_offsets":[0,64]},` + s[1:]
		}), []string{"model.norm.weight", "repeated"}, errOfTensor},
		{"wrong shape", replace(`"shape":[32,16]`, `"shape":[16,32]`), []string{"model.safetensors",
			`"model.embed_tokens.weight" is [16 32]`, "[32 16]", "vocabulary size 32"}, errOfTensor},
		{"wrong rank", replace(`"shape":[32,16]`, `"shape":[512]`), []string{"is [512]"}, errOfTensor},
		{"config of another width", config(fields{"num_attention_heads": 2, "num_key_value_heads": 2}),
			[]string{"q_proj.weight", "is [32 16], but config.json requires [16 16]",
				"2 attention heads x head dimension 8"}, errOfTensor},
		{"missing tensor", tensors(func(all []ckptgen.Tensor) []ckptgen.Tensor {
			return slices.DeleteFunc(all, func(t ckptgen.Tensor) bool { return `"`+t.Name+`"` == q })
		}), []string{q, "is missing"}, errOfTensor},
		{"fewer layers than config.json says", config(fields{"num_hidden_layers": 3}),
			[]string{"model.layers.2.input_layernorm.weight", "is missing, and 8 more"}, errOfTensor},
		{"more layers than config.json says", config(fields{"num_hidden_layers": 1}),
			[]string{"model.layers.1.", "is not part of a llama model of 1 layers", "8 others"}, errOfTensor},
		{"untied without LM head", config(fields{"tie_word_embeddings": false}),
			[]string{"lm_head.weight", "is missing", "tie_word_embeddings"}, errOfTensor},
		{"unknown tensor", extra("model.layers.0.self_attn.q_proj.bias"),
			[]string{"q_proj.bias", "is not part of a llama model"}, errOfTensor},
		{"a family that it is not", config(fields{"model_type": "qwen2"}), []string{"q_proj.bias", "is missing"},
			errOfTensor},
		{"unknown family", config(fields{"model_type": "mamba"}), []string{`"mamba"`, "qwen3"}, ErrUnsupported},
		{"broken tokenizer_config.json", func(t testing.TB, dir string) {
			put(t, filepath.Join(dir, "tokenizer_config.json"), []byte(`{"chat_template": 3}`))
		}, []string{"tokenizer_config.json", "chat_template"}, errOfFile},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := writeTiny(t, tiny("llama"))
			tc.break_(t, dir)
			_, err := Open(dir, nil)
			checkError(t, err, tc.says, tc.kind)
		})
	}
}

func TestBadIndexes(t *testing.T) {
	const indexName, first = "model.safetensors.index.json", "model-00001-of-00003.safetensors"
	weightMap := func(change func(m map[string]string)) func(t testing.TB, dir string) {
		return func(t testing.TB, dir string) {
			var h struct {
				WeightMap map[string]string `json:"weight_map"`
			}
			file := filepath.Join(dir, indexName)
			if err := readJSON(file, &h); err != nil {
				t.Fatal(err)
			}
			change(h.WeightMap)
			fields{"weight_map": h.WeightMap}.write(t, file)
		}
	}
	name := func(shard string) func(t testing.TB, dir string) {
		return weightMap(func(m map[string]string) { m["model.norm.weight"] = shard })
	}
	for _, tc := range []struct {
		name   string
		break_ func(t testing.TB, dir string)
		says   []string
	}{
		{"missing shard", remove(first), []string{indexName, first, "1 of its 3"}},
		{"shard that was never there", name("model-00009-of-00003.safetensors"),
			[]string{"model-00009-of-00003.safetensors"}},
		{"truncated shard", func(t testing.TB, dir string) {
			if err := os.Truncate(filepath.Join(dir, first), 3000); err != nil {
				t.Fatal(err)
			}
		}, []string{first, "truncated"}},
		{"path outside the folder", name("../../etc/passwd.safetensors"), []string{indexName, "../../etc"}},
		{"absolute path", name("/etc/passwd.safetensors"), []string{indexName, `"/etc/passwd.safetensors"`}},
		{"path with a backslash", name(`..\x.safetensors`), []string{indexName}},
		{"no safetensors file", name("config.json"), []string{indexName, "config.json"}},
		{"empty file name", name(""), []string{indexName, `""`}},
		{"tensor in another shard", name(first), []string{"model.norm.weight", "should be in", first}},
		{"tensor that the index has not", weightMap(func(m map[string]string) { delete(m, "model.norm.weight") }),
			[]string{"model.norm.weight", "is missing in"}},
		{"tensor that no shard has", weightMap(func(m map[string]string) { m["more"] = first }),
			[]string{`"more"`, "is missing"}},
		{"nothing in the index", func(t testing.TB, dir string) {
			put(t, filepath.Join(dir, indexName),
				[]byte("{}"))
		}, []string{indexName, "no weight_map"}},
		{"index is no JSON", func(t testing.TB, dir string) { put(t, filepath.Join(dir, indexName), []byte("{")) },
			[]string{indexName, "JSON"}},
		{"index with a tensor twice", func(t testing.TB, dir string) {
			put(t, filepath.Join(dir, indexName), []byte(`{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}`))
		}, []string{indexName, `"a" twice`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := tiny("llama")
			s.Shards = 3
			dir := writeTiny(t, s)
			open(t, dir)
			tc.break_(t, dir)
			_, err := Open(dir, nil)
			checkError(t, err, tc.says, nil)
		})
	}
}

func TestBadPaths(t *testing.T) {
	dir := writeTiny(t, tiny("llama"))
	for path, says := range map[string]string{
		filepath.Join(dir, "nowhere"):           "give the path of a Hugging Face folder or of a .gguf file",
		filepath.Join(dir, "model.safetensors"): "open its folder, " + dir,
		filepath.Join(dir, "config.json"):       "open its folder",
		t.TempDir():                             "config.json: not found in",
		os.DevNull:                              "not a regular file",
	} {
		if _, err := Open(path, nil); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want an error saying %q", path, err, says)
		}
	}
	if _, err := Open(filepath.Join(dir, "nowhere"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v does not wrap fs.ErrNotExist", err)
	}
}

func TestHarmlessTensorsAreLeftOut(t *testing.T) {
	dir := writeTiny(t, tiny("llama"))
	plain := len(open(t, dir).Tensors())
	extra("model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq", "lm_head.weight")(t, dir)
	c := open(t, dir)
	if n := len(c.Tensors()); n != plain {
		t.Errorf("%d tensors, want %d", n, plain)
	}
	_, err := c.Tensor("lm_head.weight")
	if err == nil || !strings.Contains(err.Error(), "tied") {
		t.Errorf("the LM head of a tied model: %v", err)
	}
}

// Tensors have the bytes that were written, in the order of their names, in every format.
func TestTensorsAreThoseWritten(t *testing.T) {
	for _, family := range []string{"llama", "qwen2", "qwen3"} {
		for _, shards := range []int{1, 4} {
			s := tiny(family)
			s.Type, s.Shards, s.Tie = dtype.BF16, shards, false
			c := open(t, writeTiny(t, s))
			if c.Format() != "safetensors" {
				t.Errorf("format %q", c.Format())
			}
			var size, elements int64
			for _, want := range s.Tensors(1) {
				got, err := c.Tensor(want.Name)
				if err != nil {
					t.Error(err)
					continue
				}
				data := contents(t, want)
				if !slices.Equal(got.Data, data) || got.Type != dtype.BF16 || !slices.Equal(got.Shape, want.Shape) ||
					!got.Mapped || got.Name != want.Name {
					t.Errorf("%s, %d shards: %s differs", family, shards, want.Name)
				}
				if last := got.Row(got.Shape[0] - 1); !slices.Equal(last, data[len(data)-len(last):]) {
					t.Errorf("the last row of %s is not at its end", want.Name)
				}
				size += int64(len(data))
				elements += int64(got.Elements())
			}
			all := c.Tensors()
			if len(all) != len(s.Tensors(1)) ||
				!slices.IsSortedFunc(all, func(a, b Tensor) int { return strings.Compare(a.Name, b.Name) }) {
				t.Errorf("Tensors lists %d, in order: no", len(all))
			}
			if c.Size() != size || c.Parameters() != elements {
				t.Errorf("%d bytes of %d parameters, want %d of %d", c.Size(), c.Parameters(), size, elements)
			}
		}
	}
}

// Old writers did not pad the header, so all tensors are misaligned. Such a tensor is copied to an
// aligned address.
func TestMisalignedTensorsAreCopied(t *testing.T) {
	dir := writeTiny(t, tiny("llama"))
	want := slices.Clone(must(open(t, dir).Tensor("model.norm.weight")).Data)
	header(func(s string) string { return s + strings.Repeat(" ", 9) })(t, dir)
	w := must(open(t, dir).Tensor("model.norm.weight"))
	if _, ok := dtype.View[float32](w.Data); !ok || w.Mapped || !slices.Equal(w.Data, want) {
		t.Errorf("aligned %v, mapped %v, equal %v", ok, w.Mapped, slices.Equal(w.Data, want))
	}
}

func must(t Tensor, err error) Tensor {
	if err != nil {
		panic(err)
	}
	return t
}

func contents(tb testing.TB, t ckptgen.Tensor) []byte {
	tb.Helper()
	if t.Fill == nil {
		return t.Data
	}
	var w writer
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	if err := t.Fill(&w, n); err != nil {
		tb.Fatal(err)
	}
	return w
}

type writer []byte

func (w *writer) Write(b []byte) (int, error) {
	*w = append(*w, b...)
	return len(b), nil
}

func TestNonFiniteNamesTensors(t *testing.T) {
	for _, tc := range []struct {
		t   dtype.Type
		bad []byte
	}{
		{dtype.F32, []byte{0, 0, 0xc0, 0x7f}}, // NaN
		{dtype.F32, []byte{0, 0, 0x80, 0xff}}, // -Inf
		{dtype.BF16, []byte{0xc0, 0x7f}},
		{dtype.F16, []byte{0x00, 0x7c}}, // Inf
	} {
		s := tiny("llama")
		s.Type = tc.t
		dir := writeTiny(t, s)
		bad, err := open(t, dir).NonFinite(context.Background())
		if err != nil || len(bad) != 0 {
			t.Errorf("%v without NaN: %v, %v", tc.t, bad, err)
		}
		file := filepath.Join(dir, "model.safetensors")
		b := get(t, file)
		copy(b[len(b)-len(tc.bad):], tc.bad) // the file ends with model.norm.weight
		put(t, file, b)
		c := open(t, dir)
		bad, err = c.NonFinite(context.Background())
		if err != nil || !slices.Equal(bad, []string{"model.norm.weight"}) {
			t.Errorf("%v with %x: %v, %v", tc.t, tc.bad, bad, err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := c.NonFinite(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
}

func TestCloseTwiceAndAfter(t *testing.T) {
	c := open(t, writeTiny(t, tiny("llama")))
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Tensor("model.norm.weight"); !errors.Is(err, ErrClosed) {
		t.Errorf("Tensor after Close: %v", err)
	}
	if _, err := c.NonFinite(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("NonFinite after Close: %v", err)
	}
	if c.Config().Layers != 2 || len(c.Tensors()) == 0 {
		t.Error("what is no tensor data stays after Close")
	}
}

func TestTextOfFolders(t *testing.T) {
	for _, tc := range []struct {
		name, config string
		jinja        map[string]string // by path in the folder
		want         map[string]string
		bos, eos     string
	}{
		{name: "nothing"},
		{name: "a string", config: `{"chat_template": "T", "bos_token": "<s>", "eos_token": "</s>"}`,
			want: map[string]string{"default": "T"}, bos: "<s>", eos: "</s>"},
		{name: "a list", config: `{"chat_template": [{"name": "rag", "template": "R"}, {"name": "default", ` +
			`"template": "D"}]}`,
			want: map[string]string{"default": "D", "rag": "R"}},
		{name: "a list without default", config: `{"chat_template": [{"name": "rag", "template": "R"}]}`,
			want: map[string]string{"rag": "R"}},
		{name: "a file of its own wins", config: `{"chat_template": [{"name": "default", "template": "D"}, ` +
			`{"name": "rag", "template": "R"}]}`,
			jinja: map[string]string{"chat_template.jinja": "J"}, want: map[string]string{"default": "J"}},
		{name: "additional templates", config: `{"chat_template": "T"}`,
			jinja: map[string]string{"additional_chat_templates/tool_use.jinja": "U",
				"additional_chat_templates/README.md": "x"},
			want: map[string]string{"default": "T", "tool_use": "U"}},
		{name: "additional templates beside a file", config: `{"chat_template": [{"name": "rag", "template": "R"}]}`,
			jinja: map[string]string{"chat_template.jinja": "J", "additional_chat_templates/tool_use.jinja": "U"},
			want:  map[string]string{"default": "J", "tool_use": "U"}},
		{name: "additional templates alone",
			jinja: map[string]string{"additional_chat_templates/tool_use.jinja": "U"},
			want:  map[string]string{"tool_use": "U"}},
		{name: "objects and null",
			config: `{"chat_template": null, "bos_token": null, "eos_token": {"__type": "AddedToken", "content": ` +
				`"<e>"}}`, eos: "<e>"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := writeTiny(t, tiny("llama"))
			if tc.config != "" {
				put(t, filepath.Join(dir, "tokenizer_config.json"), []byte(tc.config))
			}
			for name, source := range tc.jinja {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				put(t, filepath.Join(dir, name), []byte(source))
			}
			c := open(t, dir)
			if got := c.Text().Templates; !maps.Equal(got, tc.want) {
				t.Errorf("templates %q, want %q", got, tc.want)
			}
			if bos, eos := c.Text().BOS, c.Text().EOS; bos != tc.bos || eos != tc.eos {
				t.Errorf("special tokens %q, %q", bos, eos)
			}
			if c.Text().TokenizerFile != "" {
				t.Error("a tokenizer.json that is not there")
			}
			put(t, filepath.Join(dir, "tokenizer.json"), []byte("{}"))
			if path := open(t, dir).Text().TokenizerFile; path != filepath.Join(dir, "tokenizer.json") {
				t.Errorf("tokenizer file %q", path)
			}
			if c.Text().Vocab != nil {
				t.Error("a folder has no GGUF vocabulary")
			}
		})
	}
}

// The error of a Git LFS pointer names the file and the remedy.
func TestPointers(t *testing.T) {
	pointer := []byte("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab\nsize 98362432\n")
	for _, name := range []string{"config.json", "generation_config.json", "model.safetensors",
		"tokenizer_config.json", "chat_template.jinja"} {
		dir := writeTiny(t, tiny("llama"))
		put(t, filepath.Join(dir, name), pointer)
		_, err := Open(dir, nil)
		checkError(t, err, []string{name, "is a Git LFS pointer", "git lfs pull"}, errOfFile)
	}
	file := filepath.Join(t.TempDir(), "model.gguf")
	put(t, file, pointer)
	_, err := Open(file, nil)
	checkError(t, err, []string{"model.gguf", "is a Git LFS pointer", "git lfs pull"}, errOfFile)
}

// generation_config.json overrides the BOS of config.json. End tokens are the union, each with the
// files that name it.
func TestSpecialTokensOfBothConfigs(t *testing.T) {
	dir := writeTiny(t, tiny("llama")) // config.json: BOS 1, EOS 2
	generation := fields{"eos_token_id": []int{7, 2}, "bos_token_id": 4, "temperature": 0.5}
	generation.write(t, filepath.Join(dir, "generation_config.json"))
	c := open(t, dir)
	got := c.Config()
	if !slices.Equal(got.EOS, []int{7, 2}) || !slices.Equal(got.BOS, []int{4}) || *c.Generation().Temperature != 0.5 {
		t.Errorf("EOS %v, BOS %v, generation %+v", got.EOS, got.BOS, c.Generation())
	}
	want := []EndID{{7, []string{"generation_config.json"}}, {2, []string{"generation_config.json", "config.json"}}}
	if got := c.Text().Ends; !reflect.DeepEqual(got, want) {
		t.Errorf("end tokens %v, want %v", got, want)
	}
	if got := c.Warnings(); len(got) != 0 {
		t.Errorf("warnings %q", got)
	}
}

func TestTinyModelsOpen(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(testenv.Root(), "testdata", "tiny-models", "*", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(dirs) == 0 {
		t.Skip("needs testdata/tiny-models at the root of the repository")
	}
	for _, config := range dirs {
		c := open(t, filepath.Dir(config))
		if bad, err := c.NonFinite(context.Background()); err != nil || len(bad) > 0 {
			t.Errorf("%s: %v, %v", c.Path(), bad, err)
		}
	}
}
