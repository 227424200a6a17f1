package gate

import (
	"fmt"
	"math"
	"strings"
)

// Thresholds are the conditions on a model's logits in a number format, and the source of their
// numbers.
type Thresholds struct {
	Format string  `json:"format"`  // such as "cpu-bf16"
	KLMean float64 `json:"kl_mean"` // upper bound in nats; must be set
	KLP90  float64 `json:"kl_p90"`  // upper bound in nats; must be set
	KLMax  float64 `json:"kl_max"`  // upper bound in nats; 0 is no bound
	// Top1 is the smallest share of decided positions that agree; must be set.
	Top1 float64 `json:"top1"`
	// Tie is the top-2 gap in standard deviations of the logits below which a position is a tie.
	Tie float64 `json:"tie"`
	// NLL bounds the relative change of the mean NLL, either way, beyond two standard errors of the
	// size that KLMean explains; must be set.
	NLL  float64 `json:"nll"`
	Note string  `json:"note"` // where the numbers came from; must not be empty
}

// uselessKL is a divergence that no useful device has: one that answers uniformly from 512 tokens
// where the reference is certain has 6 nats, rounding has hundredths.
const uselessKL = 1

// Validate returns an [InputError] if t proves nothing. KLMean, KLP90 and
// NLL must all be set: top-1 agreement alone does not detect scaled logits.
func (t Thresholds) Validate() error {
	for _, b := range []struct {
		name  string
		v     float64
		limit float64
	}{{"KLMean", t.KLMean, uselessKL}, {"KLP90", t.KLP90, uselessKL}, {"Top1", t.Top1, 1}, {"NLL",
		t.NLL, 0.5}} {
		if !(b.v > 0 && b.v <= b.limit) {
			return badInput(b.name, "%v, want more than 0 and at most %v", b.v, b.limit)
		}
	}
	switch {
	case !(t.KLMax >= 0) || math.IsInf(t.KLMax, 0):
		return badInput("KLMax", "%v, want a finite number >= 0", t.KLMax)
	case !(t.Tie >= 0 && t.Tie <= 1):
		return badInput("Tie", "%v, want 0 to 1: beyond one standard deviation nearly every position "+
			"is a tie", t.Tie)
	case strings.TrimSpace(t.Note) == "":
		return badInput("Note", "empty: state where the thresholds came from")
	}
	return nil
}

// minDecided is the share of positions that must not be ties for top-1 agreement to mean anything.
const minDecided = 0.1

// minTokens is the number of scored tokens from which the likelihood is judged along with other
// bounds: a single one has no standard error.
const minTokens = 2

// Summary has the figures for a verdict on logits, compared with all of a reference's or with the
// stored part of them.
type Summary struct {
	Positions int
	NonFinite int // logits of the device that are NaN or infinite

	Compared             int // positions with a KL divergence
	KLMean, KLP90, KLMax float64
	KLMaxAt              int
	Decided, Agreed      int // positions that are not ties, and those of them that agree on top-1

	Want, Got                 Likelihood
	NLLChange, NLLChangeError float64 // relative
	NLLDistance               float64 // mean absolute change of a token, in nats
}

// nllSpread bounds the change of a token's log-likelihood in units of sqrt(2 KLMean). For tokens
// drawn from the distribution itself, small changes have a mean square of twice the KL divergence;
// a real text has less likely ones.
//
// Measured against the bound of KLMean: the mean change is at most 0.91 of sqrt(2 KLMean), its root
// mean square 1.21, on five tiny models with random ids on npu/cpu in BF16 and FP32; 0.57 and 0.90
// on SmolLM2-135M on npu/sim over 256 tokens of text. 2 is about twice the mean.
const nllSpread = 2

// Judge lists the conditions that do not hold. No reasons for positions that were compared is a
// pass.
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

// judgeKL judges the distributions and top-1 agreement.
func (t Thresholds) judgeKL(s Summary, fail func(metric, format string, args ...any)) {
	if !(s.KLMean <= t.KLMean) { // NaN too
		fail(MeanKL, "mean KL is %.4g nats, want at most %.4g", s.KLMean, t.KLMean)
	}
	if !(s.KLP90 <= t.KLP90) {
		fail(metricP90KL, "p90 KL is %.4g nats, want at most %.4g", s.KLP90, t.KLP90)
	}
	if t.KLMax > 0 && !(s.KLMax <= t.KLMax) {
		fail(metricMaxKL, "max KL is %.4g nats at position %d, want at most %.4g", s.KLMax, s.KLMaxAt, t.KLMax)
	}
	if s.Decided > 0 && !(float64(s.Agreed) >= t.Top1*float64(s.Decided)) {
		fail(metricTop1, "top-1 agrees at %d of %d positions that are not ties (%.2f %%), want at least "+
			"%.4g %%",
			s.Agreed, s.Decided, 100*float64(s.Agreed)/float64(s.Decided), 100*t.Top1)
	}
	if float64(s.Decided) < minDecided*float64(s.Positions) && s.NonFinite == 0 {
		fail(metricTop1, "only %d of %d positions are not ties, too few for top-1: use another text or a "+
			"smaller Tie",
			s.Decided, s.Positions)
	}
}

