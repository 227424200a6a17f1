package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/npukit/npukit/npu/dtype"
)

// families are the supported model types, with the defaults of transformers.
var families = map[string]struct {
	context         int
	headDim         int // 0: hidden_size / num_attention_heads
	qkvBias, qkNorm bool
}{
	"llama": {context: 2048},
	"qwen2": {context: 32768, qkvBias: true},
	"qwen3": {context: 32768, headDim: 128, qkNorm: true},
}

const supportedFamilies = `supported are the families llama, qwen2 and qwen3: Llama, SmolLM2, Qwen2, Qwen2.5, Qwen3`

// hfConfig has the fields of config.json that determine the computation, in the old and the new
// style. Pointers distinguish a missing field from zero.
type hfConfig struct {
	ModelType     string  `json:"model_type"`
	Hidden        int     `json:"hidden_size"`
	Layers        int     `json:"num_hidden_layers"`
	Heads         int     `json:"num_attention_heads"`
	KVHeads       *int    `json:"num_key_value_heads"`
	HeadDim       *int    `json:"head_dim"`
	FFN           int     `json:"intermediate_size"`
	Vocab         int     `json:"vocab_size"`
	Context       *int    `json:"max_position_embeddings"`
	NormEps       float64 `json:"rms_norm_eps"`
	HiddenAct     string  `json:"hidden_act"`
	TieEmbeddings bool    `json:"tie_word_embeddings"`

	BOS json.RawMessage `json:"bos_token_id"` // settings.ids reads them
	EOS json.RawMessage `json:"eos_token_id"`

	DType      string `json:"dtype"`       // new
	TorchDType string `json:"torch_dtype"` // old

	RopeParameters map[string]json.RawMessage `json:"rope_parameters"` // new
	RopeScaling    map[string]json.RawMessage `json:"rope_scaling"`    // old
	RopeTheta      *float64                   `json:"rope_theta"`      // old
	PartialRotary  *float64                   `json:"partial_rotary_factor"`

	AttentionBias    bool     `json:"attention_bias"`
	MLPBias          bool     `json:"mlp_bias"`
	UseSlidingWindow bool     `json:"use_sliding_window"`
	SlidingWindow    *int     `json:"sliding_window"`
	MaxWindowLayers  *int     `json:"max_window_layers"`
	LayerTypes       []string `json:"layer_types"`

	EncoderDecoder     bool            `json:"is_encoder_decoder"`
	Experts            int             `json:"num_experts"`
	LocalExperts       int             `json:"num_local_experts"`
	RoutedExperts      int             `json:"n_routed_experts"`
	KVLoraRank         int             `json:"kv_lora_rank"`
	QuantizationConfig json.RawMessage `json:"quantization_config"`
}

// ReadConfig reads a config.json without weights, for planning and estimates. The name is that of
// the file without ".config.json", or of its folder.
func ReadConfig(file string) (*Config, error) {
	if err := noConfig(file); err != nil {
		return nil, err
	}
	c, err := readConfig(file, new(warnings))
	if err != nil {
		return nil, err
	}
	if c.Name = strings.TrimSuffix(filepath.Base(file), ".config.json"); c.Name == "config.json" {
		if abs, err := filepath.Abs(file); err == nil {
			c.Name = filepath.Base(filepath.Dir(abs))
		}
	}
	return c, c.check(file)
}

// noConfig returns an error if file is a whole model instead of a config.json.
func noConfig(file string) error {
	f, _, err := openRegular(file)
	if err != nil {
		if info, e := os.Stat(file); e == nil && info.IsDir() {
			return fileErrorf(file, "is a folder: give the path of its config.json")
		}
		return err
	}
	defer f.Close()
	var magic [4]byte
	// Other problems are found when the whole file is read.
	if n, _ := f.Read(magic[:]); string(magic[:n]) == "GGUF" {
		return fileErrorf(file, "is a GGUF file, which has no config.json: use Open and Checkpoint.Config")
	}
	return nil
}

