package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/npu/dtype"
)

// ggufModel is a model as llama.cpp's converter would write it, including tensors with a different
// row order.
type ggufModel struct {
	meta    []ckptgen.KV
	tensors []ckptgen.Tensor
}

// plain has the tensors under their Hugging Face names and in Hugging Face's order, for comparison.
func newGGUFModel(tb testing.TB, s ckptgen.Spec, typ dtype.Type) (m ggufModel, plain []ckptgen.Tensor) {
	tb.Helper()
	m.meta = []ckptgen.KV{
		{Key: "general.architecture", Value: s.Family},
		{Key: "general.name", Value: "Tiny"},
		{Key: s.Family + ".block_count", Value: uint32(s.Layers)},
		{Key: s.Family + ".embedding_length", Value: uint32(s.Hidden)},
		{Key: s.Family + ".attention.head_count", Value: uint32(s.Heads)},
		{Key: s.Family + ".attention.head_count_kv", Value: uint32(s.KVHeads)},
		{Key: s.Family + ".attention.key_length", Value: uint32(s.HeadDim)},
		{Key: s.Family + ".attention.value_length", Value: uint32(s.HeadDim)},
		{Key: s.Family + ".feed_forward_length", Value: uint32(s.FFN)},
		{Key: s.Family + ".context_length", Value: uint32(512)},
		{Key: s.Family + ".attention.layer_norm_rms_epsilon", Value: float32(1e-5)},
		{Key: s.Family + ".rope.freq_base", Value: float32(500000)},
		{Key: s.Family + ".rope.dimension_count", Value: uint32(s.HeadDim)},
	}
	for _, t := range s.Tensors(1) {
		t.Data, t.Fill = contents(tb, t), nil
		if typ.Quantized() && len(t.Shape) == 2 {
			t.Type, t.Data = typ, randomBlocks(typ, t.Shape)
		}
		plain = append(plain, t)
		if s.Family == "llama" {
			switch {
			case strings.HasSuffix(t.Name, "q_proj.weight"):
				t.Data = interleave(t.Data, t.Shape[0], s.Heads)
			case strings.HasSuffix(t.Name, "k_proj.weight"):
				t.Data = interleave(t.Data, t.Shape[0], s.KVHeads)
			}
		}
		for to, from := range ggufNames {
			t.Name = strings.Replace(t.Name, "."+from+".", "."+to+".", 1)
			if strings.HasPrefix(t.Name, from+".") {
				t.Name = to + strings.TrimPrefix(t.Name, from)
			}
		}
		t.Name = strings.Replace(t.Name, "model.layers.", "blk.", 1)
		m.tensors = append(m.tensors, t)
	}
	return m, plain
}

// interleave reorders rows like the converter: it swaps the middle dimensions of [heads, 2,
// headDim/2, row].
func interleave(data []byte, rows, heads int) []byte {
	half, size := rows/heads/2, len(data)/rows
	out := make([]byte, 0, len(data))
	for h := range heads {
		for i := range half {
			for part := range 2 {
				r := (h*2+part)*half + i
				out = append(out, data[r*size:][:size]...)
			}
		}
	}
	return out
}

// randomBlocks returns blocks with finite scales.
func randomBlocks(t dtype.Type, shape []int) []byte {
	elems, size := t.Block()
	b := make([]byte, shape[0]*shape[1]/elems*size)
	rand.NewChaCha8([32]byte{byte(t)}).Read(b)
	for at := 0; at < len(b); at += size {
		for _, scale := range []int{0, 2, 208} { // where any of the types has its halfs
			if scale < size-1 {
				b[at+scale+1] &= 0xbf // exponent below the special one
			}
		}
	}
	return b
}

func (m ggufModel) write(tb testing.TB) (file string) {
	tb.Helper()
	file = filepath.Join(tb.TempDir(), "tiny.gguf")
	if err := ckptgen.WriteGGUF(file, m.meta, m.tensors); err != nil {
		tb.Fatal(err)
	}
	return file
}

func (m ggufModel) set(key string, value any) ggufModel {
	m.meta = slices.DeleteFunc(slices.Clone(m.meta), func(kv ckptgen.KV) bool { return kv.Key == key })
	if value != nil {
		m.meta = append(m.meta, ckptgen.KV{Key: key, Value: value})
	}
	return m
}

