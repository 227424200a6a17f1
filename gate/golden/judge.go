package golden

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/internal/stats"
)

// Report is the result of [Judge].
type Report struct {
	gate.Verdict // Judged counts positions
	Thresholds   gate.Thresholds

	NonFinite int // logits of the device that are NaN or infinite

	// Of the ids, if the reference's likelihoods are stored.
	Want, Got                 gate.Likelihood
	NLLChange, NLLChangeError float64
	NLLDistance               float64 // mean absolute change of a token, in nats

	// Of the positions, if their top logits are stored.
	Compared             int // positions with top logits
	KLMean, KLP90, KLMax float64
	KLMaxAt              int
	Decided, Agreed      int // positions that are not ties, and those of them that agree on top-1
}

// Judge compares a device with a sequence that stores less than all logits: the likelihood of each
// id, the top logits of each position. With all logits stored, use [gate.Teacher] over
// [Sequence.Record].
//
// The KL divergence here is between distributions over the stored ids and one outcome for all
// others. It never exceeds that over the whole vocabulary, so the same thresholds apply; see
// [gate.Thresholds.Judge].
func Judge(ctx context.Context, device gate.Scorer, s Sequence, t gate.Thresholds) (Report, error) {
	if err := t.Validate(); err != nil {
		return Report{}, err
	}
	if device == nil {
		return Report{}, &gate.InputError{Field: "device", Reason: "the Scorer is nil"}
	}
	if s.NLL == nil && s.Top == nil {
		return Report{}, &gate.InputError{Field: "s",
			Reason: fmt.Sprintf("sequence %q stores neither likelihoods nor top logits", s.Name)}
	}
	r := Report{Verdict: gate.Verdict{Name: s.Name}, Thresholds: t}
	var got, want, diff, kl []float64
	err := device.Score(ctx, s.IDs, func(pos int, logits []float32) error {
		if pos != r.Judged || pos >= len(s.IDs) {
			return fmt.Errorf("golden: Score emitted position %d, want %d", pos, r.Judged)
		}
		r.Judged++
		bad := 0
		for _, v := range logits {
			if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
				bad++
			}
		}
		if r.NonFinite += bad; bad > 0 {
			return nil
		}
		lse := stats.LogSumExp(logits)
		if s.NLL != nil && pos+1 < len(s.IDs) {
			id := int(s.IDs[pos+1])
			if id >= len(logits) {
				return fmt.Errorf("golden: id %d at position %d is outside the device's vocabulary of %d", id,
					pos+1, len(logits))
			}
			nll := lse - float64(logits[id])
			got, want, diff = append(got, nll), append(want, s.NLL[pos]), append(diff, nll-s.NLL[pos])
		}
		if s.Top == nil {
			return nil
		}
		top := s.Top[pos]
		v, err := coarseKL(top, logits, lse)
		if err != nil {
			return fmt.Errorf("golden: position %d: %w", pos, err)
		}
		kl = append(kl, v)
		if gap := top.Logits[0] - top.Logits[1]; gap > 0 && gap >= t.Tie*deviation(logits) {
			r.Decided++
			if best(logits) == top.IDs[0] {
				r.Agreed++
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return Report{}, err
	case r.Judged != len(s.IDs):
		return Report{}, fmt.Errorf("golden: Score emitted %d positions of %d", r.Judged, len(s.IDs))
	}
	r.Got, r.Want, r.Compared = likelihoodOf(got), likelihoodOf(want), len(kl)
	if r.Want.Mean > 0 {
		r.NLLChange, r.NLLChangeError, r.NLLDistance = stats.Change(diff, r.Want.Mean)
	}
	r.KLMean, r.KLP90, r.KLMax, r.KLMaxAt = stats.KL(kl)
	r.Reasons = t.Judge(gate.Summary{
		Positions: r.Judged, NonFinite: r.NonFinite, Compared: r.Compared,
		KLMean: r.KLMean, KLP90: r.KLP90, KLMax: r.KLMax, KLMaxAt: r.KLMaxAt,
		Decided: r.Decided, Agreed: r.Agreed, Want: r.Want, Got: r.Got,
		NLLChange: r.NLLChange, NLLChangeError: r.NLLChangeError, NLLDistance: r.NLLDistance,
	})
	return r, nil
}

// likelihoodOf summarizes negative log-likelihoods.
func likelihoodOf(nll []float64) gate.Likelihood {
	mean, stdErr := stats.Mean(nll)
	return gate.Likelihood{Tokens: len(nll), Mean: mean, StdErr: stdErr}
}

// minRest is the smallest probability of the other ids that counts: logits are stored with five
// decimals.
const minRest = 1e-5

// coarseKL returns KL(stored || device) over the stored ids and one outcome for the others.
func coarseKL(top Top, logits []float32, lse float64) (float64, error) {
	sum, restP, restQ := 0.0, 1.0, 1.0
	for i, id := range top.IDs {
		if int(id) >= len(logits) {
			return 0, fmt.Errorf("stored id %d is outside the device's vocabulary of %d", id, len(logits))
		}
		logP, logQ := top.Logits[i]-top.LogSumExp, float64(logits[id])-lse
		sum += math.Exp(logP) * (logP - logQ)
		restP, restQ = restP-math.Exp(logP), restQ-math.Exp(logQ)
	}
	if restP > minRest && restQ > minRest {
		sum += restP * math.Log(restP/restQ)
	}
	return max(0, sum), nil
}

// String returns the report for people.
func (r Report) String() string {
	var b strings.Builder
	word := "PASS"
	if !r.OK() {
		word = "FAIL"
	}
	fmt.Fprintf(&b, "%s %s\n", word, r.Name)
	for _, reason := range r.Reasons {
		fmt.Fprintf(&b, "  %s\n", reason.Text)
	}
	fmt.Fprintf(&b, "  %d positions\n", r.Judged)
	if r.Want.Tokens > 0 {
		fmt.Fprintf(&b, "  NLL %.5f, reference %.5f ± %.2g: %+.4f %% ± %.2g %%, within %.4g %% and "+
			"two standard errors\n",
			r.Got.Mean, r.Want.Mean, r.Want.StdErr, 100*r.NLLChange, 100*r.NLLChangeError, 100*r.Thresholds.NLL)
	}
	if r.Compared > 0 {
		fmt.Fprintf(&b, "  KL over the stored logits: mean %.3g nats, at most %.3g, p90 %.3g, at most "+
			"%.3g; top-1 agrees at %d of %d decided\n",
			r.KLMean, r.Thresholds.KLMean, r.KLP90, r.Thresholds.KLP90, r.Agreed, r.Decided)
	}
	fmt.Fprintf(&b, "  thresholds: %s\n", r.Thresholds.Note)
	return b.String()
}

// MarshalJSON encodes the report for programs.
func (r Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name           string          `json:"name,omitempty"`
		OK             bool            `json:"ok"`
		Reasons        []gate.Reason   `json:"reasons"`
		Thresholds     gate.Thresholds `json:"thresholds"`
		Positions      int             `json:"positions"`
		NonFinite      int             `json:"non_finite"`
		Got            gate.Likelihood `json:"nll"`
		Want           gate.Likelihood `json:"nll_reference"`
		NLLChange      float64         `json:"nll_change"`
		NLLChangeError float64         `json:"nll_change_std_err"`
		NLLDistance    float64         `json:"nll_distance"`
		Compared       int             `json:"compared"`
		KLMean         float64         `json:"kl_mean"`
		KLP90          float64         `json:"kl_p90"`
		KLMax          float64         `json:"kl_max"`
		KLMaxAt        int             `json:"kl_max_at"`
		Decided        int             `json:"decided"`
		Agreed         int             `json:"agreed"`
	}{
		r.Name, r.OK(), append([]gate.Reason{}, r.Reasons...), r.Thresholds, r.Judged, r.NonFinite,
		r.Got, r.Want, r.NLLChange, r.NLLChangeError, r.NLLDistance,
		r.Compared, r.KLMean, r.KLP90, r.KLMax, r.KLMaxAt, r.Decided, r.Agreed,
	})
}

// deviation returns the standard deviation of a row of logits.
func deviation(row []float32) float64 {
	var sum, squares float64
	for _, v := range row {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(len(row))
	return math.Sqrt(max(0, squares/n-sum/n*sum/n))
}

// best returns the index of the largest value; of equal ones, the first.
func best(x []float32) int32 {
	at := 0
	for i, v := range x {
		if v > x[at] {
			at = i
		}
	}
	return int32(at)
}