// readConfig reads config.json. The end tokens are only those of this file.
func readConfig(file string, w *warnings) (*Config, error) {
	var h hfConfig
	if err := readJSON(file, &h); err != nil {
		return nil, err
	}
	if err := h.unsupported(file); err != nil {
		return nil, err
	}
	if field := h.missing(); field != "" {
		return nil, fileErrorf(file, "%s is missing, or 0: is this the whole config.json of a language model?", field)
	}
	family := families[h.ModelType]
	c := &Config{
		Family:  h.ModelType,
		Layers:  h.Layers,
		Hidden:  h.Hidden,
		Heads:   h.Heads,
		KVHeads: or(h.KVHeads, h.Heads),
		FFN:     h.FFN,
		Vocab:   h.Vocab,
		Context: or(h.Context, family.context),
		NormEps: h.NormEps,

		TieEmbeddings: h.TieEmbeddings,
		QKVBias:       family.qkvBias,
		QKNorm:        family.qkNorm,
		DType:         hfDType(h.DType, h.TorchDType),
	}
	switch {
	case h.HeadDim != nil:
		c.HeadDim = *h.HeadDim
	case family.headDim != 0:
		c.HeadDim = family.headDim
	case h.Heads > 0 && h.Hidden%h.Heads == 0:
		c.HeadDim = h.Hidden / h.Heads
	default:
		return nil, fileErrorf(file, "head_dim is missing, and hidden_size %d is not a multiple of "+
			"num_attention_heads %d", h.Hidden, h.Heads)
	}
	fields := map[string]json.RawMessage{"bos_token_id": h.BOS, "eos_token_id": h.EOS}
	tokens := settings{file: file, warn: w, fields: fields}
	c.BOS, c.EOS = tokens.ids("bos_token_id", c.Vocab), tokens.ids("eos_token_id", c.Vocab)
	var err error
	if c.RoPE, err = h.rope(file); err != nil {
		return nil, err
	}
	return c, c.check(file)
}

// missing returns the first required field that is missing, or "".
func (h *hfConfig) missing() string {
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"num_hidden_layers", float64(h.Layers)},
		{"hidden_size", float64(h.Hidden)},
		{"num_attention_heads", float64(h.Heads)},
		{"intermediate_size", float64(h.FFN)},
		{"vocab_size", float64(h.Vocab)},
		{"rms_norm_eps", h.NormEps},
	} {
		if f.value == 0 {
			return f.name
		}
	}
	return ""
}

// unsupported returns an error if the model uses an unsupported feature. The most informative
// reason comes first.
func (h *hfConfig) unsupported(file string) error {
	no := func(format string, args ...any) error {
		return unsupported(file, fmt.Sprintf(format, args...), supportedFamilies)
	}
	if q := h.QuantizationConfig; q != nil && string(q) != "null" {
		var method struct {
			Name string `json:"quant_method"`
		}
		_ = json.Unmarshal(q, &method) // only to name it
		return unsupported(file,
			fmt.Sprintf("a quantized Hugging Face checkpoint (quantization_config, quant_method %q)",
				method.Name), "supported are F32, F16 and BF16 weights in safetensors, and quantized ones in GGUF")
	}
	_, known := families[h.ModelType]
	switch {
	case h.ModelType == "":
		return fileErrorf(file, "model_type is missing: is this the config.json of a language model?")
	case h.EncoderDecoder:
		return no("an encoder-decoder model (is_encoder_decoder, model_type %q)", h.ModelType)
	case h.KVLoraRank > 0:
		return no("multi-head latent attention (kv_lora_rank %d, model_type %q)", h.KVLoraRank, h.ModelType)
	case max(h.Experts, h.LocalExperts, h.RoutedExperts) > 0 || strings.Contains(h.ModelType, "moe"):
		return no("a mixture of experts (model_type %q, %d experts)", h.ModelType, max(h.Experts, h.LocalExperts,
			h.RoutedExperts))
	case !known:
		return no("model_type %q", h.ModelType)
	case h.HiddenAct != "" && h.HiddenAct != "silu":
		return unsupported(file, fmt.Sprintf("hidden_act %q", h.HiddenAct), "supported is silu")
	case h.AttentionBias:
		return no("attention_bias true (biases on q, k, v and o) in model_type %q", h.ModelType)
	case h.MLPBias:
		return no("mlp_bias true")
	case h.PartialRotary != nil && *h.PartialRotary != 1:
		return no("partial_rotary_factor %v", *h.PartialRotary)
	}
	for i, t := range h.LayerTypes {
		if t != "full_attention" {
			return no("%q attention in layer %d (layer_types)", t, i)
		}
	}
	if h.LayerTypes != nil && len(h.LayerTypes) != h.Layers {
		return fileErrorf(file, "layer_types lists %d layers, num_hidden_layers is %d", len(h.LayerTypes), h.Layers)
	}
	// Without layer_types, layers from max_window_layers on use the window; transformers' default
	// is 28.
	if h.LayerTypes == nil && h.UseSlidingWindow && h.SlidingWindow != nil && or(h.MaxWindowLayers, 28) < h.Layers {
		return no("a sliding attention window (use_sliding_window, sliding_window %d)", *h.SlidingWindow)
	}
	return nil
}

