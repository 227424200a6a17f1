package checkpoint

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/npu/dtype"
)

// fields is a config.json.
type fields map[string]any

// oldStyle returns a config in the style of transformers 4.
func oldStyle() fields {
	return fields{
		"model_type": "llama", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
		"num_key_value_heads": 2, "intermediate_size": 24,
		"vocab_size": 32, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "hidden_act": "silu",
		"tie_word_embeddings": true,
		"torch_dtype":         "bfloat16", "rope_theta": 500000.0, "bos_token_id": 1, "eos_token_id": []int{2, 3},
		"rope_scaling": fields{"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
			"original_max_position_embeddings": 64},
	}
}

// with changes fields; nil removes a field.
func (f fields) with(change fields) fields {
	g := maps.Clone(f)
	for k, v := range change {
		if v == nil {
			delete(g, k)
		} else {
			g[k] = v
		}
	}
	return g
}

func (f fields) write(tb testing.TB, file string) string {
	tb.Helper()
	b, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(file, b, 0o644); err != nil {
		tb.Fatal(err)
	}
	return file
}

func (f fields) read(tb testing.TB) (*Config, error) {
	tb.Helper()
	return readConfig(f.write(tb, filepath.Join(tb.TempDir(), "config.json")), new(warnings))
}

func TestOldAndNewStyleMeanTheSame(t *testing.T) {
	old, err := oldStyle().read(t)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Family: "llama", Layers: 2, Hidden: 16, Heads: 4, KVHeads: 2, HeadDim: 4, FFN: 24, Vocab: 32, Context: 256,
		NormEps: 1e-5,
		RoPE: RoPE{Theta: 500000, Scaling: "llama3", Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4,
			OriginalContext: 64},
		TieEmbeddings: true, DType: dtype.BF16, BOS: []int{1}, EOS: []int{2, 3},
	}
	if !reflect.DeepEqual(old, want) {
		t.Errorf("old style:\n%+v, want\n%+v", old, want)
	}
	rope := fields{"rope_theta": 500000.0}
	maps.Copy(rope, oldStyle()["rope_scaling"].(fields))
	renewed, err := oldStyle().with(fields{"torch_dtype": nil, "dtype": "bfloat16", "rope_theta": nil,
		"rope_scaling": nil, "rope_parameters": rope}).read(t)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(renewed, want) {
		t.Errorf("new style:\n%+v, want\n%+v", renewed, want)
	}
}

func TestDefaultsAreThoseOfTransformers(t *testing.T) {
	bare := fields{"model_type": "llama", "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
		"intermediate_size": 24, "vocab_size": 32, "rms_norm_eps": 1e-6}
	for _, tc := range []struct {
		change fields
		want   func(c *Config) bool
	}{
		{fields{}, func(c *Config) bool {
			return c.KVHeads == 4 && c.HeadDim == 24 && c.Context == 2048 && c.RoPE.Theta == 10000 &&
				!c.TieEmbeddings && c.DType == dtype.Invalid && c.EOS == nil
		}},
		{fields{"model_type": "qwen2"}, func(c *Config) bool {
			return c.Context == 32768 && c.QKVBias && !c.QKNorm &&
				c.HeadDim == 24
		}},
		{fields{"model_type": "qwen3"}, func(c *Config) bool { return c.HeadDim == 128 && c.QKNorm && !c.QKVBias }},
		{fields{"rope_scaling": fields{"type": "linear", "factor": 2}},
			func(c *Config) bool { return c.RoPE.Scaling == "linear" && c.RoPE.Factor == 2 }},
		{fields{"rope_scaling": fields{"rope_type": "default"}}, func(c *Config) bool { return c.RoPE.Scaling == "" }},
		{fields{"eos_token_id": 5, "bos_token_id": json.RawMessage("null")},
			func(c *Config) bool { return c.EOS[0] == 5 && c.BOS == nil }},
		{fields{"use_sliding_window": false, "sliding_window": 32, "model_type": "qwen2"},
			func(c *Config) bool { return true }},
		// layers from max_window_layers on have the window: none here
		{fields{"use_sliding_window": true, "sliding_window": 32, "max_window_layers": 2, "model_type": "qwen2"},
			func(c *Config) bool { return true }},
		{fields{"layer_types": []string{"full_attention", "full_attention"}}, func(c *Config) bool { return true }},
		{fields{"torch_dtype": "torch.float16"}, func(c *Config) bool { return c.DType == dtype.F16 }},
	} {
		c, err := bare.with(tc.change).read(t)
		if err != nil || !tc.want(c) {
			t.Errorf("%v: %+v, %v", tc.change, c, err)
		}
	}
}

