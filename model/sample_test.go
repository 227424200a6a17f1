package model

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"time"
)

// reference is a direct implementation of Hugging Face's logits processors: sort everything, cut,
// normalize.
func reference(logits []float32, s Sampling) map[int32]float64 {
	type entry struct {
		id int32
		p  float64
	}
	var all []entry
	for i, l := range logits {
		all = append(all, entry{int32(i), math.Exp(float64(l) / s.Temperature)})
	}
	slices.SortStableFunc(all, func(a, b entry) int {
		switch {
		case a.p > b.p:
			return -1
		case a.p < b.p:
			return 1
		}
		return 0
	})
	normalize := func() {
		sum := 0.0
		for _, e := range all {
			sum += e.p
		}
		for i := range all {
			all[i].p /= sum
		}
	}
	if s.TopK > 0 && s.TopK < len(all) {
		all = all[:s.TopK]
	}
	normalize()
	if s.TopP > 0 && s.TopP < 1 {
		sum := 0.0
		for i, e := range all {
			if sum += e.p; sum >= s.TopP {
				all = all[:i+1]
				break
			}
		}
	}
	if s.MinP > 0 {
		floor := s.MinP * all[0].p
		all = slices.DeleteFunc(all, func(e entry) bool { return e.p < floor })
	}
	normalize()
	out := map[int32]float64{}
	for _, e := range all {
		out[e.id] = e.p
	}
	return out
}

// The frequencies of samples follow the distribution that the settings define, and no token outside
// it is ever drawn.
func TestSamplingDistribution(t *testing.T) {
	logits := []float32{2.1, -1, 0.3, 2.0, 1.2, -3, 0.9, 1.21, 0.2, -0.4}
	for _, s := range []Sampling{
		{Temperature: 1},
		{Temperature: 0.7},
		{Temperature: 1.5, TopK: 4},
		{Temperature: 1, TopP: 0.8},
		{Temperature: 1, TopK: 6, TopP: 0.7},
		{Temperature: 1, MinP: 0.3},
		{Temperature: 0.9, TopK: 8, TopP: 0.95, MinP: 0.2},
		{Temperature: 1, TopK: 100, TopP: 1},
	} {
		s.Seed = 7
		want := reference(logits, s)
		const draws = 40000
		got := map[int32]int{}
		sampler := newSampler(s)
		for range draws {
			id, err := sampler.next(slices.Clone(logits))
			if err != nil {
				t.Fatal(err)
			}
			got[id]++
		}
		for id := range int32(len(logits)) {
			p := want[id]
			// Five standard deviations of a binomial count.
			if diff, limit := math.Abs(float64(got[id])-draws*p), 5*math.Sqrt(draws*p*(1-p)); diff > limit {
				t.Errorf("%+v: token %d drawn %d times, want %.0f", s, id, got[id], draws*p)
			}
		}
	}
}

func TestSamplingSeed(t *testing.T) {
	logits := make([]float32, 1000)
	draw := func(seed uint64) (ids []int32) {
		s := newSampler(Sampling{Temperature: 1, TopP: 0.9, Seed: seed})
		for range 20 {
			id, err := s.next(slices.Clone(logits))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return ids
	}
	if a, b := draw(3), draw(3); !slices.Equal(a, b) {
		t.Errorf("the same seed gave %v and %v", a, b)
	}
	if a, b := draw(3), draw(4); slices.Equal(a, b) {
		t.Errorf("two seeds gave the same tokens")
	}
	if a, b := draw(0), draw(0); slices.Equal(a, b) {
		t.Errorf("no seed gave the same tokens twice")
	}
}

func TestGreedy(t *testing.T) {
	s := newSampler(Sampling{})
	if id, _ := s.next([]float32{1, 3, 3, 2}); id != 1 {
		t.Errorf("of equal logits token %d was chosen, want the lower id 1", id)
	}
	s = newSampler(Sampling{RepetitionPenalty: 2})
	s.record(1, 1)
	s.record(1)
	if id, _ := s.next([]float32{1, 3, 2, -1}); id != 2 {
		t.Errorf("token %d, want 2: a penalty of 2 brings 3 to 1.5, once and not three times", id)
	}
	if id, _ := s.next([]float32{-3, -1, -1.5}); id != 2 {
		t.Errorf("token %d, want 2: negative logits are multiplied", id)
	}
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))} {
		if _, err := s.next([]float32{0, bad}); err == nil ||
			!strings.Contains(err.Error(), "logit of token 1") {
			t.Errorf("a logit of %v: error %v, want one naming the token", bad, err)
		}
	}
}

