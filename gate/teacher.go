package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/npukit/npukit/gate/internal/stats"
)

// LogitsReport is the result of [Teacher].
type LogitsReport struct {
	Verdict           // Judged counts positions
	Text       string // describes the ids, for people; may be empty
	Thresholds Thresholds

	NonFinite int // logits of the device that are NaN or infinite

	// KL(reference || device) of the next-token distributions, in nats, over positions.
	KLMean, KLP90, KLMax float64
	KLMaxAt              int

	Decided    int // positions that are not ties
	Agreed     int // of those, positions with the reference's top-1
	AgreedAll  int // the same over all positions, ties included
	Mismatched []Disagreement

	Want, Got Likelihood // of the ids
	// NLLChange is Got.Mean/Want.Mean - 1. Its standard error is that of the differences by
	// position, which spread far less than the likelihoods.
	NLLChange, NLLChangeError float64
	NLLDistance               float64 // mean absolute change of a token, in nats

	// The rest is for localization; no verdict depends on it.
	MeanRelL1 float64   // of all logits
	KL        []float64 // by position
	Cosine    []float64 // by position
}

// Likelihood is the mean negative log-likelihood of a text in nats per token, with its standard
// error.
type Likelihood struct {
	Tokens int     `json:"tokens"`
	Mean   float64 `json:"mean_nll"`
	StdErr float64 `json:"std_err"`
}

// Disagreement is a position that is not a tie and where top-1 differs.
type Disagreement struct {
	Position int   `json:"position"`
	Got      int32 `json:"got"`
	Want     int32 `json:"want"`
	// Gap is that between the reference's top 2, in standard deviations of its logits.
	Gap float64 `json:"gap"`
}

// Teacher is the teacher-forced gate: both scorers see the same ids, so every position is compared
// independently. It needs two ids or more and reports
//
//   - the KL divergence of the device's next-token distribution from the reference's: mean, 90th
//     percentile, maximum;
//   - top-1 agreement at positions that are not ties, that is, where the reference's top-2 gap is
//     at least t.Tie standard deviations of its logits;
//   - the negative log-likelihood of the ids under both, and its change with a standard error.
//
// It returns an [InputError] for bad arguments, or a scorer's own error. Wrong numbers are in the
// report.
func Teacher(ctx context.Context, device, reference Scorer, ids []int32,
	t Thresholds) (LogitsReport, error) {
	if err := t.Validate(); err != nil {
		return LogitsReport{}, err
	}
	if err := errors.Join(needScorer("device", device),
		needScorer("reference", reference)); err != nil {
		return LogitsReport{}, err
	}
	if err := needIDs(ids, 2); err != nil {
		return LogitsReport{}, err
	}
	r := LogitsReport{Thresholds: t}
	var gotNLL, wantNLL []float64
	var absD, absE float64
	err := lockstep(ctx, device, reference, ids, func(pos int, got, want []float32) error {
		d, err := distributions(got, want)
		if err != nil {
			return fmt.Errorf("gate: position %d: %w", pos, err)
		}
		r.Judged++
		r.NonFinite += d.nonFinite
		absD, absE = absD+d.absD, absE+d.absE
		r.KL, r.Cosine = append(r.KL, d.kl), append(r.Cosine, d.cosine)
		if d.nonFinite > 0 {
			return nil // fails already; its other numbers mean nothing
		}
		if d.gotTop[0] == d.wantTop[0] {
			r.AgreedAll++
		}
		if gap := float64(want[d.wantTop[0]] - want[d.wantTop[1]]); gap >= t.Tie*d.deviation && gap > 0 {
			r.Decided++
			if d.gotTop[0] == d.wantTop[0] {
				r.Agreed++
			} else {
				r.Mismatched = append(r.Mismatched, Disagreement{
					Position: pos, Got: int32(d.gotTop[0]), Want: int32(d.wantTop[0]), Gap: gap / d.deviation,
				})
			}
		}
		if pos+1 < len(ids) {
			id := int(ids[pos+1])
			if id < 0 || id >= len(want) {
				return badInput("ids", "id %d at position %d is outside the vocabulary of %d", id, pos+1,
					len(want))
			}
			gotNLL = append(gotNLL, d.gotLSE-float64(got[id]))
			wantNLL = append(wantNLL, d.wantLSE-float64(want[id]))
		}
		return nil
	})
	if err != nil {
		return LogitsReport{}, err
	}
	r.MeanRelL1 = absD / (absE + tiny)
	r.KLMean, r.KLP90, r.KLMax, r.KLMaxAt = stats.KL(r.KL)
	r.Got, r.Want = likelihoodOf(gotNLL), likelihoodOf(wantNLL)
	if len(wantNLL) > 0 && r.Want.Mean > 0 {
		diff := make([]float64, len(gotNLL))
		for i := range diff {
			diff[i] = gotNLL[i] - wantNLL[i]
		}
		r.NLLChange, r.NLLChangeError, r.NLLDistance = stats.Change(diff, r.Want.Mean)
	}
	r.Reasons = t.Judge(Summary{
		Positions: r.Judged, NonFinite: r.NonFinite, Compared: r.Judged,
		KLMean: r.KLMean, KLP90: r.KLP90, KLMax: r.KLMax, KLMaxAt: r.KLMaxAt,
		Decided: r.Decided, Agreed: r.Agreed, Want: r.Want, Got: r.Got,
		NLLChange: r.NLLChange, NLLChangeError: r.NLLChangeError, NLLDistance: r.NLLDistance,
	})
	return r, nil
}

