package gate_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate"
)

var ctx = context.Background()

func toyIDs(seed uint64, n int) []int32 {
	rng := rand.New(rand.NewPCG(seed, 3))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = rng.Int32N(toyVocab)
	}
	return ids
}

func format(t testing.TB, name string) gate.Thresholds {
	t.Helper()
	tol, ok := gate.FormatThresholds(name)
	if !ok || tol.Validate() != nil {
		t.Fatalf("%s: %v, %v", name, ok, tol.Validate())
	}
	return tol
}

// modelAdversaries are models broken as real ones break, with the gates that must see it. The gates
// are run one after another on the same device, as a user would.
var modelAdversaries = []struct {
	defect                       string
	teacher, greedy, determinism string // the metric that must catch it, or nothing
}{
	{"zeros", gate.MeanKL, gate.TwoWayTop, gate.Distinct},
	{"doubled", gate.MeanKL, "", ""}, // every first choice is right
	{"noise", gate.MeanKL, "", gate.Repeats},
	{"a NaN", gate.NonFinite, gate.NonFinite, ""},
	{"interleaved", gate.MeanKL, gate.TwoWayTop, ""},
	{"query one position late", gate.MeanKL, "", ""},
	{"no bias", gate.MeanKL, gate.TwoWayTop, ""},
	{"dropped layer", gate.MeanKL, gate.TwoWayTop, ""},
	{"previous token's KV", gate.MeanKL, "", ""},
	{"stale logits", gate.MeanKL, "", gate.Repeats},
	{"cache read one too far", "", "", gate.Repeats},       // the first run finds an empty cache
	{"decoding forgets the cache", "", gate.TwoWayTop, ""}, // the gate that decodes
	{"ignores its input", gate.MeanKL, "", gate.Distinct},  //
}

func TestModelAdversaries(t *testing.T) {
	ids, other := toyIDs(1, 100), toyIDs(2, 60)
	right := stepper{newToy("")}
	r, err1 := gate.Teacher(ctx, right, newToy(""), ids, format(t, "cpu-f32"))
	g, err2 := gate.Greedy(ctx, right, newToy(""), ids[:10], 32, 0)
	d, err3 := gate.Determinism(ctx, right, ids, other)
	if err := errors.Join(err1, err2, err3, r.Err(), g.Err(), d.Err()); err != nil {
		t.Errorf("the right model: %v", err)
	}
	for _, a := range modelAdversaries {
		dev := stepper{newToy(a.defect)}
		check := func(by string, reasons []gate.Reason, want string, err error) {
			t.Helper()
			if err != nil || want != "" && !reasonOf(reasons, want) {
				t.Errorf("%s, %s: reasons %v, %v; want %q", a.defect, by, reasons, err, want)
			}
		}
		r, err := gate.Teacher(ctx, dev, newToy(""), ids, format(t, "cpu-bf16"))
		check("teacher-forced", r.Reasons, a.teacher, err)
		g, err := gate.Greedy(ctx, dev, newToy(""), ids[:10], 32, 0)
		check("greedy", g.Reasons, a.greedy, err)
		d, err := gate.Determinism(ctx, dev, ids, other)
		check("determinism", d.Reasons, a.determinism, err)
	}
}

