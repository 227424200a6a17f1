package gate

import (
	"fmt"
	"math"
	"strings"
)

// Thresholds are what a model's logits must satisfy in a number format, and where the numbers came from.
type Thresholds struct {
	Format string  `json:"format"`  // "cpu-bf16"
	KLMean float64 `json:"kl_mean"` // nats, at most; must be set
	KLP90  float64 `json:"kl_p90"`  // nats, at most; must be set
	KLMax  float64 `json:"kl_max"`  // nats, at most; 0 is no bound
	Top1   float64 `json:"top1"`    // share of decided positions that agree, at least; must be set
	Tie    float64 `json:"tie"`     // a gap of the reference's best two below this many standard deviations of its logits is a tie
	NLL    float64 `json:"nll"`     // relative change of the mean NLL, either way, at most, beyond two standard errors of the size that KLMean explains; must be set
	Note   string  `json:"note"`    // where the numbers came from; must not be empty
}

// uselessKL is a divergence that no useful device has. A model that answers uniformly from 512 tokens where the reference is sure has 6
// nats; one that is right but for rounding has hundredths.
const uselessKL = 1

// Validate refuses thresholds with which a gate would prove nothing. Of the bounds on size, KLMean, KLP90 and NLL, none can be left out:
// agreement of first choices alone does not see a device whose logits are scaled.
func (t Thresholds) Validate() error {
	refuse := func(field, format string, args ...any) error {
		return &InputError{Field: field, Reason: fmt.Sprintf(format, args...), Err: ErrTolerance}
	}
	for _, b := range []struct {
		name  string
		v     float64
		limit float64
	}{{"KLMean", t.KLMean, uselessKL}, {"KLP90", t.KLP90, uselessKL}, {"Top1", t.Top1, 1}, {"NLL", t.NLL, 0.5}} {
		if !(b.v > 0 && b.v <= b.limit) {
			return refuse(b.name, "is %v, want more than 0 and at most %v", b.v, b.limit)
		}
	}
	switch {
	case !(t.KLMax >= 0) || math.IsInf(t.KLMax, 0):
		return refuse("KLMax", "is %v, want a finite number >= 0", t.KLMax)
	case !(t.Tie >= 0 && t.Tie <= 1):
		return refuse("Tie", "is %v, want 0 to 1: beyond one standard deviation nearly every position is a tie", t.Tie)
	case strings.TrimSpace(t.Note) == "":
		return refuse("Note", "is empty: state where the thresholds came from")
	}
	return nil
}

// leastDecided is the share of positions that must be no tie before agreement of first choices says anything.
const leastDecided = 0.1

// LeastTokens is how many scored tokens a text needs for its likelihood to be judged beside other bounds: one has no standard error.
const LeastTokens = 2

// Summary is what a verdict on logits rests on, whether they were compared with all of a reference's or with what is stored of them.
type Summary struct {
	Positions int
	NonFinite int // logits of the device that are NaN or infinite

	Compared             int // positions with a KL divergence
	KLMean, KLP90, KLMax float64
	KLMaxAt              int
	Decided, Agreed      int // positions that are no ties, and those of them with the same first choice

	Want, Got                 Likelihood
	NLLChange, NLLChangeError float64 // relative
	NLLDistance               float64 // mean |difference| of a token's likelihood, in nats
}

// nllSpread bounds how far the likelihood of a token may change, in units of sqrt(2 KLMean). Small changes d of a token's log-likelihood have a mean square of twice the KL divergence where
// tokens come from the distribution itself; a text has more surprising ones.
//
// Measured against the bound of KLMean: mean |d| is at most 0.91 of sqrt(2 KLMean), the root of the mean square at most 1.21, on five tiny models in BF16 and FP32 on npu/cpu, whose ids are
// random, and 0.57 and 0.90 on SmolLM2-135M on npu/sim over 256 tokens of a text. 2 is about twice the mean.
const nllSpread = 2

// Judge lists the conditions that do not hold. An empty list over something that was compared is a pass.
func (t Thresholds) Judge(s Summary) []Reason {
	var list []Reason
	fail := func(metric, format string, args ...any) {
		list = append(list, Reason{metric, fmt.Sprintf(format, args...)})
	}
	if s.NonFinite > 0 {
		fail(NonFinite, "%d logits of the device are NaN or infinite", s.NonFinite)
	}
	if s.Compared > 0 {
		t.judgeKL(s, fail)
	}
	t.judgeNLL(s, fail)
	return list
}

