package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"os"
)

// Generation has the sampling defaults and special tokens of generation_config.json. A field is nil
// or empty if the file does not set it, or sets it to an invalid value.
type Generation struct {
	DoSample          *bool
	Temperature       *float64 // 0 or more
	TopK              *int     // 0 means all tokens (-1 in some files)
	TopP              *float64 // 0 to 1; 0 is greedy in transformers
	MinP              *float64 // 0 to 1
	RepetitionPenalty *float64 // 0.01 to 100
	BOS, EOS          []int
}

// readGeneration reads generation_config.json, which may be missing. The values are defaults, so
// none of them prevents a model from opening: they are interpreted as transformers and vLLM do, and
// a value that neither accepts is ignored with a warning. If the file cannot be read, for example
// because it is a Git LFS pointer, that is an error, because its end tokens would be missing.
func readGeneration(file string, vocab int, w *warnings) (*Generation, error) {
	s, err := readSettings(file, w)
	if errors.Is(err, os.ErrNotExist) {
		return &Generation{}, nil
	}
	if err != nil {
		return nil, err
	}
	g := &Generation{
		DoSample:    s.bool("do_sample"),
		Temperature: s.numberIn("temperature", 0, math.MaxFloat64, "0 or more"),
		TopK:        s.topK(),
		MinP:        s.numberIn("min_p", 0, 1, "0 to 1"),
		BOS:         s.ids("bos_token_id", vocab),
		EOS:         s.ids("eos_token_id", vocab),
	}
	if v, ok := s.number("top_p"); ok {
		switch {
		case v > 1: // vLLM and transformers keep every token from 1 on
			s.readAs("top_p", "1, which keeps every token")
			v = 1
			g.TopP = &v
		case v >= 0:
			g.TopP = &v
		default:
			s.ignore("top_p", "0 to 1")
		}
	}
	if v, ok := s.number("repetition_penalty"); ok {
		switch {
		case v == 0:
			s.readAs("repetition_penalty", "1, which is no penalty: nothing can be divided by 0")
			v = 1
			g.RepetitionPenalty = &v
		case v >= 0.01 && v <= 100: // the bounds of model.Sampling
			g.RepetitionPenalty = &v
		default:
			s.ignore("repetition_penalty", "0.01 to 100")
		}
	}
	s.unused()
	return g, nil
}

// topK reads top_k. All tokens are -1 in vLLM, and 0 or null in transformers. Some files have a
// float.
func (s settings) topK() *int {
	v, ok := s.number("top_k")
	if !ok {
		return nil
	}
	if v != math.Trunc(v) || math.IsInf(v, 0) {
		s.ignore("top_k", "a whole number")
		return nil
	}
	if v < -1 {
		s.readAs("top_k", "0, which keeps every token")
	}
	k := int(min(max(v, 0), math.MaxInt32))
	return &k
}

// unused reports settings that would change the output of transformers and that npukit lacks.
func (s settings) unused() {
	for _, f := range []struct {
		name    string
		neutral float64
	}{
		{"num_beams", 1}, {"no_repeat_ngram_size", 0}, {"encoder_repetition_penalty", 1}, {"typical_p", 1},
		{"epsilon_cutoff", 0}, {"eta_cutoff", 0}, {"min_length", 0}, {"min_new_tokens", 0},
		{"presence_penalty", 0}, {"frequency_penalty", 0},
	} {
		raw, ok := s.fields[f.name]
		if !ok || string(raw) == "null" {
			continue
		}
		if v, _, err := parseNumber(raw); err != nil || v != f.neutral {
			s.warn.add(s.file, f.name, clip(raw), fmt.Sprintf("ignored, since npukit has no %s", f.name))
		}
	}
}
