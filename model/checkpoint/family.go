package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu/dtype"
)

// want is a tensor of the family.
type want struct {
	name  string
	shape []int
	why   string // fields that determine the shape, with their values
}

// wants returns the tensors of a model, in the order of the forward pass. Projections are [out,
// in].
func (c *Config) wants() []want {
	hidden := fmt.Sprintf("hidden size %d", c.Hidden)
	vocab := fmt.Sprintf("vocabulary size %d, %s", c.Vocab, hidden)
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	qWhy := fmt.Sprintf("%d attention heads x head dimension %d", c.Heads, c.HeadDim)
	kvWhy := fmt.Sprintf("%d key/value heads x head dimension %d", c.KVHeads, c.HeadDim)
	ffn := fmt.Sprintf("feed-forward size %d", c.FFN)
	headDim := fmt.Sprintf("head dimension %d", c.HeadDim)

	all := []want{{"model.embed_tokens.weight", []int{c.Vocab, c.Hidden}, vocab}}
	for i := range c.Layers {
		add := func(name, why string, shape ...int) {
			all = append(all, want{fmt.Sprintf("model.layers.%d.%s", i, name), shape, why})
		}
		add("input_layernorm.weight", hidden, c.Hidden)
		add("self_attn.q_proj.weight", qWhy+", "+hidden, q, c.Hidden)
		add("self_attn.k_proj.weight", kvWhy+", "+hidden, kv, c.Hidden)
		add("self_attn.v_proj.weight", kvWhy+", "+hidden, kv, c.Hidden)
		if c.QKVBias {
			add("self_attn.q_proj.bias", qWhy, q)
			add("self_attn.k_proj.bias", kvWhy, kv)
			add("self_attn.v_proj.bias", kvWhy, kv)
		}
		if c.QKNorm {
			add("self_attn.q_norm.weight", headDim, c.HeadDim)
			add("self_attn.k_norm.weight", headDim, c.HeadDim)
		}
		add("self_attn.o_proj.weight", hidden+", "+qWhy, c.Hidden, q)
		add("post_attention_layernorm.weight", hidden, c.Hidden)
		add("mlp.gate_proj.weight", ffn+", "+hidden, c.FFN, c.Hidden)
		add("mlp.up_proj.weight", ffn+", "+hidden, c.FFN, c.Hidden)
		add("mlp.down_proj.weight", hidden+", "+ffn, c.Hidden, c.FFN)
	}
	all = append(all, want{"model.norm.weight", []int{c.Hidden}, hidden})
	if !c.TieEmbeddings {
		all = append(all, want{"lm_head.weight", []int{c.Vocab, c.Hidden}, vocab})
	}
	return all
}

// harmless reports whether a tensor may be ignored silently: buffers of rotary embeddings, which
// follow from the config, and the copy of the embedding that some writers store as LM head of a
// tied model (transformers ignores it too).
func (c *Config) harmless(name string) bool {
	return strings.HasSuffix(name, "rotary_emb.inv_freq") || c.TieEmbeddings && name == "lm_head.weight"
}

// match returns the stored tensors of a model. The error names the first tensor that is missing,
// wrong or unknown. source is the origin of the architecture, for messages: "config.json" or "the
// metadata". file is the path for missing tensors.
func match(c *Config, found []stored, file, source string) ([]stored, error) {
	byName := make(map[string]*stored, len(found))
	for i := range found {
		s := &found[i]
		if other := byName[s.name]; other != nil {
			return nil, s.errorf("is stored twice, here and in %s", other.file)
		}
		byName[s.name] = s
	}
	wants := c.wants()
	used := make([]stored, 0, len(wants))
	var missing []string
	for _, w := range wants {
		s := byName[w.name]
		if s == nil {
			missing = append(missing, w.name)
			continue
		}
		if err := w.check(s, source); err != nil {
			return nil, err
		}
		used = append(used, *s)
		delete(byName, w.name)
	}
	if len(missing) > 0 {
		problem := "is missing"
		if len(missing) > 1 {
			problem += fmt.Sprintf(", and %d more, such as %q", len(missing)-1, missing[1])
		}
		if missing[0] == "lm_head.weight" {
			problem += fmt.Sprintf(", and %s does not tie it to the embedding (tie_word_embeddings)", source)
		}
		return nil, &Error{File: file, Tensor: missing[0],
			Problem: fmt.Sprintf("%s; a %s model of %d layers needs it", problem, c.Family, c.Layers)}
	}
	var unknown []*stored
	for name, s := range byName {
		if !c.harmless(name) {
			unknown = append(unknown, s)
		}
	}
	if len(unknown) > 0 {
		s := slices.MinFunc(unknown, func(a, b *stored) int { return strings.Compare(a.name, b.name) })
		more := ""
		if len(unknown) > 1 {
			more = fmt.Sprintf(" (nor are %d others)", len(unknown)-1)
		}
		return nil, s.errorf("is not part of a %s model of %d layers%s: computing without it would give wrong "+
			"results; is %s from another model?",
			c.Family, c.Layers, more, source)
	}
	return used, nil
}

// check returns an error if the type or shape of a stored tensor is wrong.
func (w *want) check(s *stored, source string) error {
	switch s.typ {
	case dtype.F32, dtype.F16, dtype.BF16:
	default:
		if !s.typ.Quantized() {
			return s.errorf("is %s; weights may be F32, F16, BF16 or, in GGUF files, a quantized type", s.typeName)
		}
		if len(w.shape) == 1 {
			return s.errorf("is %s; norms and biases must be F32, F16 or BF16", s.typeName)
		}
	}
	if !slices.Equal(s.shape, w.shape) {
		return s.errorf("is %v, but %s requires %v\n  (%s): is it from another model?", s.shape, source, w.shape, w.why)
	}
	return nil
}
