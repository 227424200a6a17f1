package checkpoint

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzConfig checks that reading any bytes as config.json returns an error that names the file, or
// an architecture within the limits whose RoPE frequencies are finite.
func FuzzConfig(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("..", "..", "testdata", "tiny-models", "*", "config.json"))
	if err != nil || len(files) == 0 {
		f.Fatalf("there are no tiny models (%v)", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	for _, text := range []string{
		`{"model_type":"llama","hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,
			"num_key_value_heads":null,"intermediate_size":8,"vocab_size":9,"rms_norm_eps":1e-5,
			"eos_token_id":[1,2],"bos_token_id":null,"torch_dtype":"torch.float16","rope_theta":1e4,
			"rope_scaling":{"type":"linear","factor":2}}`,
		`{"model_type":"qwen3","layer_types":["full_attention"],"num_hidden_layers":1,
			"use_sliding_window":true,"sliding_window":4,"max_window_layers":0}`,
		`{"model_type":"llama","quantization_config":{"quant_method":"gptq"}}`,
		`{"model_type":"mixtral","num_local_experts":8}`, "\ufeff{}", "[]", "GGUF", "",
	} {
		f.Add([]byte(text))
	}
	file := filepath.Join(f.TempDir(), "config.json")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := ReadConfig(file)
		if err != nil {
			var bad *Error
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), "config.json") {
				t.Errorf("the error is none about the file: %v", err)
			}
			return
		}
		for _, l := range limits {
			if n := l.of(c); n < 1 || n > l.max {
				t.Errorf("the %s is %d", l.name, n)
			}
		}
		for i, angle := range c.RoPE.InvFreq(c.HeadDim) {
			if !(angle >= 0 && !math.IsInf(angle, 0)) {
				t.Errorf("frequency %d is %v: %+v", i, angle, c.RoPE)
			}
		}
	})
}