// The teacher-forced gate's figures equal their definitions, computed by position from stored
// logits.
func TestTeacherEqualsItsDefinitions(t *testing.T) {
	ids := toyIDs(3, 60)
	record := func(s gate.Scorer) (r gate.Recorded) {
		r.IDs = ids
		if err := s.Score(ctx, ids, func(_ int, logits []float32) error {
			r.Logits = append(r.Logits, logits...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return r
	}
	got, want := record(newToy("noise")), record(newToy(""))
	tol := format(t, "npu")
	r, err := gate.Teacher(ctx, got, want, ids, tol)
	if err != nil {
		t.Fatal(err)
	}
	probabilities := func(x []float32) []float64 {
		p, sum := make([]float64, len(x)), 0.0
		for i, v := range x {
			p[i] = math.Exp(float64(v))
			sum += p[i]
		}
		for i := range p {
			p[i] /= sum
		}
		return p
	}
	best := func(x []float32) int { return slices.Index(x, slices.Max(x)) }
	var kl, gotNLL, wantNLL, change []float64
	decided, agreed := 0, 0
	for pos := range ids {
		g, w := got.Logits[pos*toyVocab:][:toyVocab], want.Logits[pos*toyVocab:][:toyVocab]
		p, q := probabilities(w), probabilities(g)
		sum, mean, square := 0.0, 0.0, 0.0
		for i := range p {
			sum += p[i] * math.Log(p[i]/q[i])
			mean += float64(w[i]) / toyVocab
			square += float64(w[i]) * float64(w[i]) / toyVocab
		}
		kl = append(kl, sum)
		near(t, "KL", r.KL[pos], sum, 1e-9)
		if pos+1 < len(ids) {
			id := ids[pos+1]
			gotNLL, wantNLL = append(gotNLL, -math.Log(q[id])), append(wantNLL, -math.Log(p[id]))
			change = append(change, gotNLL[pos]-wantNLL[pos])
		}
		sorted := slices.Sorted(slices.Values(w))
		if float64(sorted[toyVocab-1]-sorted[toyVocab-2]) >= tol.Tie*math.Sqrt(square-mean*mean) {
			decided++
			if best(g) == best(w) {
				agreed++
			}
		}
	}
	average := func(x []float64) (mean, err float64) {
		for _, v := range x {
			mean += v / float64(len(x))
		}
		for _, v := range x {
			err += (v - mean) * (v - mean)
		}
		return mean, math.Sqrt(err / float64(len(x)-1) / float64(len(x)))
	}
	meanKL, _ := average(kl)
	near(t, "mean KL", r.KLMean, meanKL, 1e-9)
	near(t, "max KL", r.KLMax, slices.Max(kl), 1e-9)
	near(t, "p90 KL", r.KLP90, slices.Sorted(slices.Values(kl))[53], 1e-9) // 54 of 60 are not above it
	if r.Decided != decided || r.Agreed != agreed || decided == 0 || agreed == decided {
		t.Errorf("%d of %d agree, want %d of %d, with some that do not", r.Agreed, r.Decided, agreed,
			decided)
	}
	m, e := average(wantNLL)
	near(t, "reference's NLL", r.Want.Mean, m, 1e-9)
	near(t, "its error", r.Want.StdErr, e, 1e-9)
	d, de := average(change)
	near(t, "change", r.NLLChange, d/m, 1e-9)
	near(t, "its error", r.NLLChangeError, de/m, 1e-9)
}

// The first divergence and the verdict do not depend on which side generates, and how.
func TestGreedyDoesNotDependOnWhoGenerates(t *testing.T) {
	prompt := toyIDs(5, 12)
	for _, defect := range []string{"", "no bias", "dropped layer", "query one position late"} {
		var first string
		for i, pair := range [][2]gate.Scorer{
			{newToy(defect), newToy("")}, {stepper{newToy(defect)}, newToy("")}, {newToy(defect),
				stepper{newToy("")}},
			{stepper{newToy(defect)}, stepper{newToy("")}},
		} {
			r, err := gate.Greedy(ctx, pair[0], pair[1], prompt, 20, 5)
			if err != nil {
				t.Fatal(err)
			}
			if _, steps := pair[0].(gate.Stepper); r.Stepped != steps {
				t.Errorf("pair %d: Stepped is %v", i, r.Stepped)
			}
			r.Stepped = false
			if text := fmt.Sprintf("%+v", r); first == "" {
				first = text
			} else if text != first {
				t.Errorf("%q, pair %d: %s, before it was %s", defect, i, text, first)
			}
			if defect == "" && (r.Diverged || len(r.Tokens) != 20) {
				t.Errorf("a model differs from itself: %v", r)
			}
		}
	}
	ref, err := gate.Greedy(ctx, newToy(""), newToy(""), prompt, 20, 5)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []gate.Scorer{newToy(""), stepper{newToy("")}} {
		if r, err := gate.GreedyTokens(ctx, s, prompt, ref.Tokens, 0); err != nil || !r.OK() ||
			r.Diverged || !r.OneWay {
			t.Errorf("%v, %v", r, err)
		}
	}
	if r, err := gate.GreedyTokens(ctx, stepper{newToy("decoding forgets the cache")}, prompt,
		ref.Tokens, 0); err != nil || r.OK() {
		t.Errorf("stored tokens do not see a decoder without a cache: %v, %v", r, err)
	}
}

// scorerFunc is a Scorer made of a function.
type scorerFunc func(ids []int32, emit func(int, []float32) error) error

func (f scorerFunc) Score(_ context.Context, ids []int32, emit func(int, []float32) error) error {
	return f(ids, emit)
}

// AfterPrompt emits the logits that Score emits for the same ids, and returns the error of either
// side.
func TestAfterPromptIsScoreInTwoParts(t *testing.T) {
	ids := []int32{5, 9, 1, 7, 3, 3, 8, 2}
	var all, last [][]float32
	keep := func(list *[][]float32) func(int, []float32) error {
		return func(pos int, logits []float32) error {
			if pos != len(*list) {
				t.Errorf("position %d, want %d", pos, len(*list))
			}
			*list = append(*list, slices.Clone(logits))
			return nil
		}
	}
	if err := newToy("").Score(t.Context(), ids, keep(&all)); err != nil {
		t.Fatal(err)
	}
	after := gate.AfterPrompt(stepper{newToy("")}, ids[:5])
	if err := after.Score(t.Context(), ids[5:], keep(&last)); err != nil {
		t.Fatal(err)
	}
	if len(last) != 3 || !reflect.DeepEqual(last, all[5:]) {
		t.Errorf("after a prompt logits are %v, want %v", last, all[5:])
	}
	stop := errors.New("enough")
	if err := after.Score(t.Context(), ids[5:], func(int,
		[]float32) error {
		return stop
	}); err != stop {
		t.Errorf("an error of emit becomes %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := after.Score(ended, ids[5:], keep(&last)); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled prompt ends with %v", err)
	}
}

// A scorer that breaks its contract is an error that names the side and the position.
func TestScorersThatBreakTheContract(t *testing.T) {
	broken := errors.New("the device is gone")
	rows := func(n, vocab, from int) scorerFunc {
		return func(_ []int32, emit func(int, []float32) error) error {
			for pos := range n {
				if err := emit(pos+from, make([]float32, vocab)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	tol, ids := format(t, "npu"), []int32{1, 2, 3}
	good := rows(3, 8, 0)
	for _, tc := range []struct {
		name, want string
		dev, ref   gate.Scorer
		ids        []int32
	}{
		{"too few positions", "device: gate: Score emitted 2 positions of 3", rows(2, 8, 0), good, ids},
		{"too few of the reference", "reference: gate: Score emitted 2 positions of 3", good,
			rows(2, 8, 0), ids},
		{"another position", "device: gate: Score emitted position 1, want 0", rows(3, 8, 1), good, ids},
		{"no logits", "emitted no logits for position 0", rows(3, 0, 0), good, ids},
		{"other vocabularies", "a vocabulary of 9, the reference 8", rows(3, 9, 0), good, ids},
		{"nothing to choose", "a vocabulary of 1", rows(3, 1, 0), rows(3, 1, 0), ids},
		{"an id beyond", "id 8 at position 2 is outside the vocabulary of 8", good, good,
			[]int32{1, 2, 8}},
		{"a negative id", "id -1", good, good, []int32{1, -1, 8}},
		{"one id", "ids: 1 ids, want at least 2", good, good, ids[:1]},
		{"its own error", "device: the device is gone",
			scorerFunc(func([]int32, func(int, []float32) error) error { return broken }), good, ids},
		{"too many positions", "device: gate: Score emitted more than the 3 positions", rows(4, 8, 0),
			good, ids},
		{"not the record", "id 3 at position 2 was not recorded", good,
			gate.Recorded{IDs: []int32{1, 2, 4}, Logits: make([]float32, 24)}, ids},
		{"a short record", "3 ids, the record has 2 positions", good,
			gate.Recorded{IDs: []int32{1, 2}, Logits: make([]float32, 16)}, ids},
		{"an odd record", "23 logits for 3 ids", good,
			gate.Recorded{IDs: ids, Logits: make([]float32, 23)}, ids},
	} {
		_, err := gate.Teacher(ctx, tc.dev, tc.ref, tc.ids, tol)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one about %q", tc.name, err, tc.want)
		}
		if tc.name == "its own error" && !errors.Is(err, broken) {
			t.Errorf("%v does not wrap the scorer's error", err)
		}
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := gate.Teacher(canceled, newToy(""), newToy(""), ids, tol); !errors.Is(err,
		context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if _, err := gate.Determinism(ctx, newToy(""), ids, []int32{1, 2, 3, 4}); err == nil ||
		!strings.Contains(err.Error(), "a prefix of the other") {
		t.Errorf("prompts that are the same: %v", err)
	}
	if _, err := gate.Greedy(ctx, newToy(""), newToy(""), nil, 3, 5); err == nil {
		t.Error("an empty prompt")
	}
	if _, err := gate.Greedy(ctx, newToy(""), newToy(""), ids, 0, 5); err == nil {
		t.Error("no tokens")
	}
}

func TestThresholdsThatProveNothingAreRefused(t *testing.T) {
	good := format(t, "npu")
	var input *gate.InputError
	for want, change := range map[string]func(*gate.Thresholds){
		"KLMean: 0":   func(x *gate.Thresholds) { x.KLMean = 0 },
		"KLMean: NaN": func(x *gate.Thresholds) { x.KLMean = math.NaN() },
		"KLP90: 2":    func(x *gate.Thresholds) { x.KLP90 = 2 },
		"KLMax: -1":   func(x *gate.Thresholds) { x.KLMax = -1 },
		"Top1: 0":     func(x *gate.Thresholds) { x.Top1 = 0 },
		"Tie: 3":      func(x *gate.Thresholds) { x.Tie = 3 },
		"NLL: 0":      func(x *gate.Thresholds) { x.NLL = 0 },
		"Note: empty": func(x *gate.Thresholds) { x.Note = " " },
	} {
		x := good
		change(&x)
		if err := x.Validate(); !errors.As(err, &input) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %q", err, want)
		}
	}
	if _, ok := gate.FormatThresholds("fp3"); ok {
		t.Error("thresholds of a format that nobody measured")
	}
}

// A reference with ties only decides nothing, and that is a failure.
func TestTiesEverywhereProveNothing(t *testing.T) {
	flat := gate.Recorded{IDs: toyIDs(1, 20), Logits: make([]float32, 20*toyVocab)}
	r, err := gate.Teacher(ctx, flat, flat, flat.IDs, format(t, "npu"))
	if err != nil || r.OK() || r.Reasons[0].Metric != gate.Top1 || r.KLMean != 0 {
		t.Errorf("%v, %v", r, err)
	}
	if data, err := json.Marshal(r); err != nil || !json.Valid(data) {
		t.Errorf("%s, %v", data, err)
	}
}

// rewords is a scorer that reports emit's error in words of its own, or asks emit again.
type rewords struct {
	vocab int
	again bool
}

func (r rewords) Score(_ context.Context, ids []int32, emit func(int, []float32) error) error {
	for pos := range ids {
		if err := emit(pos, make([]float32, r.vocab)); err != nil && !r.again {
			return fmt.Errorf("scorer: stopped at %d: %v", pos, err)
		}
	}
	return nil
}

// A stopped iteration yields nothing more, however the scorer reports it.
func TestScorerThatRewordsItsError(t *testing.T) {
	th, _ := gate.FormatThresholds("cpu-bf16")
	for _, again := range []bool{false, true} {
		if _, err := gate.Teacher(t.Context(), rewords{4, again}, rewords{5, again}, []int32{0, 1, 2},
			th); err == nil || !strings.Contains(err.Error(), "vocabulary") {
			t.Errorf("two vocabularies: %v", err)
		}
	}
}