func TestSamplingValidate(t *testing.T) {
	for want, s := range map[string]Sampling{
		"Sampling.Temperature":       {Temperature: -1},
		"Sampling.TopK":              {TopK: -1},
		"Sampling.TopP":              {TopP: 1.5},
		"Sampling.MinP":              {MinP: math.NaN()},
		"Sampling.RepetitionPenalty": {RepetitionPenalty: math.Inf(1)},
	} {
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want one about %s", s, err, want)
		}
	}
	// A penalty must not make a logit infinite or NaN: in float32 1e-40 is almost 0 and 1e39 is
	// infinite.
	for penalty, ok := range map[float64]bool{
		0: true, 1: true, 0.01: true, 100: true,
		1e-40: false, 1e39: false, 101: false, -1: false, math.NaN(): false,
	} {
		err := Sampling{RepetitionPenalty: penalty}.Validate()
		if ok != (err == nil) ||
			err != nil && !strings.Contains(err.Error(), "want 0 or 1 (none), or 0.01 to 100") {
			t.Errorf("repetition penalty %v: %v", penalty, err)
		}
	}
}

// A random seed is exact as a float64, the number type of many JSON readers.
func TestRandomSeed(t *testing.T) {
	seen, bits := map[uint64]bool{}, uint64(1<<53-1) // bits that are always set
	for range 100 {
		seed := newSampler(Sampling{}).Seed
		bits &= seed
		if seed == 0 || seed >= 1<<53 {
			t.Fatalf("seed %d", seed)
		}
		seen[seed] = true
	}
	if len(seen) < 99 || bits != 0 {
		t.Errorf("100 sessions have %d seeds, all of them with %#x", len(seen), bits)
	}
}

func TestLogprobs(t *testing.T) {
	logits := []float32{1, 2, 0, 3}
	got, top := logprobs(logits, 1, 2)
	sum := math.Exp(1) + math.Exp(2) + 1 + math.Exp(3)
	if want := 2 - math.Log(sum); math.Abs(got-want) > 1e-12 {
		t.Errorf("logprob %v, want %v", got, want)
	}
	if len(top) != 2 || top[0].ID != 3 || top[1].ID != 1 ||
		math.Abs(top[0].Logprob-(3-math.Log(sum))) > 1e-12 {
		t.Errorf("top %v, want tokens 3 and 1", top)
	}
}