// likelihoodOf summarizes negative log-likelihoods.
func likelihoodOf(nll []float64) Likelihood {
	mean, stdErr := stats.Mean(nll)
	return Likelihood{Tokens: len(nll), Mean: mean, StdErr: stdErr}
}

// distribution compares one position's two rows of logits.
type distribution struct {
	nonFinite       int
	kl              float64 // NaN if the device is not finite
	gotLSE, wantLSE float64
	gotTop, wantTop [2]int  // the two largest
	deviation       float64 // standard deviation of the reference's logits
	cosine          float64
	absD, absE      float64
}

// distributions compares the softmax of two rows of logits of equal length. An infinite or NaN
// reference is an error.
func distributions(got, want []float32) (distribution, error) {
	var d distribution
	if len(want) < 2 {
		return d, fmt.Errorf("a vocabulary of %d is too small, want 2 or more", len(want))
	}
	var sum, square, ae, aa float64
	for i, w32 := range want {
		g, w := float64(got[i]), float64(w32)
		if math.IsNaN(w) || math.IsInf(w, 0) {
			return d, fmt.Errorf("the reference's logit %d is %v", i, w)
		}
		sum += w
		square += w * w
		d.absE += math.Abs(w)
		if math.IsNaN(g) || math.IsInf(g, 0) {
			d.nonFinite++
			continue
		}
		ae += g * w
		aa += g * g
		d.absD += math.Abs(g - w)
	}
	n := float64(len(want))
	d.deviation = math.Sqrt(max(0, square/n-sum/n*sum/n))
	d.cosine = ae / (math.Sqrt(aa)*math.Sqrt(square) + tiny)
	d.wantTop, d.gotTop = top2(want), top2(got)
	d.wantLSE, d.gotLSE = stats.LogSumExp(want), stats.LogSumExp(got)
	if d.nonFinite > 0 {
		d.kl = math.NaN()
		return d, nil
	}
	// sum p (log p - log q), and log p - log q is the difference of logits up to a constant.
	shift := d.gotLSE - d.wantLSE
	for i, w := range want {
		d.kl += math.Exp(float64(w)-d.wantLSE) * (float64(w) - float64(got[i]) + shift)
	}
	d.kl = max(0, d.kl) // rounding can make it slightly negative
	return d, nil
}

// top2 returns the indices of the two largest values, as topK does.
func top2(x []float32) [2]int {
	top := topK(x, 2)
	return [2]int{top[0], top[1]}
}

