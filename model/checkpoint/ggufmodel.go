package checkpoint

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu/dtype"
)

// openGGUF opens a mapped GGUF file.
func (c loader) openGGUF(b []byte) error {
	c.format = "gguf"
	c.generation = &Generation{}
	g, err := readGGUF(c.path, b)
	if err != nil {
		return err
	}
	var factors *stored
	tensors := make([]stored, 0, len(g.tensors))
	for _, s := range g.tensors {
		if s.name == "rope_freqs.weight" {
			factors = &s
			continue
		}
		s.inFile, s.name = s.name, hfName(s.name)
		tensors = append(tensors, s)
	}
	if c.config, err = g.config(tensors); err != nil {
		return err
	}
	if factors != nil {
		if err := c.config.RoPE.setFactors(factors, c.config.HeadDim); err != nil {
			return err
		}
	}
	if err := g.text(c); err != nil {
		return err
	}
	if err := c.config.check(c.path); err != nil {
		return err
	}
	used, err := match(c.config, tensors, c.path, "the metadata")
	if err != nil {
		return err
	}
	c.adopt(used, func(name string) int {
		switch {
		case c.config.Family != "llama":
			return 0
		case strings.HasSuffix(name, "self_attn.q_proj.weight"):
			return c.config.Heads
		case strings.HasSuffix(name, "self_attn.k_proj.weight"):
			return c.config.KVHeads
		}
		return 0
	})
	return nil
}

// ggufNames maps parts of tensor names to Hugging Face's.
var ggufNames = map[string]string{
	"token_embd":  "model.embed_tokens",
	"output_norm": "model.norm",
	"output":      "lm_head",

	"attn_norm":   "input_layernorm",
	"attn_q":      "self_attn.q_proj",
	"attn_k":      "self_attn.k_proj",
	"attn_v":      "self_attn.v_proj",
	"attn_q_norm": "self_attn.q_norm",
	"attn_k_norm": "self_attn.k_norm",
	"attn_output": "self_attn.o_proj",
	"ffn_norm":    "post_attention_layernorm",
	"ffn_gate":    "mlp.gate_proj",
	"ffn_up":      "mlp.up_proj",
	"ffn_down":    "mlp.down_proj",
}

// hfName translates a tensor name, "blk.3.attn_q.weight" to
// "model.layers.3.self_attn.q_proj.weight". It returns other names unchanged; match rejects them.
func hfName(name string) string {
	part := strings.Split(name, ".")
	switch {
	case len(part) == 2 && ggufNames[part[0]] != "":
		return ggufNames[part[0]] + "." + part[1]
	case len(part) == 4 && part[0] == "blk" && ggufNames[part[2]] != "":
		return "model.layers." + part[1] + "." + ggufNames[part[2]] + "." + part[3]
	}
	return name
}

// neutral are metadata that change the computation, with the value that has no effect.
var neutral = []struct {
	key   string
	value float64
}{
	{"attention.sliding_window", 0},
	{"attention.scale", 0},
	{"attention.clamp_kqv", 0},
	{"attention.max_alibi_bias", 0},
	{"attn_logit_softcapping", 0},
	{"final_logit_softcapping", 0},
	{"logit_scale", 1},
	{"residual_scale", 1},
	{"embedding_scale", 1},
	{"rope.scaling.attn_factor", 1},
	{"pooling_type", 0},
}