// The alternatives are those of a full sort. They take little time, however many there are and in
// whichever order the logits come.
func TestAlternatives(t *testing.T) {
	const vocab = 150_000
	rising := make([]float32, vocab)
	for i := range rising {
		rising[i] = float32(i/3) / vocab // three of each
	}
	began := time.Now()
	for _, n := range []int{1, 5, 1000, vocab, vocab + 1} {
		_, top := logprobs(rising, 0, n)
		if len(top) != min(n, vocab) {
			t.Fatalf("%d alternatives, want %d", len(top), n)
		}
		for i, a := range top {
			if want := int32(vocab - 3 - i/3*3 + i%3); a.ID != want {
				t.Fatalf("of %d, alternative %d is %d, want %d", n, i, a.ID, want)
			}
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// Stop strings are found however the text is split, and text that only looks like the start of one
// is shown in the end.
func TestStopper(t *testing.T) {
	for _, tc := range []struct {
		stops   []string
		text    string
		want    string
		stopped bool
	}{
		{[]string{"END"}, "some text END more", "some text ", true},
		{[]string{"END"}, "some text EN", "some text EN", false},
		{[]string{"aab"}, "aaaab", "aa", true},
		{[]string{"xyz", "b"}, "abxyz", "a", true},
		{[]string{"abcd", "bc"}, "zabcd", "za", true},
		{[]string{"日本"}, "go 日本", "go ", true},
		{nil, "anything", "anything", false},
	} {
		for size := 1; size <= len(tc.text); size++ {
			s := stopper{stops: tc.stops}
			shown, stopped := "", false
			for i := 0; i < len(tc.text) && !stopped; i += size {
				var show string
				show, stopped = s.add(tc.text[i:min(i+size, len(tc.text))])
				shown += show
			}
			if !stopped {
				shown += s.rest()
			}
			// Pieces as long as a whole stop string may match a later one that ends earlier.
			if shown != tc.want && !(size > 1 && strings.HasPrefix(tc.want, shown)) ||
				stopped != tc.stopped {
				t.Errorf("%q in pieces of %d, stops %q: %q %v, want %q %v", tc.text, size, tc.stops,
					shown, stopped, tc.want, tc.stopped)
			}
		}
	}
}

// Each generation_config.json becomes a valid Sampling with the meaning that transformers and vLLM
// give it.
func TestDefaultSampling(t *testing.T) {
	for file, want := range map[string]Sampling{
		`{}`:                                     {},
		`{"temperature": 0.7, "top_k": 20}`:      {TopK: 20}, // for a caller who sets a temperature
		`{"do_sample": true}`:                    {Temperature: 1, TopK: 50},
		`{"do_sample": true, "top_k": -1}`:       {Temperature: 1},
		`{"do_sample": true, "top_k": 0}`:        {Temperature: 1},
		`{"do_sample": true, "top_k": 20.0}`:     {Temperature: 1, TopK: 20},
		`{"do_sample": true, "top_p": 1.01}`:     {Temperature: 1, TopK: 50, TopP: 1},
		`{"do_sample": true, "top_p": 0.0}`:      {Temperature: 1, TopK: 50, TopP: math.SmallestNonzeroFloat64},
		`{"do_sample": true, "temperature": 0}`:  {TopK: 50},
		`{"do_sample": true, "temperature": -1}`: {Temperature: 1, TopK: 50},
		`{"repetition_penalty": 0, "min_p": 3}`:  {RepetitionPenalty: 1},
		`{"min_p": 0.05, "temperature": NaN}`:    {MinP: 0.05},
		``:                                       {},
		`not JSON`:                               {},
	} {
		m := openChain(t, ckptgen.Chain{Control: chatML, Says: saysHi("<|im_end|>", "."), Generation: file})
		got := m.DefaultSampling()
		if got != want || got.Validate() != nil {
			t.Errorf("%s: %+v (%v), want %+v", file, got, got.Validate(), want)
		}
		if answer, err := m.Complete(t.Context(), Text("x"), nil); err != nil || answer.Stats.Tokens == 0 {
			t.Errorf("%s: %+v, %v", file, answer, err)
		}
	}
}

// The smallest top-p leaves one token, as top_p 0 does in transformers.
func TestSmallestTopP(t *testing.T) {
	for _, k := range []int{0, 3} {
		s := newSampler(Sampling{Temperature: 2, TopK: k, TopP: math.SmallestNonzeroFloat64, Seed: 1})
		for range 50 {
			if id, err := s.next([]float32{1, 1.5, 1.4, 1.3}); id != 1 || err != nil {
				t.Fatalf("top-k %d: token %d, %v, want the most likely", k, id, err)
			}
		}
	}
}