// judgeNLL judges the likelihoods. A single token counts only if there are no other bounds.
func (t Thresholds) judgeNLL(s Summary, fail func(metric, format string, args ...any)) {
	n := s.Want.Tokens
	if n == 0 || n < minTokens && s.Compared > 0 {
		return
	}
	if !(s.Want.Mean > 0) {
		fail(metricNLL, "mean NLL of the reference is %v, want more than 0", s.Want.Mean)
		return
	}
	// Two standard errors, but no more than the number format explains: a wrong device has large
	// ones.
	spread := nllSpread * math.Sqrt(2*t.KLMean)
	allowed := 2 * min(s.NLLChangeError, spread/math.Sqrt(float64(n))/s.Want.Mean)
	if limit := t.NLL + allowed; !(math.Abs(s.NLLChange) <= limit) {
		fail(metricNLL, "mean NLL is %.5f, the reference's %.5f: %+.3f %%, want within %.3f %% "+
			"(%.3g %% and %.2g %% for two standard errors)",
			s.Got.Mean, s.Want.Mean, 100*s.NLLChange, 100*limit, 100*t.NLL, 100*allowed)
	}
	if n >= minTokens && !(s.NLLDistance <= spread) {
		fail(metricNLL, "NLL of a token is off by %.4g nats on average, want at most %.4g", s.NLLDistance,
			spread)
	}
}

// formats are the thresholds by number format.
var formats = map[string]Thresholds{
	"cpu-bf16": {
		KLMean: 1.7e-3, KLP90: 3.6e-3, KLMax: 1.1e-2, Top1: 0.99, Tie: 0.05, NLL: 5e-4,
		Note: "npu/cpu with BF16 activations and cache. Largest of five tiny models against Hugging " +
			"Face in " +
			"float64: KL mean 8.8e-4, p90 1.84e-3, max 5.8e-3, NLL +0.10 % (standard error 0.04 %); " +
			"SmolLM2-135M against the oracle over 1024 tokens: KL mean 2.0e-4, NLL -0.008 %; top-1 " +
			"differed " +
			"in ties only. KL is twice the largest, NLL half of it, which two standard errors cover",
	},
	"cpu-f32": {
		KLMean: 8.4e-11, KLP90: 1.6e-10, KLMax: 4e-9, Top1: 0.99, Tie: 0.01, NLL: 1e-6,
		Note: "npu/cpu with FP32 activations and cache, weights not rounded. SmolLM2-135M with BF16 " +
			"weights " +
			"against the oracle over 1024 tokens: KL mean 4.2e-11, p90 8.1e-11, max 1.9e-9; five tiny " +
			"models " +
			"(2 to 4 layers) against Hugging Face in float64: KL mean at most 1.3e-11, NLL within 5e-7. " +
			"Twice the largest",
	},
	"cpu-f32-expanded": {
		KLMean: 1.2e-4, KLP90: 2e-4, KLMax: 2.1e-3, Top1: 0.99, Tie: 0.05, NLL: 1e-4,
		Note: "a device with FP32 activations and cache that rounds quantized weights to BF16, which " +
			"causes " +
			"nearly all of the error. SmolLM2-135M in Q4_1 against the oracle over 1024 tokens: KL mean " +
			"5.8e-5, p90 9.9e-5, max 1.05e-3, NLL +0.001 % (standard error 0.01 %); twice that, NLL " +
			"covered " +
			"by two standard errors",
	},
	"npu": {
		KLMean: 0.06, KLP90: 0.12, Top1: 0.78, Tie: 0.05, NLL: 0.02,
		Note: "BFP16 operands and round-down stores, measured on SmolLM2-135M over 1024 tokens: KL " +
			"mean 0.03, " +
			"p90 0.06, top-1 differs at 11 % of all positions, NLL +0.5 % (standard error 0.24 %); KL and " +
			"top-1 are twice that, NLL 2 % because it depends on the text too",
	},
}

// FormatThresholds returns the thresholds of a number format and whether it has any: "cpu-bf16" and
// "cpu-f32" for npu/cpu with activations and cache of that type, "cpu-f32-expanded" for the latter
// with quantized weights rounded to BF16, "npu" for XDNA 2. Finer formats have a smaller Tie: a gap
// that the format's own noise can flip decides nothing.
func FormatThresholds(format string) (Thresholds, bool) {
	t, ok := formats[format]
	t.Format = format
	return t, ok
}