// config reads the architecture.
func (g *gguf) config(tensors []stored) (*Config, error) {
	m := g.metadata()
	arch := m.string("general.architecture")
	no := func(feature string, args ...any) (*Config, error) {
		return nil, unsupported(g.file, fmt.Sprintf(feature, args...), supportedFamilies)
	}
	if !m.has("general.architecture") {
		m.fail("general.architecture", "is missing")
	}
	if n := m.int("split.count", 0); n > 1 {
		return nil, unsupported(g.file, fmt.Sprintf("a GGUF model split into %d files", n),
			"merge them with llama-gguf-split --merge")
	}
	if m.err != nil {
		return nil, m.err
	}
	if n := m.int(arch+".expert_count", 0); n > 0 || strings.Contains(arch, "moe") {
		return no("a mixture of experts (architecture %q, %d experts)", arch, n)
	}
	family, known := families[arch]
	if !known {
		return no("architecture %q", arch)
	}
	for _, n := range neutral {
		if v := m.float(arch+"."+n.key, n.value); v != n.value {
			return no("%s.%s %v", arch, n.key, v)
		}
	}
	if !m.bool(arch+".attention.causal", true) {
		return no("attention that is not causal (an embedding model)")
	}

	c := &Config{
		Family:  arch,
		Name:    m.string("general.name"),
		Layers:  m.int(arch+".block_count", needed),
		Hidden:  m.int(arch+".embedding_length", needed),
		Heads:   m.int(arch+".attention.head_count", needed),
		FFN:     m.int(arch+".feed_forward_length", needed),
		Context: m.int(arch+".context_length", family.context),
		NormEps: m.float(arch+".attention.layer_norm_rms_epsilon", math.NaN()),
		QKVBias: family.qkvBias,
		QKNorm:  family.qkNorm,

		TieEmbeddings: true,
	}
	if c.Name == "" {
		c.Name = strings.TrimSuffix(filepath.Base(g.file), filepath.Ext(g.file))
	}
	c.KVHeads = m.int(arch+".attention.head_count_kv", c.Heads)
	for i := range tensors {
		switch s := &tensors[i]; s.name {
		case "model.embed_tokens.weight":
			c.Vocab = s.shape[0]
		case "lm_head.weight":
			c.TieEmbeddings = false
		}
	}
	if m.err == nil && c.Vocab == 0 {
		return nil, &Error{File: g.file, Tensor: "model.embed_tokens.weight", InFile: "token_embd.weight",
			Problem: "is missing; every model needs it"}
	}
	if n := m.int(arch+".vocab_size", c.Vocab); m.err == nil && n != c.Vocab {
		return nil, fileErrorf(g.file, "%s.vocab_size is %d, but token_embd.weight has %d rows", arch, n, c.Vocab)
	}
	headDim := 0
	if c.Heads > 0 {
		headDim = c.Hidden / c.Heads
	}
	c.HeadDim = m.int(arch+".attention.key_length", headDim)
	if v := m.int(arch+".attention.value_length", c.HeadDim); v != c.HeadDim {
		return no("values of %d elements with keys of %d", v, c.HeadDim)
	}
	if turned := m.int(arch+".rope.dimension_count", c.HeadDim); turned != c.HeadDim {
		return no("RoPE over %d of %d elements per head", turned, c.HeadDim)
	}
	if err := g.rope(m, arch, c); err != nil {
		return nil, err
	}
	return c, m.err
}

// rope reads the parameters of RoPE. As in llama.cpp, a factor without a type means linear scaling.
func (g *gguf) rope(m *metadata, arch string, c *Config) error {
	c.RoPE = RoPE{Theta: m.float(arch+".rope.freq_base", 10000)}
	factor := m.float(arch+".rope.scaling.factor", m.float(arch+".rope.scale_linear", 0))
	switch kind := m.string(arch + ".rope.scaling.type"); kind {
	case "none":
	case "", "linear":
		if factor != 0 && factor != 1 {
			c.RoPE.Scaling, c.RoPE.Factor = "linear", factor
		}
	default:
		return unsupported(g.file, fmt.Sprintf("RoPE scaling %q", kind), supportedRope)
	}
	return nil
}