// judgeKL judges the distributions and their first choices.
func (t Thresholds) judgeKL(s Summary, fail func(metric, format string, args ...any)) {
	if !(s.KLMean <= t.KLMean) { // NaN too
		fail(MeanKL, "mean KL is %.4g nats, want at most %.4g", s.KLMean, t.KLMean)
	}
	if !(s.KLP90 <= t.KLP90) {
		fail(P90KL, "p90 KL is %.4g nats, want at most %.4g", s.KLP90, t.KLP90)
	}
	if t.KLMax > 0 && !(s.KLMax <= t.KLMax) {
		fail(MaxKL, "max KL is %.4g nats at position %d, want at most %.4g", s.KLMax, s.KLMaxAt, t.KLMax)
	}
	if s.Decided > 0 && !(float64(s.Agreed) >= t.Top1*float64(s.Decided)) {
		fail(Top1, "first choices agree at %d of %d positions that are no ties (%.2f %%), want at least %.4g %%",
			s.Agreed, s.Decided, 100*float64(s.Agreed)/float64(s.Decided), 100*t.Top1)
	}
	if float64(s.Decided) < leastDecided*float64(s.Positions) && s.NonFinite == 0 {
		fail(Top1, "only %d of %d positions are no ties: first choices say nothing here; use another text or a smaller Tie", s.Decided, s.Positions)
	}
}

// judgeNLL judges the likelihoods. Beside other bounds a single token's says nothing; where there is nothing else it has to do.
func (t Thresholds) judgeNLL(s Summary, fail func(metric, format string, args ...any)) {
	n := s.Want.Tokens
	if n == 0 || n < LeastTokens && s.Compared > 0 {
		return
	}
	if !(s.Want.Mean > 0) {
		fail(NLLShift, "mean NLL of the reference is %v: nothing can be compared with that", s.Want.Mean)
		return
	}
	// Two standard errors, as far as the number format explains them: a device that is wrong has large ones too.
	spread := nllSpread * math.Sqrt(2*t.KLMean)
	allowed := 2 * min(s.NLLChangeError, spread/math.Sqrt(float64(n))/s.Want.Mean)
	if limit := t.NLL + allowed; !(math.Abs(s.NLLChange) <= limit) {
		fail(NLLShift, "mean NLL is %.5f, the reference's %.5f: %+.3f %%, want within %.3f %% (%.3g %% and %.2g %% of two standard errors)",
			s.Got.Mean, s.Want.Mean, 100*s.NLLChange, 100*limit, 100*t.NLL, 100*allowed)
	}
	if n >= LeastTokens && !(s.NLLDistance <= spread) {
		fail(NLLShift, "NLL of a token is %.4g nats off on average, want at most %.4g", s.NLLDistance, spread)
	}
}

// formats are the thresholds by number format.
var formats = map[string]Thresholds{
	"cpu-bf16": {
		KLMean: 1.7e-3, KLP90: 3.6e-3, KLMax: 1.1e-2, Top1: 0.99, Tie: 0.05, NLL: 5e-4,
		Note: "npu/cpu with BF16 activations and cache. Largest of five tiny models against Hugging Face in float64: " +
			"KL mean 8.8e-4, p90 1.84e-3, max 5.8e-3, NLL +0.10 % " +
			"(standard error 0.04 %); SmolLM2-135M against the oracle over 1024 tokens: KL mean 2.0e-4, NLL -0.008 %; no first choice differed outside ties. " +
			"KL is twice the largest, NLL half of it, which the two standard errors cover",
	},
	"cpu-f32": {
		KLMean: 8.4e-11, KLP90: 1.6e-10, KLMax: 4e-9, Top1: 0.99, Tie: 0.01, NLL: 1e-6,
		Note: "npu/cpu with FP32 activations and cache, weights used as they are (F32, F16, BF16). SmolLM2-135M with BF16 weights against the oracle over 1024 tokens: " +
			"KL mean 4.2e-11, p90 8.1e-11, max 1.9e-9; five tiny models (2 to 4 layers) against Hugging Face in float64: " +
			"KL mean at most 1.3e-11, NLL within 5e-7. Twice the largest",
	},
	"cpu-f32-expanded": {
		KLMean: 1.2e-4, KLP90: 2e-4, KLMax: 2.1e-3, Top1: 0.99, Tie: 0.05, NLL: 1e-4,
		Note: "a device with FP32 activations and cache that expands quantised weights to BF16, as npu/cpu did when this was measured and no longer does: the rounding of the weights is all there is. SmolLM2-135M in Q4_1 against " +
			"the oracle over 1024 tokens: KL mean 5.8e-5, p90 9.9e-5, max 1.05e-3, NLL +0.001 % (standard error 0.01 %); twice that, NLL covered by the two standard errors",
	},
	"npu": {
		KLMean: 0.06, KLP90: 0.12, Top1: 0.78, Tie: 0.05, NLL: 0.02,
		Note: "BFP16 operands and round-down stores, as measured on SmolLM2-135M over 1024 tokens: KL mean 0.03, p90 0.06, " +
			"first choices differ at 11 % of all positions, NLL " +
			"+0.5 % (standard error 0.24 %); KL and differences are twice that, NLL 2 % because it carries the error of the text's choice too",
	},
}

// FormatThresholds are the thresholds for a number format: "cpu-bf16" and "cpu-f32" for npu/cpu with activations and cache of that type,
// "cpu-f32-expanded" for the latter where weights are quantised and become BF16, "npu" for what XDNA 2 computes with. It reports false for others. The positions of a tie are narrower for finer formats: a gap that the
// format's own noise can turn decides nothing.
func FormatThresholds(format string) (Thresholds, bool) {
	t, ok := formats[format]
	t.Format = format
	return t, ok
}