func TestOtherModelsAreRefusedByName(t *testing.T) {
	for _, tc := range []struct {
		change fields
		says   string
	}{
		{fields{"model_type": "gemma3"}, `model_type "gemma3"`},
		{fields{"model_type": "mistral"}, `model_type "mistral"`},
		{fields{"model_type": "qwen3_moe", "num_experts": 128}, "mixture of experts"},
		{fields{"model_type": "mixtral", "num_local_experts": 8}, "mixture of experts"},
		{fields{"model_type": "deepseek_v3", "kv_lora_rank": 512, "n_routed_experts": 256},
			"multi-head latent attention"},
		{fields{"model_type": "t5", "is_encoder_decoder": true}, "encoder-decoder"},
		{fields{"hidden_act": "gelu"}, `hidden_act "gelu" is not supported (supported is silu)`},
		{fields{"attention_bias": true}, "attention_bias"},
		{fields{"mlp_bias": true}, "mlp_bias"},
		{fields{"model_type": "qwen2", "use_sliding_window": true, "sliding_window": 64, "max_window_layers": 1},
			"sliding attention window"},
		{fields{"model_type": "qwen2", "layer_types": []string{"full_attention", "sliding_attention"}},
			`"sliding_attention" attention in layer 1`},
		{fields{"rope_scaling": fields{"rope_type": "yarn", "factor": 4, "beta_fast": 32}}, `RoPE scaling "yarn"`},
		{fields{"rope_scaling": fields{"type": "dynamic", "factor": 4}}, `RoPE scaling "dynamic"`},
		{fields{"rope_scaling": fields{"rope_type": "longrope", "long_factor": []int{1}}}, `RoPE scaling "longrope"`},
		{fields{"rope_scaling": fields{"rope_type": "default", "mrope_section": []int{16, 24, 24}}}, "mrope_section"},
		{fields{"rope_parameters": fields{"full_attention": fields{"rope_theta": 1}}}, "full_attention"},
		{fields{"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"},
		{fields{"quantization_config": fields{"quant_method": "awq", "bits": 4}}, `quant_method "awq"`},
	} {
		_, err := oldStyle().with(tc.change).read(t)
		if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), tc.says) ||
			!strings.Contains(err.Error(), "config.json") {
			t.Errorf("%v: %v, want an ErrUnsupported with %s", tc.change, err, tc.says)
		}
	}
}