func (m ggufModel) add(t ...ckptgen.Tensor) ggufModel {
	m.tensors = append(slices.Clone(m.tensors), t...)
	return m
}

func TestGGUFTensorsAreThoseOfHuggingFace(t *testing.T) {
	for _, family := range []string{"llama", "qwen2", "qwen3"} {
		for _, typ := range []dtype.Type{dtype.F32, dtype.F16, dtype.BF16, dtype.Q8_0, dtype.Q4_0, dtype.Q4_1,
			dtype.Q5_0, dtype.Q5_1, dtype.Q4_K, dtype.Q5_K, dtype.Q6_K} {
			s := ckptgen.Spec{Family: family, Layers: 1, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 256,
				Vocab: 32, Type: dtype.F32, Tie: typ == dtype.Q8_0}
			if !typ.Quantized() {
				s.Type = typ
			}
			m, plain := newGGUFModel(t, s, typ)
			c := open(t, m.write(t))
			if got := c.Config(); got.DType != typ || got.TieEmbeddings != s.Tie || got.Family != family ||
				c.Format() != "gguf" {
				t.Errorf("%s %v: %+v", family, typ, got)
			}
			if len(c.Tensors()) != len(plain) {
				t.Errorf("%s %v: %d tensors, want %d", family, typ, len(c.Tensors()), len(plain))
			}
			for _, want := range plain {
				got, err := c.Tensor(want.Name)
				if err != nil || got.Type != want.Type || !slices.Equal(got.Shape, want.Shape) ||
					!slices.Equal(got.Data, want.Data) {
					t.Errorf("%s %v: %s differs: %v", family, typ, want.Name, err)
				}
				moved := family == "llama" && (strings.HasSuffix(want.Name, "q_proj.weight") ||
					strings.HasSuffix(want.Name, "k_proj.weight"))
				if got.Mapped == moved {
					t.Errorf("%s %v: %s: mapped %v", family, typ, want.Name, got.Mapped)
				}
			}
			if bad, err := c.NonFinite(context.Background()); err != nil || len(bad) > 0 {
				t.Errorf("%s %v: not finite: %v, %v", family, typ, bad, err)
			}
		}
	}
}

func TestGGUFConfig(t *testing.T) {
	base, _ := newGGUFModel(t, tiny("llama"), dtype.F32)
	want := Config{
		Family: "llama", Name: "Tiny", Layers: 2, Hidden: 16, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 24, Vocab: 32,
		Context: 512, NormEps: 1e-5,
		RoPE: RoPE{Theta: 500000}, TieEmbeddings: true, DType: dtype.F32,
	}
	llama3 := RoPE{Theta: 500000, Scaling: "llama3", Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4,
		OriginalContext: 8192}
	freqs := func(f ...float32) ckptgen.Tensor {
		return ckptgen.Tensor{Name: "rope_freqs.weight", Type: dtype.F32, Shape: []int{len(f)}, Data: dtype.AsBytes(f)}
	}
	var llamaFreqs []float32 // as the converter computes them
	for i, f := range (RoPE{Theta: 500000}).InvFreq(8) {
		llamaFreqs = append(llamaFreqs, float32(f/llama3.InvFreq(8)[i]))
	}
	for _, tc := range []struct {
		name  string
		model ggufModel
		want  func(c *Config)
	}{
		{"as it is", base, func(c *Config) {}},
		{"linear", base.set("llama.rope.scaling.type", "linear").set("llama.rope.scaling.factor", float32(4)),
			func(c *Config) { c.RoPE.Scaling, c.RoPE.Factor = "linear", 4 }},
		{"a factor without a type is linear", base.set("llama.rope.scaling.factor", float32(4)),
			func(c *Config) { c.RoPE.Scaling, c.RoPE.Factor = "linear", 4 }},
		{"type none", base.set("llama.rope.scaling.type", "none").set("llama.rope.scaling.factor", float32(4)),
			func(c *Config) {}},
		{"Llama 3 factors give Llama 3's parameters", base.add(freqs(llamaFreqs...)),
			func(c *Config) { c.RoPE = llama3 }},
		{"factors of one are none", base.add(freqs(1, 1, 1, 1)), func(c *Config) {}},
		{"other factors stay", base.add(freqs(1, 2, 3, 4)), func(c *Config) {
			c.RoPE.Scaling,
				c.RoPE.FreqFactors = "factors", []float32{1, 2, 3, 4}
		}},
		{"name from the file", base.set("general.name", nil), func(c *Config) { c.Name = "tiny" }},
		{"numbers of other widths", base.set("llama.block_count", uint64(2)).set("llama.context_length", int32(512)),
			func(c *Config) {}},
		{"vocabulary size", base.set("llama.vocab_size", uint32(32)), func(c *Config) {}},
		{"defaults", base.set("llama.rope.freq_base", nil).set("llama.context_length", nil),
			func(c *Config) { c.RoPE.Theta, c.Context = 10000, 2048 }},
		{"special tokens", base.set("tokenizer.ggml.bos_token_id", uint32(3)).set("tokenizer.ggml.eos_token_id",
			uint32(4)).set("tokenizer.ggml.eot_token_id", uint32(5)).
			set("tokenizer.ggml.eom_token_id", uint32(4)), func(c *Config) { c.BOS, c.EOS = []int{3}, []int{4, 5} }},
		{"absent special tokens", base.set("tokenizer.ggml.bos_token_id", uint32(math.MaxUint32)), func(c *Config) {}},
	} {
		w := want
		tc.want(&w)
		if got := open(t, tc.model.write(t)).Config(); !reflect.DeepEqual(*got, w) {
			t.Errorf("%s:\n%+v, want\n%+v", tc.name, *got, w)
		}
	}
}

