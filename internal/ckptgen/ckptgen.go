// Package ckptgen writes checkpoints of random weights, for tests and benchmarks that need a model
// of a given family and shape but not a trained one. It shares no code with model/checkpoint, so
// that each can be tested with the other.
//
// Tensors are generated while they are written: a checkpoint of any size takes a few hundred
// kilobytes of memory.
package ckptgen

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/npukit/npukit/npu/dtype"
)

// Spec is a model's family and shape. Zero fields have the documented defaults.
type Spec struct {
	Family  string // "llama", "qwen2" or "qwen3"
	Layers  int
	Hidden  int
	Heads   int
	KVHeads int // default Heads
	HeadDim int // default Hidden/Heads
	FFN     int
	Vocab   int
	Context int // default 2048

	Tie       bool           // no lm_head.weight
	Type      dtype.Type     // BF16 (default), F16 or F32
	NormEps   float64        // default 1e-5
	RopeTheta float64        // default 10000
	Rope      map[string]any // more rope_parameters, for example {"rope_type": "llama3", ...}
	Shards    int            // number of files; more than 1 adds an index
	Extra     map[string]any // additional or replaced fields of config.json
}

// Llama1B is the shape of Llama-3.2-1B: 2.5 GB in BF16.
func Llama1B() Spec {
	return Spec{
		Family: "llama", Layers: 16, Hidden: 2048, Heads: 32, KVHeads: 8, HeadDim: 64, FFN: 8192, Vocab: 128256,
		Context: 131072,
		Tie:     true, RopeTheta: 500000,
		Rope: map[string]any{"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
			"original_max_position_embeddings": 8192},
	}
}

func (s *Spec) defaults() {
	s.KVHeads = positive(s.KVHeads, s.Heads)
	s.HeadDim = positive(s.HeadDim, s.Hidden/max(1, s.Heads))
	s.Context = positive(s.Context, 2048)
	if s.Type == dtype.Invalid {
		s.Type = dtype.BF16
	}
	if s.NormEps == 0 {
		s.NormEps = 1e-5
	}
	if s.RopeTheta == 0 {
		s.RopeTheta = 10000
	}
}

func positive(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

// Write makes a Hugging Face folder: config.json and model.safetensors, or shards with an index.
// Equal specs and seeds give equal files, and a tensor's values depend on seed, name and shape
// only, not on type or sharding. Weights are normal with standard deviation 1/sqrt(inputs), norms
// lie around 1, so that activations keep their size through any number of layers.
func Write(dir string, s Spec, seed uint64) error {
	s.defaults()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("ckptgen: %w", err)
	}
	if err := writeJSON(filepath.Join(dir, "config.json"), s.config()); err != nil {
		return err
	}
	tensors := s.Tensors(seed)
	if s.Shards < 2 {
		return WriteSafetensors(filepath.Join(dir, "model.safetensors"), tensors)
	}
	weightMap, total := map[string]string{}, 0
	for i := range s.Shards {
		name := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, s.Shards)
		shard := tensors[i*len(tensors)/s.Shards : (i+1)*len(tensors)/s.Shards]
		for _, t := range shard {
			weightMap[t.Name] = name
			total += t.bytes()
		}
		if err := WriteSafetensors(filepath.Join(dir, name), shard); err != nil {
			return err
		}
	}
	index := map[string]any{"metadata": map[string]any{"total_size": total}, "weight_map": weightMap}
	return writeJSON(filepath.Join(dir, "model.safetensors.index.json"), index)
}

func writeJSON(file string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = os.WriteFile(file, append(b, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("ckptgen: %w", err)
	}
	return nil
}

func (s *Spec) config() map[string]any {
	rope := map[string]any{"rope_type": "default", "rope_theta": s.RopeTheta}
	for k, v := range s.Rope {
		rope[k] = v
	}
	architecture := map[string]string{"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM",
		"qwen3": "Qwen3ForCausalLM"}[s.Family]
	c := map[string]any{
		"architectures":           []string{architecture},
		"model_type":              s.Family,
		"num_hidden_layers":       s.Layers,
		"hidden_size":             s.Hidden,
		"num_attention_heads":     s.Heads,
		"num_key_value_heads":     s.KVHeads,
		"head_dim":                s.HeadDim,
		"intermediate_size":       s.FFN,
		"vocab_size":              s.Vocab,
		"max_position_embeddings": s.Context,
		"rms_norm_eps":            s.NormEps,
		"rope_parameters":         rope,
		"tie_word_embeddings":     s.Tie,
		"hidden_act":              "silu",
		"dtype": map[dtype.Type]string{dtype.BF16: "bfloat16", dtype.F16: "float16",
			dtype.F32: "float32"}[s.Type],
		"bos_token_id": min(1, s.Vocab-1),
		"eos_token_id": min(2, s.Vocab-1),
	}
	for k, v := range s.Extra {
		c[k] = v
	}
	return c
}

// Tensors lists the model's tensors under Hugging Face's names, with their random contents.
func (s Spec) Tensors(seed uint64) []Tensor {
	s.defaults()
	var all []Tensor
	add := func(name string, mean, std float64, shape ...int) {
		h := fnv.New64a()
		_, _ = io.WriteString(h, name)
		all = append(all, Tensor{Name: name, Type: s.Type, Shape: shape, Fill: random(s.Type, mean, std, seed,
			h.Sum64())})
	}
	weight := func(name string, out, in int) { add(name, 0, 1/math.Sqrt(float64(in)), out, in) }
	norm := func(name string, n int) { add(name, 1, 0.1, n) }
	q, kv := s.Heads*s.HeadDim, s.KVHeads*s.HeadDim
	weight("model.embed_tokens.weight", s.Vocab, s.Hidden)
	for i := range s.Layers {
		l := fmt.Sprintf("model.layers.%d.", i)
		norm(l+"input_layernorm.weight", s.Hidden)
		weight(l+"self_attn.q_proj.weight", q, s.Hidden)
		weight(l+"self_attn.k_proj.weight", kv, s.Hidden)
		weight(l+"self_attn.v_proj.weight", kv, s.Hidden)
		weight(l+"self_attn.o_proj.weight", s.Hidden, q)
		switch s.Family {
		case "qwen2":
			add(l+"self_attn.q_proj.bias", 0, 0.5, q)
			add(l+"self_attn.k_proj.bias", 0, 0.5, kv)
			add(l+"self_attn.v_proj.bias", 0, 0.1, kv)
		case "qwen3":
			norm(l+"self_attn.q_norm.weight", s.HeadDim)
			norm(l+"self_attn.k_norm.weight", s.HeadDim)
		}
		norm(l+"post_attention_layernorm.weight", s.Hidden)
		weight(l+"mlp.gate_proj.weight", s.FFN, s.Hidden)
		weight(l+"mlp.up_proj.weight", s.FFN, s.Hidden)
		weight(l+"mlp.down_proj.weight", s.Hidden, s.FFN)
	}
	norm("model.norm.weight", s.Hidden)
	if !s.Tie {
		weight("lm_head.weight", s.Vocab, s.Hidden)
	}
	return all
}
