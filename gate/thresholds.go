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
	NLL    float64 `json:"nll"`     // relative change of the mean NLL, either way, at most, beyond two standard errors; must be set
	Note   string  `json:"note"`    // where the numbers came from; must not be empty
}

// uselessKL is a divergence that no useful device has. A model that answers uniformly from 512 tokens where the reference is sure has 6
// nats; one that is right but for rounding has hundredths.
const uselessKL = 1

// Validate refuses thresholds with which a gate would prove nothing. Of the bounds on size, KLMean, KLP90 and NLL, none can be left out:
// agreement of first choices alone does not see a device whose logits are scaled.
func (t Thresholds) Validate() error {
	for _, b := range []struct {
		name  string
		v     float64
		limit float64
	}{{"KLMean", t.KLMean, uselessKL}, {"KLP90", t.KLP90, uselessKL}, {"Top1", t.Top1, 1}, {"NLL", t.NLL, 0.5}} {
		if !(b.v > 0 && b.v <= b.limit) {
			return fmt.Errorf("%w: %s is %v, want more than 0 and at most %v", ErrTolerance, b.name, b.v, b.limit)
		}
	}
	switch {
	case !(t.KLMax >= 0) || math.IsInf(t.KLMax, 0):
		return fmt.Errorf("%w: KLMax is %v, want a number from 0 on", ErrTolerance, t.KLMax)
	case !(t.Tie >= 0 && t.Tie <= 1):
		return fmt.Errorf("%w: Tie is %v, want 0 to 1: beyond a standard deviation nearly everything is a tie", ErrTolerance, t.Tie)
	case strings.TrimSpace(t.Note) == "":
		return fmt.Errorf("%w: Note is empty: say where the thresholds came from", ErrTolerance)
	}
	return nil
}

// leastDecided is the share of positions that must be no tie before agreement of first choices says anything.
const leastDecided = 0.1

// LeastTokens is how many scored tokens a text needs for its likelihood to be judged beside other bounds: one has no standard error.
const LeastTokens = 2

func (t Thresholds) judge(r LogitsReport) []Reason {
	var list []Reason
	fail := func(metric, format string, args ...any) {
		list = append(list, Reason{metric, fmt.Sprintf(format, args...)})
	}
	if r.NonFinite > 0 {
		fail(NonFinite, "%d logits of the device are NaN or infinite", r.NonFinite)
	}
	if !(r.KLMean <= t.KLMean) { // NaN too
		fail(MeanKL, "mean KL is %.4g nats, want at most %.4g", r.KLMean, t.KLMean)
	}
	if !(r.KLP90 <= t.KLP90) {
		fail(P90KL, "p90 KL is %.4g nats, want at most %.4g", r.KLP90, t.KLP90)
	}
	if t.KLMax > 0 && !(r.KLMax <= t.KLMax) {
		fail(MaxKL, "max KL is %.4g nats at position %d, want at most %.4g", r.KLMax, r.KLMaxAt, t.KLMax)
	}
	if !(r.Top1() >= t.Top1) {
		fail(Top1, "first choices agree at %d of %d positions that are no ties (%.2f %%), want at least %.4g %%",
			r.Agreed, r.Decided, 100*r.Top1(), 100*t.Top1)
	}
	if float64(r.Decided) < leastDecided*float64(r.Positions) && r.NonFinite == 0 {
		fail(Top1, "only %d of %d positions are no ties: first choices say nothing here; use another text or a smaller Tie", r.Decided, r.Positions)
	}
	if limit := t.NLL + 2*r.NLLChangeError; r.Want.Tokens >= LeastTokens && !(math.Abs(r.NLLChange) <= limit) {
		fail(NLLShift, "mean NLL is %.5f, the reference's %.5f: %+.3f %%, want within %.3f %% (%.3g %% and two standard errors of %.2g %%)",
			r.Got.Mean, r.Want.Mean, 100*r.NLLChange, 100*limit, 100*t.NLL, 100*r.NLLChangeError)
	}
	return list
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
		Note: "npu/cpu with FP32 activations and cache and quantised weights, which it expands to BF16: the rounding of the weights is all there is. SmolLM2-135M in Q4_1 against " +
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
