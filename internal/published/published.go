// Package published has the models whose speed on an XDNA 2 has been published, as configurations
// without weights, their programs, and the tables of their times. Tests compare predictions with
// the times and plans with the programs.
package published

import (
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu/dtype"
)

// Model is a model of the published tables.
type Model struct {
	Name   string // as in the tables: "Llama-3.2-1B"
	Folder string // of its programs in mlir-air, programming_examples/llms: "llama32_1b"
	Config checkpoint.Config

	// HeadFirst is set if the published times are from programs with head-first attention, although
	// today's programs have another layout.
	HeadFirst bool
}

// Models returns the nine models of the 2026-06 table.
//
// Source: their config.json; the times are from Xilinx/mlir-air e972f2942,
// programming_examples/llms/README.md.
func Models() []Model {
	llama3 := checkpoint.RoPE{Theta: 500000, Scaling: "llama3", Factor: 32, LowFreqFactor: 1, HighFreqFactor: 4,
		OriginalContext: 8192}
	qwen := checkpoint.RoPE{Theta: 1e6}
	config := func(name, family string, layers, hidden, heads, kvHeads, headDim, ffn, vocab, context int, eps float64,
		rope checkpoint.RoPE) checkpoint.Config {
		return checkpoint.Config{
			Name: name, Family: family, Layers: layers, Hidden: hidden, Heads: heads, KVHeads: kvHeads,
			HeadDim: headDim, FFN: ffn, Vocab: vocab, Context: context,
			NormEps: eps, RoPE: rope, TieEmbeddings: true, QKVBias: family == "qwen2", QKNorm: family == "qwen3",
			DType: dtype.BF16,
		}
	}
	return []Model{
		{"Llama-3.2-1B", "llama32_1b", config("Llama-3.2-1B", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 1e-5,
			llama3), false},
		{"Llama-3.2-3B", "llama32_3b", config("Llama-3.2-3B", "llama", 28, 3072, 24, 8, 128, 8192, 128256, 131072,
			1e-5, llama3), true},
		{"SmolLM2-1.7B", "smollm2_1_7b", config("SmolLM2-1.7B", "llama", 24, 2048, 32, 32, 64, 8192, 49152, 8192, 1e-5,
			checkpoint.RoPE{Theta: 130000}), false},
		{"Qwen2.5-0.5B", "qwen25_0_5b", config("Qwen2.5-0.5B", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, 1e-6,
			qwen), false},
		{"Qwen2.5-1.5B", "qwen25_1_5b", config("Qwen2.5-1.5B", "qwen2", 28, 1536, 12, 2, 128, 8960, 151936, 32768,
			1e-6, qwen), false},
		{"Qwen2.5-3B", "qwen25_3b", config("Qwen2.5-3B", "qwen2", 36, 2048, 16, 2, 128, 11008, 151936, 32768, 1e-6,
			qwen), false},
		{"Qwen3-0.6B", "qwen3_0_6b", config("Qwen3-0.6B", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e-6,
			qwen), false},
		{"Qwen3-1.7B", "qwen3_1_7b", config("Qwen3-1.7B", "qwen3", 28, 2048, 16, 8, 128, 6144, 151936, 40960, 1e-6,
			qwen), false},
		{"Qwen3-4B", "qwen3_4b", config("Qwen3-4B", "qwen3", 36, 2560, 32, 8, 128, 9728, 151936, 40960, 1e-6, qwen),
			false},
	}
}

// Find returns the model with the given name or folder.
func Find(name string) (Model, bool) {
	for _, m := range Models() {
		if m.Name == name || m.Folder == name {
			return m, true
		}
	}
	return Model{}, false
}