func TestBadConfigs(t *testing.T) {
	for _, tc := range []struct {
		change fields
		says   string
	}{
		{fields{"model_type": nil}, "model_type is missing"},
		{fields{"hidden_size": "16"}, `field "hidden_size" is a JSON string, expected an integer`},
		{fields{"hidden_size": 1.5}, `field "hidden_size"`},
		{fields{"hidden_size": nil}, "hidden_size is missing"},
		{fields{"num_hidden_layers": nil}, "num_hidden_layers is missing"},
		{fields{"intermediate_size": nil}, "intermediate_size is missing"},
		{fields{"vocab_size": 0}, "vocab_size is missing, or 0"},
		{fields{"hidden_size": -16}, "hidden size is -16"},
		{fields{"hidden_size": 17}, "not a multiple of num_attention_heads"},
		{fields{"num_hidden_layers": 1 << 40}, "number of layers"},
		{fields{"vocab_size": 1 << 62}, "vocabulary size"},
		{fields{"num_attention_heads": 0}, "num_attention_heads is missing, or 0"},
		{fields{"num_key_value_heads": 3}, "4 attention heads cannot share 3"},
		{fields{"num_key_value_heads": 0}, "number of key/value heads is 0"},
		{fields{"head_dim": 3}, "must be even"},
		{fields{"rms_norm_eps": nil}, "rms_norm_eps is missing"},
		{fields{"rms_norm_eps": -1}, "epsilon is -1"},
		{fields{"rope_theta": 0}, "theta is 0"},
		{fields{"rope_scaling": fields{"rope_type": "linear"}}, "positive factor"},
		{fields{"rope_scaling": fields{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4,
			"original_max_position_embeddings": 8}}, "low_freq_factor < high_freq_factor"},
		{fields{"rope_scaling": fields{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
			"high_freq_factor": 4}}, "original_max_position_embeddings"},
		{fields{"rope_scaling": "llama3"}, `field "rope_scaling" is a JSON string, expected an object`},
		{fields{"layer_types": []string{"full_attention"}}, "layer_types lists 1 layers"},
	} {
		_, err := oldStyle().with(tc.change).read(t)
		var file *Error
		if !errors.As(err, &file) || !strings.Contains(err.Error(), tc.says) || !strings.Contains(err.Error(),
			"config.json") {
			t.Errorf("%v: %v, want an Error with %s", tc.change, err, tc.says)
		}
	}
	file := filepath.Join(t.TempDir(), "config.json")
	for text, says := range map[string]string{"": "line 1", "{\n\"a\": 1,\n}": "line 3",
		"[1]": "the content is a JSON array, expected an object"} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readConfig(file, new(warnings)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want an error saying %s", text, err, says)
		}
	}
}

