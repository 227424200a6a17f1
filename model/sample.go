package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Sampling is how the next token is sampled from the logits. The zero value is greedy: the most
// likely token, and among equals the one with the lowest id.
//
// The settings apply in the order of Hugging Face's generate: repetition penalty, temperature,
// top-k, top-p, min-p.
type Sampling struct {
	Temperature float64 // divides the logits; 0 is greedy
	TopK        int     // only the k most likely tokens; 0 means all
	TopP        float64 // only the most likely tokens whose probabilities add up to p; 0 and 1 mean all
	MinP        float64 // only tokens with at least MinP times the probability of the most likely one
	// RepetitionPenalty divides positive logits of tokens in the prompt and the answer, and multiplies
	// negative ones (Keskar et al., arXiv 1909.05858). It is 0.01 to 100; 0 and 1 mean none.
	RepetitionPenalty float64
	// Seed makes the text reproducible. If it is 0, each generation has a new seed of 53 bits, which
	// every JSON reader can represent.
	Seed uint64
}

// Validate returns an [*OptionError] if a setting is invalid.
func (s Sampling) Validate() error {
	bad := func(name string, v any, want string) error { return badOption("Sampling."+name, v, want) }
	switch {
	case !(s.Temperature >= 0) || math.IsInf(s.Temperature, 0):
		return bad("Temperature", s.Temperature, "0 (greedy) or more")
	case s.TopK < 0:
		return bad("TopK", s.TopK, "0 (all) or more")
	case !(s.TopP >= 0 && s.TopP <= 1):
		return bad("TopP", s.TopP, "0 to 1")
	case !(s.MinP >= 0 && s.MinP <= 1):
		return bad("MinP", s.MinP, "0 to 1")
	case s.RepetitionPenalty != 0 &&
		!(s.RepetitionPenalty >= minPenalty && s.RepetitionPenalty <= maxPenalty):
		want := fmt.Sprintf("0 or 1 (none), or %v to %v", minPenalty, maxPenalty)
		return bad("RepetitionPenalty", s.RepetitionPenalty, want)
	}
	return nil
}

// Bounds of the repetition penalty, in generation_config.json as well. Usual values are 1 to 2;
// within the bounds logits cannot overflow.
const (
	minPenalty = 0.01
	maxPenalty = 100
)

// sampler samples tokens.
type sampler struct {
	Sampling
	rng  *rand.Rand
	heap []candidate        // reused from token to token
	seen map[int32]struct{} // tokens that the repetition penalty applies to
}

type candidate struct {
	id    int32
	logit float32
}

func newSampler(s Sampling) *sampler {
	if s.Seed == 0 {
		s.Seed = 1 + rand.Uint64N(1<<53-1)
	}
	const stream = 0x6e70756b6974 // arbitrary, but fixed: it determines the text of a seed
	return &sampler{Sampling: s, rng: rand.New(rand.NewPCG(s.Seed, stream)), seen: map[int32]struct{}{}}
}

// next returns the next token. Logits that are not finite are an error, because they come from
// broken weights or a broken device. The repetition penalty changes logits in place.
func (s *sampler) next(logits []float32) (int32, error) {
	best, err := argmax(logits)
	if err != nil {
		return 0, err
	}
	if p := float32(s.RepetitionPenalty); p != 0 && p != 1 {
		s.penalize(logits, p)
		if best, err = argmax(logits); err != nil {
			return 0, err
		}
	}
	if s.Temperature == 0 || s.TopK == 1 {
		return best, nil
	}
	return s.draw(logits, float64(logits[best])), nil
}

