package ckptgen

import (
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu/dtype"
)

// Chain is a Llama whose greedy text is known: each token determines the next one. Attention and
// FFN are zero and embeddings are one-hot, so the LM head maps each token to its successor. Tokens
// without a successor are followed by token 0.
type Chain struct {
	Control []string   // special tokens, which are not part of the text
	Added   []string   // added tokens that are part of the text
	Words   []string   // further tokens, which only the model generates
	Says    [][]string // runs of tokens, each followed by the next

	Context int // default 2048

	// Fields of the files of a Hugging Face folder. A nil value deletes a field. Without Generation
	// there is no generation_config.json; a string is its content.
	Config          map[string]any
	Generation      any
	TokenizerConfig map[string]any

	Meta []KV // additional or replaced metadata of a GGUF file
}

// Tokens returns the vocabulary, as text.
func (c Chain) Tokens() []string {
	all := append(slices.Clone(c.Control), c.Added...)
	for b := range 256 {
		all = append(all, string([]byte{byte(b)}))
	}
	return append(all, c.Words...)
}

// ID returns the id of a token, and panics if there is none.
func (c Chain) ID(token string) int32 {
	i := slices.Index(c.Tokens(), token)
	if i < 0 {
		panic(fmt.Sprintf("ckptgen: the chain has no token %q", token))
	}
	return int32(i)
}

// IDs returns the ids of tokens.
func (c Chain) IDs(tokens ...string) []int32 {
	ids := make([]int32, len(tokens))
	for i, t := range tokens {
		ids[i] = c.ID(t)
	}
	return ids
}

func (c Chain) spec() Spec {
	n := len(c.Tokens())
	return Spec{
		Family: "llama", Layers: 1, Hidden: (n + 63) &^ 63, Heads: 1, HeadDim: 64, FFN: 64, Vocab: n,
		Context: c.Context, Type: dtype.F32,
	}
}

// tensors returns the weights under Hugging Face's names.
func (c Chain) tensors() []Tensor {
	s := c.spec()
	all := s.Tensors(0)
	next := map[int32]int32{}
	for _, run := range c.Says {
		for i, t := range c.IDs(run...)[1:] {
			next[c.ID(run[i])] = t
		}
	}
	for i := range all {
		t := &all[i]
		values := make([]float32, t.elements())
		switch {
		case t.Name == "model.embed_tokens.weight":
			for id := range s.Vocab {
				values[id*s.Hidden+id] = 1
			}
		case t.Name == "lm_head.weight":
			for from, to := range next {
				values[int(to)*s.Hidden+int(from)] = 1
			}
		case strings.HasSuffix(t.Name, "norm.weight"):
			for j := range values {
				values[j] = 1
			}
		}
		t.Fill = func(w io.Writer, _ int) error { return binary.Write(w, binary.LittleEndian, values) }
	}
	return all
}

// Write makes a Hugging Face folder with a tokenizer.
func (c Chain) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("ckptgen: %w", err)
	}
	s := c.spec()
	s.defaults()
	config := s.config()
	delete(config, "bos_token_id")
	delete(config, "eos_token_id")
	files := map[string]any{"config.json": merged(config, c.Config), "tokenizer.json": c.tokenizer(),
		"tokenizer_config.json": merged(map[string]any{}, c.TokenizerConfig), "generation_config.json": c.Generation}
	for name, v := range files {
		var err error
		file := filepath.Join(dir, name)
		switch v := v.(type) {
		case nil:
		case string:
			err = os.WriteFile(file, []byte(v), 0o644)
		default:
			err = writeJSON(file, v)
		}
		if err != nil {
			return err
		}
	}
	return WriteSafetensors(filepath.Join(dir, "model.safetensors"), c.tensors())
}

func merged(fields, more map[string]any) map[string]any {
	maps.Copy(fields, more)
	maps.DeleteFunc(fields, func(_ string, v any) bool { return v == nil })
	return fields
}

// tokenizer is a tokenizer.json.
func (c Chain) tokenizer() map[string]any {
	var added []map[string]any
	vocab := map[string]int{}
	for id, t := range c.Tokens() {
		if id >= len(c.Control)+len(c.Added) {
			vocab[byteLevel(t)] = id
			continue
		}
		added = append(added, map[string]any{"id": id, "content": t, "special": id < len(c.Control),
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
	}
	return map[string]any{
		"version": "1.0", "added_tokens": added,
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	}
}

// byteLevel writes text in the byte-level alphabet of GPT-2: printable bytes stand for themselves,
// others for letters from U+0100 on, in order.
func byteLevel(text string) string {
	var out strings.Builder
	for _, b := range []byte(text) {
		r, next := rune(b), rune(256)
		for other := range 256 {
			if plain := other > ' ' && other < 0x7f || other > 0xa0 && other != 0xad; plain {
				continue
			}
			if byte(other) == b {
				r = next
			}
			next++
		}
		out.WriteRune(r)
	}
	return out.String()
}

// ggufNames are the names of a chain's tensors in GGUF files.
var ggufNames = strings.NewReplacer(
	"model.embed_tokens", "token_embd", "model.norm", "output_norm", "lm_head", "output", "model.layers.", "blk.",
	"input_layernorm", "attn_norm", "post_attention_layernorm", "ffn_norm",
	"self_attn.q_proj", "attn_q", "self_attn.k_proj", "attn_k", "self_attn.v_proj", "attn_v",
	"self_attn.o_proj", "attn_output",
	"mlp.gate_proj", "ffn_gate", "mlp.up_proj", "ffn_up", "mlp.down_proj", "ffn_down",
)

// WriteGGUF makes a GGUF file with a tokenizer. It names no special tokens: Meta does.
func (c Chain) WriteGGUF(file string) error {
	s := c.spec()
	s.defaults()
	tokens := c.Tokens()
	types := make([]int32, len(tokens))
	for id, t := range tokens {
		switch {
		case id < len(c.Control):
			types[id] = 3
		case id < len(c.Control)+len(c.Added):
			types[id] = 4
		default:
			types[id] = 1
			tokens[id] = byteLevel(t)
		}
	}
	const arch, ggml = "llama.", "tokenizer.ggml."
	meta := []KV{
		{"general.architecture", "llama"}, {"general.name", "chain"},
		{arch + "block_count", uint32(s.Layers)}, {arch + "embedding_length", uint32(s.Hidden)},
		{arch + "attention.head_count", uint32(s.Heads)}, {arch + "attention.key_length", uint32(s.HeadDim)},
		{arch + "attention.value_length", uint32(s.HeadDim)}, {arch + "rope.dimension_count", uint32(s.HeadDim)},
		{arch + "feed_forward_length", uint32(s.FFN)}, {arch + "context_length", uint32(s.Context)},
		{arch + "attention.layer_norm_rms_epsilon", float32(s.NormEps)},
		{ggml + "model", "gpt2"}, {ggml + "pre", "gpt-2"}, {ggml + "tokens", tokens}, {ggml + "token_type", types},
		{ggml + "merges", []string{}},
	}
	for _, kv := range c.Meta {
		meta = append(slices.DeleteFunc(meta, func(old KV) bool { return old.Key == kv.Key }), kv)
	}
	all := c.tensors()
	for i := range all {
		all[i].Name = ggufNames.Replace(all[i].Name)
	}
	return WriteGGUF(file, meta, all)
}