// topK returns the indices of the k largest values in descending order; of equal values the first
// comes first, and NaN comes last.
func topK(x []float32, k int) []int {
	k = min(k, len(x))
	top := make([]int, 0, k+1)
	above := func(a, b float32) bool { return a > b || b != b && a == a }
	for i, v := range x {
		if len(top) == k && !above(v, x[top[k-1]]) {
			continue
		}
		at := len(top)
		for at > 0 && above(v, x[top[at-1]]) {
			at--
		}
		top = slices.Insert(top, at, i)
		top = top[:min(k, len(top))]
	}
	return top
}

// Top1 returns the share of decided positions that agree; 1 if none is decided.
func (r LogitsReport) Top1() float64 {
	if r.Decided == 0 {
		return 1
	}
	return float64(r.Agreed) / float64(r.Decided)
}

// String returns the report as a table.
func (r LogitsReport) String() string {
	var b strings.Builder
	r.head(&b)
	t := r.Thresholds
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  positions\t%d\t%s\n", r.Judged, r.Text)
	fmt.Fprintf(w, "  mean KL\t%.3g nats\tat most %.3g\n", r.KLMean, t.KLMean)
	fmt.Fprintf(w, "  p90 KL\t%.3g nats\tat most %.3g\n", r.KLP90, t.KLP90)
	fmt.Fprintf(w, "  max KL\t%.3g nats\tat position %d\n", r.KLMax, r.KLMaxAt)
	fmt.Fprintf(w, "  top-1\t%.2f %% of %d decided\tat least %.4g %%\n", 100*r.Top1(), r.Decided,
		100*t.Top1)
	fmt.Fprintf(w, "  NLL\t%.5f, reference %.5f ± %.2g\t\n", r.Got.Mean, r.Want.Mean, r.Want.StdErr)
	fmt.Fprintf(w, "  change of NLL\t%+.4f %% ± %.2g %%\twithin %.4g %% and two standard errors\n",
		100*r.NLLChange, 100*r.NLLChangeError, 100*t.NLL)
	flush(w)
	if len(r.Mismatched) > 0 {
		fmt.Fprintf(&b, "  top-1 differs (%d)\n", len(r.Mismatched))
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "    position\tgot\twant\tgap\n")
		for _, m := range r.Mismatched[:min(maxWorst, len(r.Mismatched))] {
			fmt.Fprintf(w, "    %d\t%d\t%d\t%.3g deviations\n", m.Position, m.Got, m.Want, m.Gap)
		}
		flush(w)
	}
	fmt.Fprintf(&b, "  thresholds: %s\n", t.Note)
	return trimLines(b.String())
}

// MarshalJSON encodes the report for programs.
func (r LogitsReport) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name           string         `json:"name,omitempty"`
		Text           string         `json:"text,omitempty"`
		OK             bool           `json:"ok"`
		Reasons        []Reason       `json:"reasons"`
		Thresholds     Thresholds     `json:"thresholds"`
		Positions      int            `json:"positions"`
		NonFinite      int            `json:"non_finite"`
		KLMean         float64        `json:"kl_mean"`
		KLP90          float64        `json:"kl_p90"`
		KLMax          float64        `json:"kl_max"`
		KLMaxAt        int            `json:"kl_max_at"`
		Decided        int            `json:"decided"`
		Top1           float64        `json:"top1"`
		Disagreements  []Disagreement `json:"disagreements"`
		Got            Likelihood     `json:"nll"`
		Want           Likelihood     `json:"nll_reference"`
		NLLChange      float64        `json:"nll_change"`
		NLLChangeError float64        `json:"nll_change_std_err"`
		NLLDistance    float64        `json:"nll_distance"`
		MeanRelL1      float64        `json:"logits_mean_rel_l1"`
		KL             []*float64     `json:"kl"`
		Cosine         []*float64     `json:"cosine"`
	}{
		r.Name, r.Text, r.OK(), append([]Reason{}, r.Reasons...), r.Thresholds, r.Judged, r.NonFinite,
		r.KLMean, r.KLP90, r.KLMax, r.KLMaxAt, r.Decided, r.Top1(),
		append([]Disagreement{}, r.Mismatched...), r.Got, r.Want,
		r.NLLChange, r.NLLChangeError, r.NLLDistance, r.MeanRelL1, numbers(r.KL), numbers(r.Cosine),
	})
}
