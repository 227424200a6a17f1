package gatetest

// widths are the dimensions of a model's kernels.
type widths struct {
	name                string
	hidden              int
	heads, kvHeads, dim int
	ffn, vocab          int
	bias, normed        bool // biases on q, k and v; norms per head of q and k
}

func (m widths) q() int  { return m.heads * m.dim }
func (m widths) kv() int { return m.kvHeads * m.dim }

// models returns the nine models that NPU programs exist for, and the small one of this module's
// tests.
//
// Source: the published config.json of each.
func models() []widths {
	return []widths{
		{name: "smollm2-135m", hidden: 576, heads: 9, kvHeads: 3, dim: 64, ffn: 1536, vocab: 49152},
		{name: "llama-3.2-1b", hidden: 2048, heads: 32, kvHeads: 8, dim: 64, ffn: 8192, vocab: 128256},
		{name: "llama-3.2-3b", hidden: 3072, heads: 24, kvHeads: 8, dim: 128, ffn: 8192, vocab: 128256},
		{name: "smollm2-1.7b", hidden: 2048, heads: 32, kvHeads: 32, dim: 64, ffn: 8192, vocab: 49152},
		{name: "qwen2.5-0.5b", hidden: 896, heads: 14, kvHeads: 2, dim: 64, ffn: 4864, vocab: 151936,
			bias: true},
		{name: "qwen2.5-1.5b", hidden: 1536, heads: 12, kvHeads: 2, dim: 128, ffn: 8960, vocab: 151936,
			bias: true},
		{name: "qwen2.5-3b", hidden: 2048, heads: 16, kvHeads: 2, dim: 128, ffn: 11008, vocab: 151936,
			bias: true},
		{name: "qwen3-0.6b", hidden: 1024, heads: 16, kvHeads: 8, dim: 128, ffn: 3072, vocab: 151936,
			normed: true},
		{name: "qwen3-1.7b", hidden: 2048, heads: 16, kvHeads: 8, dim: 128, ffn: 6144, vocab: 151936,
			normed: true},
		{name: "qwen3-4b", hidden: 2560, heads: 32, kvHeads: 8, dim: 128, ffn: 9728, vocab: 151936,
			normed: true},
	}
}