func TestPublishedConfigs(t *testing.T) {
	dir := testenv.Shared(t, "configs")
	llama3 := RoPE{Theta: 500000, Scaling: "llama3", Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4,
		OriginalContext: 8192}
	llamaEnd := []int{128001, 128008, 128009}
	for name, want := range map[string]Config{
		"Llama-3.2-1B-Instruct": {Family: "llama", Layers: 16, Hidden: 2048, Heads: 32, KVHeads: 8, HeadDim: 64,
			FFN: 8192, Vocab: 128256, Context: 131072, NormEps: 1e-5, RoPE: llama3, BOS: []int{128000}, EOS: llamaEnd},
		"Llama-3.2-3B-Instruct": {Family: "llama", Layers: 28, Hidden: 3072, Heads: 24, KVHeads: 8, HeadDim: 128,
			FFN: 8192, Vocab: 128256, Context: 131072, NormEps: 1e-5, RoPE: llama3, BOS: []int{128000}, EOS: llamaEnd},
		"Llama-3.2-3B": {Family: "llama", Layers: 28, Hidden: 3072, Heads: 24, KVHeads: 8, HeadDim: 128,
			FFN: 8192, Vocab: 128256, Context: 131072, NormEps: 1e-5, RoPE: llama3, BOS: []int{128000},
			EOS: []int{128001}},
		"SmolLM2-1.7B-Instruct": {Family: "llama", Layers: 24, Hidden: 2048, Heads: 32, KVHeads: 32, HeadDim: 64,
			FFN: 8192, Vocab: 49152, Context: 8192, NormEps: 1e-5, RoPE: RoPE{Theta: 130000}, BOS: []int{1},
			EOS: []int{2}},
		"Qwen2.5-0.5B-Instruct": {Family: "qwen2", Layers: 24, Hidden: 896, Heads: 14, KVHeads: 2, HeadDim: 64,
			FFN: 4864, Vocab: 151936, Context: 32768, NormEps: 1e-6, RoPE: RoPE{Theta: 1e6}, QKVBias: true,
			BOS: []int{151643}, EOS: []int{151645}},
		"Qwen2.5-3B-Instruct": {Family: "qwen2", Layers: 36, Hidden: 2048, Heads: 16, KVHeads: 2, HeadDim: 128,
			FFN: 11008, Vocab: 151936, Context: 32768, NormEps: 1e-6, RoPE: RoPE{Theta: 1e6}, QKVBias: true,
			BOS: []int{151643}, EOS: []int{151645}},
		"Qwen3-0.6B": {Family: "qwen3", Layers: 28, Hidden: 1024, Heads: 16, KVHeads: 8, HeadDim: 128,
			FFN: 3072, Vocab: 151936, Context: 40960, NormEps: 1e-6, RoPE: RoPE{Theta: 1e6}, QKNorm: true,
			BOS: []int{151643}, EOS: []int{151645}},
		"Qwen3-4B": {Family: "qwen3", Layers: 36, Hidden: 2560, Heads: 32, KVHeads: 8, HeadDim: 128,
			FFN: 9728, Vocab: 151936, Context: 40960, NormEps: 1e-6, RoPE: RoPE{Theta: 1e6}, QKNorm: true,
			BOS: []int{151643}, EOS: []int{151645}},
	} {
		want.TieEmbeddings, want.DType = true, dtype.BF16
		got, err := readConfig(filepath.Join(dir, name+".config.json"), new(warnings))
		if err != nil {
			t.Error(err)
		} else if !reflect.DeepEqual(*got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", name, *got, want)
		}
	}
	all, err := filepath.Glob(filepath.Join(dir, "*.config.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range all {
		if _, err := readConfig(file, new(warnings)); err != nil {
			t.Error(err)
		}
	}
}

// The numbers are those of the formula in transformers (_compute_llama3_parameters) for
// Llama-3.2-1B, in float64. Indices 0 to 14 are unchanged, 15 to 17 interpolated, the others
// divided by 32.
func TestInvFreqLlama3(t *testing.T) {
	r := RoPE{Theta: 500000, Scaling: "llama3", Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4, OriginalContext: 8192}
	got := r.InvFreq(64)
	for i, want := range map[int]float64{
		0: 1, 10: 0.016560440080994446, 14: 0.0032114459947525913, 15: 0.001290547928209264, 16: 0.00042955679655936815,
		17: 9.70828780262767e-05, 18: 1.9461638184831125e-05, 31: 9.418306725434909e-08,
	} {
		if math.Abs(got[i]-want) > 1e-12*want {
			t.Errorf("inverse frequency %d is %v, want %v", i, got[i], want)
		}
	}
	plain, linear := RoPE{Theta: 500000}.InvFreq(64), RoPE{Theta: 500000, Scaling: "linear", Factor: 4}.InvFreq(64)
	factors := make([]float32, 32)
	for i := range factors {
		factors[i] = float32(plain[i] / got[i])
		if linear[i] != plain[i]/4 {
			t.Errorf("linear scaling: %v, want %v", linear[i], plain[i]/4)
		}
	}
	for i, f := range (RoPE{Theta: 500000, Scaling: "factors", FreqFactors: factors}).InvFreq(64) {
		if math.Abs(f-got[i]) > 1e-6*got[i] {
			t.Errorf("by factors, inverse frequency %d is %v, want %v", i, f, got[i])
		}
	}
}

// A config.json without weights determines an architecture.
func TestReadConfigAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "some-model")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(testenv.Root(), "testdata", "tiny-models", "qwen2-bias", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"config.json": "some-model", "Tiny.config.json": "Tiny"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		c, err := ReadConfig(file)
		if err != nil || c.Name != want || c.Family != "qwen2" || !c.QKVBias {
			t.Errorf("%s: %+v, %v; want a qwen2 named %s", name, c, err, want)
		}
	}
	if _, err := ReadConfig(filepath.Join(dir, "nothing.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there gives %v", err)
	}
	if _, err := ReadConfig(dir); err == nil || !strings.Contains(err.Error(),
		"some-model: is a folder: give the path of its config.json") {
		t.Errorf("a folder gives %v", err)
	}
	model := filepath.Join(dir, "model.gguf")
	if err := os.WriteFile(model, []byte("GGUF\x03\x00\x00\x00"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadConfig(model); err == nil || !strings.Contains(err.Error(), "is a GGUF file") {
		t.Errorf("a GGUF file gives %v", err)
	}
}