// End tokens are the union of three keys. An id outside the vocabulary is ignored with a warning.
func TestGGUFEndTokens(t *testing.T) {
	base, _ := newGGUFModel(t, tiny("llama"), dtype.F32)
	const ggml = "tokenizer.ggml."
	keys := base.set(ggml+"eos_token_id", uint32(4)).set(ggml+"eot_token_id", uint32(5))
	c := open(t, keys.set(ggml+"eom_token_id", uint32(4)).write(t))
	want := []EndID{{4, []string{ggml + "eos_token_id", ggml + "eom_token_id"}}, {5, []string{ggml + "eot_token_id"}}}
	if got := c.Text().Ends; !reflect.DeepEqual(got, want) {
		t.Errorf("end tokens %v, want %v", got, want)
	}
	keys = base.set(ggml+"tokens", []string{"a", "b", "c"}).set(ggml+"bos_token_id", uint32(3))
	c = open(t, keys.set(ggml+"eot_token_id", uint32(2)).set(ggml+"eos_token_id", uint32(32)).write(t))
	vocab := c.Text().Vocab
	if got := c.Config(); len(got.BOS) != 0 || !slices.Equal(got.EOS, []int{2}) || vocab.BOS != -1 || vocab.EOS != -1 {
		t.Errorf("BOS %v, EOS %v, vocabulary's %d and %d", got.BOS, got.EOS, vocab.BOS, vocab.EOS)
	}
	for i, key := range []string{"bos_token_id is 3", "eos_token_id is 32"} {
		want := ggml + key + ": ignored, since it is outside the vocabulary of 3"
		if got := c.Warnings(); len(got) != 2 || !strings.Contains(got[i], want) {
			t.Errorf("warnings %q, want one about %s", got, key)
		}
	}
}