// setFactors applies the tensor rope_freqs.weight [headDim/2], which divides the inverse
// frequencies. Converters write Llama 3 scaling this way. setFactors searches for the published
// parameters (low 1, high 4, an original context that is a power of two), so that the model is the
// same in both formats. Other factors are kept.
func (r *RoPE) setFactors(s *stored, headDim int) error {
	if s.typ != dtype.F32 || !slices.Equal(s.shape, []int{headDim / 2}) {
		return s.errorf("is %v of %s, but a head dimension of %d requires %v of F32", s.shape, s.typeName, headDim,
			[]int{headDim / 2})
	}
	if r.Scaling != "" {
		return s.errorf("conflicts with %s RoPE scaling: the file must have only one", r.Scaling)
	}
	factors := slices.Clone(dtype.Float32s(s.data))
	unscaled := RoPE{Theta: r.Theta}
	if unscaled.explains(factors, headDim) {
		return nil
	}
	llama3 := RoPE{Theta: r.Theta, Scaling: "llama3", Factor: float64(slices.Max(factors)), LowFreqFactor: 1,
		HighFreqFactor: 4}
	for llama3.OriginalContext = 64; llama3.OriginalContext <= 1<<24; llama3.OriginalContext *= 2 {
		if llama3.explains(factors, headDim) {
			*r = llama3
			return nil
		}
	}
	r.Scaling, r.FreqFactors = "factors", factors
	return nil
}

// explains reports whether the scaling divides the frequencies by the factors, within the FP32
// arithmetic of converters.
func (r RoPE) explains(factors []float32, headDim int) bool {
	plain := RoPE{Theta: r.Theta}.InvFreq(headDim)
	for i, f := range r.InvFreq(headDim) {
		if d := plain[i] / f; !(math.Abs(d-float64(factors[i])) <= 1e-4*d) {
			return false
		}
	}
	return true
}

// text reads the tokenizer and the chat templates, and adds the special ids to the config.
func (g *gguf) text(c loader) error {
	m := g.metadata()
	const ggml = "tokenizer.ggml."
	v := Vocab{
		Model:  m.string(ggml + "model"),
		Pre:    m.string(ggml + "pre"),
		Tokens: m.strings(ggml + "tokens"),
		Merges: m.strings(ggml + "merges"),
		Types:  m.int32s(ggml + "token_type"),
		BOS:    m.id(ggml + "bos_token_id"),
		EOS:    m.id(ggml + "eos_token_id"),
		AddEOS: m.bool(ggml+"add_eos_token", false),
	}
	// By default llama.cpp adds BOS for SentencePiece models and for Llama 3's vocabulary.
	v.AddBOS = m.bool(ggml+"add_bos_token", v.Model == "llama" ||
		slices.Contains([]string{"llama3", "llama-v3", "llama-bpe"}, v.Pre))
	t := &c.text
	t.Templates = m.templates()
	vocab := c.config.Vocab
	if len(v.Tokens) > 0 {
		vocab = min(vocab, len(v.Tokens))
	}
	special := func(key string, id int) []int {
		if id < 0 {
			return nil
		}
		return inVocabulary([]int{id}, vocab, g.file, ggml+key, &c.warnings)
	}
	c.config.BOS = special("bos_token_id", v.BOS)
	// End of sequence, of turn, of message.
	for _, key := range []string{"eos_token_id", "eot_token_id", "eom_token_id"} {
		c.addEnds(ggml+key, special(key, m.id(ggml+key)))
	}
	for _, id := range []*int{&v.BOS, &v.EOS} {
		if *id >= vocab {
			*id = -1
		}
	}
	if m.err != nil || len(v.Tokens) == 0 {
		return m.err
	}
	if rows := c.config.Vocab; len(v.Tokens) > rows {
		return fileErrorf(g.file, "has %d tokens, but token_embd.weight has only %d rows", len(v.Tokens), rows)
	}
	if len(v.Types) != 0 && len(v.Types) != len(v.Tokens) {
		return fileErrorf(g.file, "has %d tokens, but %d token types", len(v.Tokens), len(v.Types))
	}
	for _, special := range []struct {
		id   int
		text *string
	}{{v.BOS, &t.BOS}, {v.EOS, &t.EOS}} {
		if special.id >= 0 {
			*special.text = v.Tokens[special.id]
		}
	}
	t.Vocab = &v
	return nil
}
