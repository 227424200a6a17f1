package checkpoint

import (
	"fmt"
	"math"

	"github.com/npukit/npukit/npu/dtype"
)

// Config is the architecture of a model, from config.json or GGUF metadata, with defaults filled
// in. All dimensions are positive and match the tensors.
type Config struct {
	Family string // "llama" (SmolLM2 too), "qwen2" (Qwen2 and 2.5), "qwen3"
	Name   string // for display: the folder's name, or general.name of a GGUF file

	Layers  int
	Hidden  int // width of the residual stream
	Heads   int // query heads
	KVHeads int // key and value heads; divides Heads
	HeadDim int // need not be Hidden/Heads
	FFN     int // width of the MLP
	Vocab   int // rows of the embedding
	Context int // positions that the model declares

	NormEps float64
	RoPE    RoPE

	TieEmbeddings bool // the LM head is the embedding; there is no lm_head.weight
	QKVBias       bool // q, k and v projections have biases
	QKNorm        bool // RMS norm over each head of q and k before RoPE

	DType dtype.Type // of the config, else of most elements
	BOS   []int      // token ids: generation_config.json's, else config.json's, else empty
	EOS   []int      // union of the end tokens that files name by id: see [Text].Ends
}

// RoPE has the parameters of rotary embeddings. At a position, element pair i of a head (elements i
// and i+HeadDim/2) is rotated by position times inverse frequency i: see InvFreq.
type RoPE struct {
	Theta   float64
	Scaling string // "" (none), "linear", "llama3" or "factors"

	Factor          float64 // linear, llama3
	LowFreqFactor   float64 // llama3
	HighFreqFactor  float64 // llama3
	OriginalContext int     // llama3

	// FreqFactors [HeadDim/2] divide the inverse frequencies if Scaling is "factors". GGUF files
	// store Llama 3 scaling as factors. If they match Llama 3's formula, Open sets "llama3"
	// instead.
	FreqFactors []float32
}

// InvFreq returns the inverse frequencies [headDim/2], in radians per position, with scaling
// applied.
//
// Without scaling, number i is Theta^(-2i/headDim) (RoFormer, arXiv 2104.09864). Linear scaling
// divides all by Factor. Llama 3 scaling divides those whose wavelength exceeds
// OriginalContext/LowFreqFactor by Factor, keeps those below OriginalContext/HighFreqFactor, and
// interpolates between.
func (r RoPE) InvFreq(headDim int) []float64 {
	freq := make([]float64, headDim/2)
	for i := range freq {
		freq[i] = math.Pow(r.Theta, -2*float64(i)/float64(headDim))
		switch r.Scaling {
		case "linear":
			freq[i] /= r.Factor
		case "llama3":
			freq[i] /= r.llama3Divisor(freq[i])
		case "factors":
			freq[i] /= float64(r.FreqFactors[i])
		}
	}
	return freq
}

// llama3Divisor returns the divisor of an inverse frequency under Llama 3 scaling.
func (r RoPE) llama3Divisor(freq float64) float64 {
	turns := float64(r.OriginalContext) * freq / (2 * math.Pi) // in the original context
	switch {
	case turns > r.HighFreqFactor:
		return 1
	case turns < r.LowFreqFactor:
		return r.Factor
	}
	keep := (turns - r.LowFreqFactor) / (r.HighFreqFactor - r.LowFreqFactor)
	return 1 / ((1-keep)/r.Factor + keep)
}

// limits bounds the dimensions of a file, so that their products fit an int64 and lists of that
// size stay small. The largest published decoders have 126 layers, hidden size 16384, FFN 53248 and
// 262144 tokens.
var limits = []struct {
	name string
	max  int
	of   func(*Config) int
}{
	{"number of layers", 1 << 10, func(c *Config) int { return c.Layers }},
	{"hidden size", 1 << 20, func(c *Config) int { return c.Hidden }},
	{"number of attention heads", 1 << 12, func(c *Config) int { return c.Heads }},
	{"number of key/value heads", 1 << 12, func(c *Config) int { return c.KVHeads }},
	{"head dimension", 1 << 12, func(c *Config) int { return c.HeadDim }},
	{"feed-forward size", 1 << 22, func(c *Config) int { return c.FFN }},
	{"vocabulary size", 1 << 24, func(c *Config) int { return c.Vocab }},
	{"context length", 1 << 30, func(c *Config) int { return c.Context }},
}

// check returns an error that names the file if a dimension is invalid.
func (c *Config) check(file string) error {
	for _, l := range limits {
		if n := l.of(c); n < 1 || n > l.max {
			return fileErrorf(file, "the %s is %d; it must be between 1 and %d", l.name, n, l.max)
		}
	}
	if c.Heads%c.KVHeads != 0 {
		return fileErrorf(file, "%d attention heads cannot share %d key/value heads: the first must be a multiple "+
			"of the second", c.Heads, c.KVHeads)
	}
	if c.HeadDim%2 != 0 {
		return fileErrorf(file, "the head dimension is %d; RoPE rotates pairs, so it must be even", c.HeadDim)
	}
	if !(c.NormEps > 0 && c.NormEps < 1) {
		return fileErrorf(file, "the RMS norm epsilon is %v; it must be a small positive number such as 1e-5",
			c.NormEps)
	}
	if err := c.RoPE.check(c.HeadDim); err != nil {
		return &Error{File: file, Problem: "RoPE", Err: err}
	}
	return nil
}

func (r RoPE) check(headDim int) error {
	positive := func(v float64) bool { return v > 0 && !math.IsInf(v, 0) }
	if !positive(r.Theta) {
		return fmt.Errorf("theta is %v; it must be positive", r.Theta)
	}
	if (r.Scaling == "linear" || r.Scaling == "llama3") && !positive(r.Factor) {
		return fmt.Errorf("%s scaling needs a positive factor, not %v", r.Scaling, r.Factor)
	}
	ordered := positive(r.LowFreqFactor) && positive(r.HighFreqFactor) && r.LowFreqFactor < r.HighFreqFactor
	if r.Scaling == "llama3" && !(ordered && r.OriginalContext > 0) {
		return fmt.Errorf("llama3 scaling needs 0 < low_freq_factor < high_freq_factor and a positive "+
			"original_max_position_embeddings, not %v, %v and %d",
			r.LowFreqFactor, r.HighFreqFactor, r.OriginalContext)
	}
	if r.Scaling == "factors" {
		if len(r.FreqFactors) != headDim/2 {
			return fmt.Errorf("%d frequency factors for a head dimension of %d, which needs %d", len(r.FreqFactors),
				headDim, headDim/2)
		}
		for i, f := range r.FreqFactors {
			if !positive(float64(f)) {
				return fmt.Errorf("frequency factor %d is %v; it must be positive", i, f)
			}
		}
	}
	return nil
}