func TestGGUFText(t *testing.T) {
	base, _ := newGGUFModel(t, tiny("llama"), dtype.F32)
	tokens := make([]string, 32)
	types := make([]int32, 32)
	for i := range tokens {
		tokens[i], types[i] = fmt.Sprintf("t%d", i), 1
	}
	tokens[7] = "" // may be empty, or no UTF-8
	tokens[8] = "\xff"
	m := base.set("tokenizer.ggml.model", "gpt2").set("tokenizer.ggml.pre", "llama-bpe").set("tokenizer.ggml.tokens",
		tokens).
		set("tokenizer.ggml.merges", []string{"a b", "ab c"}).set("tokenizer.ggml.token_type", types).
		set("tokenizer.ggml.bos_token_id", uint32(1)).set("tokenizer.ggml.eos_token_id",
		uint32(2)).set("tokenizer.chat_template", "{{ x }}").
		set("tokenizer.chat_templates", []string{"tool_use"}).set("tokenizer.chat_template.tool_use", "{{ y }}")
	c := open(t, m.write(t))
	got := c.Text().Vocab
	want := &Vocab{Model: "gpt2", Pre: "llama-bpe", Tokens: tokens, Merges: []string{"a b", "ab c"}, Types: types,
		BOS: 1, EOS: 2, AddBOS: true}
	if err := c.Close(); err != nil { // the vocabulary must outlive the mapping
		t.Error(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want\n%+v", got, want)
	}
	if got, want := c.Text().Templates, map[string]string{"default": "{{ x }}",
		"tool_use": "{{ y }}"}; !maps.Equal(got, want) {
		t.Errorf("templates %q, want %q", got, want)
	}
	if bos, eos := c.Text().BOS, c.Text().EOS; bos != "t1" || eos != "t2" {
		t.Errorf("special tokens %q, %q", bos, eos)
	}
	for _, tc := range []struct {
		m      ggufModel
		addBOS bool
	}{
		{m.set("tokenizer.ggml.add_bos_token", false), false},
		{m.set("tokenizer.ggml.pre", "qwen2"), false},
		{m.set("tokenizer.ggml.pre", "qwen2").set("tokenizer.ggml.add_bos_token", true), true},
		{m.set("tokenizer.ggml.pre", "default").set("tokenizer.ggml.model", "llama"), true},
	} {
		if v := open(t, tc.m.write(t)).Text().Vocab; v.AddBOS != tc.addBOS {
			t.Errorf("model %s, pre %s: add BOS %v", v.Model, v.Pre, v.AddBOS)
		}
	}
	bare := open(t, base.write(t))
	if bare.Text().Vocab != nil {
		t.Error("a vocabulary in a file without one")
	}
	if got := bare.Text().Templates; len(got) > 0 {
		t.Errorf("templates %q in a file without one", got)
	}
}

func TestBadGGUF(t *testing.T) {
	base, _ := newGGUFModel(t, tiny("llama"), dtype.F32)
	tensor := func(name string, typ dtype.Type, shape ...int) ckptgen.Tensor {
		n := 1
		for _, d := range shape {
			n *= d
		}
		return ckptgen.Tensor{Name: name, Type: typ, Shape: shape, Data: make([]byte, typ.Bytes(n))}
	}
	edit := func(change func(t *ckptgen.Tensor) bool) ggufModel {
		m := base
		m.tensors = slices.Clone(m.tensors)
		m.tensors = slices.DeleteFunc(m.tensors, func(t ckptgen.Tensor) bool { return !change(&t) })
		return m
	}
	wide, _ := newGGUFModel(t, ckptgen.Spec{Family: "llama", Layers: 1, Hidden: 32, Heads: 1, KVHeads: 1, HeadDim: 32,
		FFN: 32, Vocab: 32, Type: dtype.F32, Tie: true}, dtype.F32)
	wide.tensors[1].Type, wide.tensors[1].Data = dtype.Q8_0, make([]byte, 34)
	for _, tc := range []struct {
		name  string
		model ggufModel
		says  []string
		kind  error
	}{
		{"no architecture", base.set("general.architecture", nil), []string{`"general.architecture" is missing`},
			errOfFile},
		{"unknown architecture", base.set("general.architecture", "mamba"), []string{`architecture "mamba"`},
			ErrUnsupported},
		{"mixture of experts", base.set("llama.expert_count", uint32(8)), []string{"mixture of experts", "8"},
			ErrUnsupported},
		{"mixture of experts by name", base.set("general.architecture", "qwen3moe"), []string{"mixture of experts"},
			ErrUnsupported},
		{"split model", base.set("split.count", int32(3)), []string{"split into 3", "--merge"}, ErrUnsupported},
		{"yarn", base.set("llama.rope.scaling.type", "yarn"), []string{`RoPE scaling "yarn"`}, ErrUnsupported},
		{"sliding window", base.set("llama.attention.sliding_window", uint32(64)), []string{"sliding_window 64"},
			ErrUnsupported},
		{"soft-capped logits", base.set("llama.final_logit_softcapping", float32(30)), []string{"softcapping 30"},
			ErrUnsupported},
		{"not causal", base.set("llama.attention.causal", false), []string{"not causal"}, ErrUnsupported},
		{"values of another width", base.set("llama.attention.value_length", uint32(4)), []string{"values of 4"},
			ErrUnsupported},
		{"partial RoPE", base.set("llama.rope.dimension_count", uint32(4)), []string{"RoPE over 4 of 8"},
			ErrUnsupported},
		{"no number of layers", base.set("llama.block_count", nil), []string{`"llama.block_count" is missing`},
			errOfFile},
		{"a string as number", base.set("llama.block_count", "2"), []string{`"llama.block_count" is of kind string`},
			errOfFile},
		{"heads per layer", base.set("llama.attention.head_count", []int32{4, 2}),
			[]string{"is of kind array, expected an integer"}, errOfFile},
		{"a number as string", base.set("general.architecture", uint32(1)),
			[]string{"is of kind uint32, expected a string"}, errOfFile},
		{"a string as epsilon", base.set("llama.attention.layer_norm_rms_epsilon", "x"), []string{"expected a number"},
			errOfFile},
		{"no epsilon", base.set("llama.attention.layer_norm_rms_epsilon", nil), []string{"epsilon is NaN"},
			errOfFile},
		{"a number as bool", base.set("llama.attention.causal", uint32(1)), []string{"expected a bool"}, errOfFile},
		{"huge layers", base.set("llama.block_count", uint64(math.MaxUint64)), []string{"number of layers"},
			errOfFile},
		{"no heads", base.set("llama.attention.head_count", uint32(0)), []string{"heads is 0"}, errOfFile},
		{"another vocabulary size", base.set("llama.vocab_size", uint32(33)), []string{"vocab_size is 33", "32 rows"},
			errOfFile},
		{"more tokens than rows", base.set("tokenizer.ggml.tokens", make([]string, 33)),
			[]string{"33 tokens", "32 rows"}, errOfFile},
		{"numbers as tokens", base.set("tokenizer.ggml.tokens", []int32{1}), []string{"not an array of strings"},
			errOfFile},
		{"types of other tokens", base.set("tokenizer.ggml.tokens", make([]string, 3)).set("tokenizer.ggml.token_type",
			[]int32{1}), []string{"3 tokens, but 1"}, errOfFile},
		{"metadata twice", ggufModel{append(slices.Clone(base.meta), base.meta[0]), base.tensors},
			[]string{`"general.architecture" is repeated`}, errOfFile},
		{"tensor twice", base.add(tensor("output_norm.weight", dtype.F32, 16)), []string{"output_norm.weight",
			"is repeated"}, errOfTensor},
		{"alignment of zero", base.set("general.alignment", uint32(0)), []string{"general.alignment is 0"},
			errOfFile},
		{"alignment that is no power of two", base.set("general.alignment", uint32(48)),
			[]string{"general.alignment is 48"}, errOfFile},
		{"huge alignment", base.set("general.alignment", uint32(1<<31)), []string{"general.alignment"},
			errOfFile},
		{"tensors off the alignment", base.set("general.alignment", uint32(4096)),
			[]string{"not a multiple of the alignment 4096"}, errOfTensor},
		{"unknown tensor", base.add(tensor("blk.0.attn_q.bias", dtype.F32, 32)),
			[]string{`"blk.0.attn_q.bias" (model.layers.0.self_attn.q_proj.bias)`, "not part of"}, errOfTensor},
		{"tensor of no known name", base.add(tensor("blk.0.ffn_gate_inp.weight", dtype.F32, 8)),
			[]string{`"blk.0.ffn_gate_inp.weight"`, "not part of"}, errOfTensor},
		{"no embedding", edit(func(t *ckptgen.Tensor) bool { return t.Name != "token_embd.weight" }),
			[]string{"token_embd.weight", "is missing"}, errOfTensor},
		{"missing tensor", edit(func(t *ckptgen.Tensor) bool { return t.Name != "blk.1.ffn_up.weight" }),
			[]string{"model.layers.1.mlp.up_proj.weight", "is missing"}, errOfTensor},
		{"integers as weights", base.add(tensor("output.weight", dtype.I32, 32, 16)),
			[]string{"output.weight", "is I32"}, errOfTensor},
		{"quantized norm", wide, []string{"is Q8_0", "norms and biases"}, errOfTensor},
		{"rows that are no whole blocks", base.add(tensor("output.weight", dtype.Q4_K, 32, 16)),
			[]string{"output.weight", "multiple of 256"}, errOfTensor},
		{"wrong shape", base.set("llama.feed_forward_length", uint32(25)), []string{"blk.0.ffn_gate.weight",
			"is [24 16], but the metadata requires [25 16]"}, errOfTensor},
		{"RoPE factors of another length", base.add(tensor("rope_freqs.weight", dtype.F32, 5)),
			[]string{"rope_freqs.weight", "[5]", "[4]"}, errOfTensor},
		{"RoPE factors of zero", base.add(tensor("rope_freqs.weight", dtype.F32, 4)),
			[]string{"frequency factor 0 is 0"}, errOfFile},
		{"RoPE factors and linear scaling", base.set("llama.rope.scaling.factor",
			float32(2)).add(tensor("rope_freqs.weight", dtype.F32, 4)), []string{"rope_freqs.weight", "linear"},
			errOfTensor},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Open(tc.model.write(t), nil)
			checkError(t, err, tc.says, tc.kind)
		})
	}
}