// draw samples from the softmax of logits/Temperature after top-k, top-p and min-p. Candidates come
// off a heap, most likely first, so a vocabulary of 150,000 is never sorted.
func (s *sampler) draw(logits []float32, top float64) int32 {
	weight := func(l float32) float64 { return math.Exp((float64(l) - top) / s.Temperature) }
	floor := top - s.Temperature*80 // exp(-80) is far below the resolution of a float64 sum
	s.heap = s.heap[:0]
	for id, l := range logits {
		if float64(l) >= floor {
			s.heap = append(s.heap, candidate{int32(id), l})
		}
	}
	kept := s.heap
	if s.TopK > 0 && s.TopK < len(kept) || s.TopP > 0 && s.TopP < 1 {
		kept = s.cut(weight)
	}
	if s.MinP > 0 { // the most likely candidate has weight 1
		kept = slices.DeleteFunc(kept, func(c candidate) bool { return weight(c.logit) < s.MinP })
	}
	sum := 0.0
	for _, c := range kept {
		sum += weight(c.logit)
	}
	r := s.rng.Float64() * sum
	for _, c := range kept {
		if r -= weight(c.logit); r < 0 {
			return c.id
		}
	}
	return kept[len(kept)-1].id // after rounding
}

// cut returns the k most likely candidates, and of those the most likely ones whose probabilities
// among the k add up to p. It moves them to the end of the heap, least likely first.
func (s *sampler) cut(weight func(float32) float64) []candidate {
	h := s.heap
	heapify(h)
	k := len(h)
	if s.TopK > 0 {
		k = min(k, s.TopK)
	}
	total := 0.0
	if s.TopP > 0 && s.TopP < 1 && k == len(h) {
		for _, c := range h {
			total += weight(c.logit)
		}
	}
	n := len(h)
	sum := 0.0
	for i := 0; i < k; i++ {
		n--
		h[0], h[n] = h[n], h[0]
		sift(h[:n], 0)
		sum += weight(h[n].logit)
		if total > 0 && sum >= s.TopP*total {
			break
		}
	}
	kept := h[n:]
	if s.TopP > 0 && s.TopP < 1 && total == 0 { // with top-k, probabilities are relative to the k
		total, sum = sum, 0
		for i := len(kept) - 1; i >= 0; i-- {
			if sum += weight(kept[i].logit); sum >= s.TopP*total {
				return kept[i:]
			}
		}
	}
	return kept
}

func heapify(h []candidate) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		sift(h, i)
	}
}

// sift restores the heap below i: a parent is more likely than its children or, among equals, has a
// lower id.
func sift(h []candidate, i int) {
	before := func(a, b candidate) bool { return a.logit > b.logit || a.logit == b.logit && a.id < b.id }
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && before(h[child+1], h[child]) {
			child++
		}
		if !before(h[child], h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

func argmax(logits []float32) (int32, error) {
	best := 0
	for i, l := range logits {
		if l-l != 0 { // NaN or infinite
			return 0, fmt.Errorf("model: the logit of token %d is %v: the weights or the device are broken "+
				"(npukit info --check checks the weights)", i, l)
		}
		if l > logits[best] {
			best = i
		}
	}
	return int32(best), nil
}

// record adds tokens to those that the repetition penalty applies to.
func (s *sampler) record(ids ...int32) {
	for _, id := range ids {
		s.seen[id] = struct{}{}
	}
}

func (s *sampler) penalize(logits []float32, penalty float32) {
	for id := range s.seen {
		if logits[id] > 0 {
			logits[id] /= penalty
		} else {
			logits[id] *= penalty
		}
	}
}

// Alternative is a candidate for the next token.
type Alternative struct {
	ID      int32   `json:"id"`
	Logprob float64 `json:"logprob"`
}

// logprobs returns the log softmax of the logits for one token, and for the n most likely tokens,
// the lowest id first among equals. It takes O(vocab + n log vocab).
func logprobs(logits []float32, id int32, n int) (float64, []Alternative) {
	top := math.Inf(-1)
	for _, l := range logits {
		top = max(top, float64(l))
	}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l) - top)
	}
	norm := top + math.Log(sum)
	var list []Alternative
	if n = min(n, len(logits)); n > 0 {
		h := make([]candidate, len(logits))
		for i, l := range logits {
			h[i] = candidate{int32(i), l}
		}
		heapify(h)
		list = make([]Alternative, n)
		for i := range list {
			list[i] = Alternative{h[0].id, float64(h[0].logit) - norm}
			last := len(h) - 1
			h[0] = h[last]
			h = h[:last]
			sift(h, 0)
		}
	}
	return float64(logits[id]) - norm, list
}