// rope reads rope_parameters, or else rope_theta and rope_scaling.
func (h *hfConfig) rope(file string) (RoPE, error) {
	field, params := "rope_parameters", h.RopeParameters
	if params == nil {
		field, params = "rope_scaling", h.RopeScaling
	}
	// Unknown parameters (mrope_section, a map per layer type, ...) change the angles, so they are
	// errors.
	known := []string{"rope_type", "type", "rope_theta", "partial_rotary_factor",
		"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if !slices.Contains(known, name) && isRopeKind(params) {
			return RoPE{}, unsupported(file, fmt.Sprintf("%s with %q", field, name), supportedRope)
		}
	}
	var p struct {
		RopeType      string   `json:"rope_type"`
		Type          string   `json:"type"` // older spelling of rope_type
		Theta         *float64 `json:"rope_theta"`
		Factor        float64  `json:"factor"`
		Low           float64  `json:"low_freq_factor"`
		High          float64  `json:"high_freq_factor"`
		Original      int      `json:"original_max_position_embeddings"`
		PartialRotary *float64 `json:"partial_rotary_factor"`
	}
	text, err := json.Marshal(params)
	if err != nil {
		return RoPE{}, &Error{File: file, Problem: field, Err: err}
	}
	if err := decodeJSON(file, text, &p); err != nil {
		return RoPE{}, err
	}
	if p.PartialRotary != nil && *p.PartialRotary != 1 {
		return RoPE{}, unsupported(file, fmt.Sprintf("partial_rotary_factor %v",
			*p.PartialRotary), "RoPE must cover the whole head")
	}
	r := RoPE{Theta: or(p.Theta, or(h.RopeTheta, 10000))}
	kind := p.RopeType
	if kind == "" {
		kind = p.Type
	}
	switch kind {
	case "", "default":
	case "linear":
		r.Scaling, r.Factor = kind, p.Factor
	case "llama3":
		r.Scaling, r.Factor, r.LowFreqFactor, r.HighFreqFactor, r.OriginalContext = kind, p.Factor, p.Low, p.High,
			p.Original
	default:
		return RoPE{}, unsupported(file, fmt.Sprintf("RoPE scaling %q (%s)", kind, field), supportedRope)
	}
	return r, nil
}

const supportedRope = "supported are none, linear and llama3"

// isRopeKind reports whether the parameters declare a supported kind. If not, the kind is the
// better error.
func isRopeKind(params map[string]json.RawMessage) bool {
	for _, key := range []string{"rope_type", "type"} {
		if v, ok := params[key]; ok {
			return slices.Contains([]string{`"default"`, `"linear"`, `"llama3"`}, string(v))
		}
	}
	return true
}

func hfDType(names ...string) dtype.Type {
	for _, name := range names {
		switch strings.TrimPrefix(name, "torch.") {
		case "bfloat16":
			return dtype.BF16
		case "float16":
			return dtype.F16
		case "float32":
			return dtype.F32
		}
	}
	return dtype.Invalid
}

func or[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}