// Kinds of errors for checkError, besides ErrUnsupported and nil, which means any.
var (
	errOfFile   = errors.New("file")
	errOfTensor = errors.New("tensor")
)

// checkError checks that the error contains all of says and is of a kind.
func checkError(t *testing.T, err error, says []string, kind error) {
	t.Helper()
	if err == nil {
		t.Fatal("it opened")
	}
	t.Log(err)
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("it does not say %q", s)
		}
	}
	if !strings.HasPrefix(err.Error(), "checkpoint: ") {
		t.Error("it does not begin with the package")
	}
	switch kind {
	case nil:
	case errOfFile, errOfTensor:
		e := new(Error)
		if !errors.As(err, &e) || (e.Tensor != "") != (kind == errOfTensor) || errors.Is(err, ErrUnsupported) {
			t.Errorf("%T of tensor %q, want an *Error of a %v", err, e.Tensor, kind)
		}
	default:
		if !errors.Is(err, kind) {
			t.Errorf("the error does not wrap %v", kind)
		}
	}
}

// ggufBytes encodes the start of a GGUF file: little-endian numbers (int as 64 bits, uint32 as 32),
// and strings with their length.
func ggufBytes(parts ...any) []byte {
	b := []byte("GGUF")
	for _, p := range parts {
		switch p := p.(type) {
		case uint32:
			b = binary.LittleEndian.AppendUint32(b, p)
		case int:
			b = binary.LittleEndian.AppendUint64(b, uint64(p))
		case string:
			b = append(binary.LittleEndian.AppendUint64(b, uint64(len(p))), p...)
		}
	}
	return b
}

func TestHostileGGUF(t *testing.T) {
	const v3, str, arr, u8, u32 = uint32(3), uint32(8), uint32(9), uint32(0), uint32(4)
	desc := func(dims ...any) []byte { // one tensor "t", no metadata
		head := []any{v3, 1, 0, "t", uint32(len(dims))}
		return ggufBytes(append(append(head, dims...), uint32(0), 0)...)
	}
	nested := []any{v3, 0, 1, "k", arr}
	for range 64 {
		nested = append(nested, arr, 1)
	}
	for _, tc := range []struct {
		name string
		b    []byte
		says []string
		kind error
	}{
		{"only the magic", []byte("GGUF"), []string{"ends at byte 4"}, errOfFile},
		{"version 2", ggufBytes(uint32(2), 0, 0), []string{"version 2"}, ErrUnsupported},
		{"big-endian", ggufBytes(uint32(3<<24), 0, 0), []string{"big-endian"}, ErrUnsupported},
		{"no tensors", ggufBytes(v3, 0, 0), []string{"general.architecture"}, errOfFile},
		{"2^60 entries", ggufBytes(v3, 0, 1<<60), []string{"claims 1152921504606846976 metadata entries"},
			errOfFile},
		{"2^60 tensors", ggufBytes(v3, 1<<60, 0), []string{"claims 1152921504606846976 tensors"}, errOfFile},
		{"more entries than bytes", ggufBytes(v3, 0, 1000), []string{"claims 1000"}, errOfFile},
		{"key of 2^60 bytes", append(ggufBytes(v3, 0, 1, 1<<60), make([]byte, 64)...), []string{"a metadata key"},
			errOfFile},
		{"key of all bits", append(ggufBytes(v3, 0, 1, -1), make([]byte, 64)...), []string{"18446744073709551615"},
			errOfFile},
		{"string of 2^63 bytes", ggufBytes(v3, 0, 1, "k", str, math.MinInt), []string{"bytes of a string"},
			errOfFile},
		{"string past the end", ggufBytes(v3, 0, 1, "k", str, 1), []string{"claims 1 bytes of a string"},
			errOfFile},
		{"unknown kind", ggufBytes(v3, 0, 1, "k", uint32(13), 0), []string{"no value kind 13"}, errOfFile},
		{"array of unknown kind", ggufBytes(v3, 0, 1, "k", arr, uint32(99), 1), []string{"no value kind 99"},
			errOfFile},
		{"array of 2^61 numbers", ggufBytes(v3, 0, 1, "k", arr, u32, 1<<62), []string{"array elements"},
			errOfFile},
		{"array past the end", ggufBytes(v3, 0, 1, "k", arr, u8, 9, uint32(0)), []string{"claims 9 array elements"},
			errOfFile},
		{"array of strings past the end", ggufBytes(v3, 0, 1, "k", arr, str, 2, "a", 100), []string{"damaged"},
			errOfFile},
		{"nested arrays", ggufBytes(nested...), []string{"nested more than 4"}, errOfFile},
		{"must have 1 to 4 dimensions", desc(), []string{"must have 1 to 4 dimensions"}, errOfTensor},
		{"five dimensions", desc(1, 1, 1, 1, 1), []string{"must have 1 to 4 dimensions"}, errOfTensor},
		{"a dimension of zero", desc(0), []string{"dimension of 0"}, errOfTensor},
		{"a dimension of 2^63", desc(math.MinInt), []string{"9223372036854775808"}, errOfTensor},
		{"dimensions that overflow", desc(1<<32, 1<<32), []string{"4294967296"}, errOfTensor},
		{"dimensions that overflow to little", desc(1<<33, 1<<31+1), []string{"no file can hold"}, errOfTensor},
		{"data past the end", desc(64), []string{"truncated"}, errOfTensor},
		{"offset past the end", ggufBytes(v3, 1, 0, "t", uint32(1), 1, uint32(0), 1<<62),
			[]string{"takes bytes 4611686018427387904"}, errOfTensor},
		{"offset of all bits but few", ggufBytes(v3, 1, 0, "t", uint32(1), 1, uint32(0), -32), []string{"takes bytes"},
			errOfTensor},
		{"unsupported type", ggufBytes(v3, 1, 0, "t", uint32(1), 256, uint32(10), 0), []string{`"t" of type Q2_K`,
			"Q6_K"}, ErrUnsupported},
		{"unknown type", ggufBytes(v3, 1, 0, "t", uint32(1), 256, uint32(4), 0), []string{"of type number 4 is not"},
			ErrUnsupported},
		{"overlapping tensors", append(ggufBytes(v3, 2, 0, "a", uint32(1), 64, uint32(0), 0, "b", uint32(1), 1,
			uint32(0), 32), make([]byte, 512)...), []string{`"b" overlaps "a"`}, errOfTensor},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "hostile.gguf")
			put(t, file, tc.b)
			_, err := Open(file, nil)
			checkError(t, err, tc.says, tc.kind)
		})
	}
}

// Every truncated file is an error with advice, unless only padding of the last tensor is missing.
func TestGGUFTruncatedAnywhere(t *testing.T) {
	m, _ := newGGUFModel(t, tiny("llama"), dtype.F32)
	m = m.set("tokenizer.ggml.tokens", make([]string, 32))
	file := m.write(t)
	b := get(t, file)
	for n := 4; n < len(b); n += 1 + n/64 {
		c := &Checkpoint{path: file, entries: map[string]*entry{}}
		err := (loader{c}).openGGUF(b[:n:n])
		if err == nil {
			t.Fatalf("%d of %d bytes opened", n, len(b))
		}
		if !strings.Contains(err.Error(), "Fetch it again") {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
}

func TestMagicDecides(t *testing.T) {
	m, _ := newGGUFModel(t, tiny("qwen3"), dtype.F32)
	odd := filepath.Join(t.TempDir(), "model.bin")
	if err := os.Rename(m.write(t), odd); err != nil {
		t.Fatal(err)
	}
	open(t, odd)
	wrong := filepath.Join(t.TempDir(), "model.gguf")
	put(t, wrong, []byte("PK\x03\x04"))
	_, err := Open(wrong, nil)
	checkError(t, err, []string{"is not a GGUF file"}, errOfFile)
	put(t, wrong, nil)
	_, err = Open(wrong, nil)
	checkError(t, err, []string{"is empty"}, errOfFile)
	_, err = Open(filepath.Join(t.TempDir(), "none.gguf"), nil)
	checkError(t, err, nil, fs.ErrNotExist)
}
