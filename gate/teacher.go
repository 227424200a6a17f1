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
)

// LogitsReport is what [Teacher] found.
type LogitsReport struct {
	Name       string
	Text       string // what the ids are, for people; "" where nobody has said
	Reasons    []Reason
	Thresholds Thresholds

	Positions int
	NonFinite int // logits of the device that are NaN or infinite

	// KL(reference || device) of the next-token distributions, in nats, over positions.
	KLMean, KLP90, KLMax float64
	KLMaxAt              int

	Decided    int // positions whose reference is no tie
	Agreed     int // of those, where the device's first choice is the reference's
	AgreedAll  int // the same over all positions, ties included
	Mismatched []Disagreement

	Want, Got Likelihood // of the ids themselves
	// NLLChange is Got.Mean/Want.Mean - 1; NLLChangeError the standard error of that, from the differences position by position, which
	// have far less spread than the likelihoods.
	NLLChange, NLLChangeError float64
	NLLDistance               float64 // mean |difference| of a token, in nats

	MeanRelL1 float64   // of all logits; logits may be shifted by a constant without changing anything, so this is for information
	KL        []float64 // by position, to localise
	Cosine    []float64 // by position, to localise; no verdict rests on it
}

// Likelihood is the mean negative log-likelihood of a text's tokens, in nats a token, with its standard error.
type Likelihood struct {
	Tokens int     `json:"tokens"`
	Mean   float64 `json:"mean_nll"`
	StdErr float64 `json:"std_err"`
}

// Disagreement is a position that is no tie where the first choices differ.
type Disagreement struct {
	Position int     `json:"position"`
	Got      int32   `json:"got"`
	Want     int32   `json:"want"`
	Gap      float64 `json:"gap"` // between the reference's best two, in units of its logits' standard deviation
}

// Teacher is the teacher-forced gate: both scorers see the same ids, whatever they would have chosen, so that every position is a comparison of
// its own. It needs two ids or more, and reports
//
//   - the KL divergence of the device's next-token distribution from the reference's: mean, 90th percentile, maximum;
//   - how often first choices agree where the reference is no tie: the gap between its best two is at least t.Tie standard deviations of
//     its logits;
//   - the negative log-likelihood of the ids under both, and its change with a standard error.
//
// The error is that of a scorer, or of thresholds that are no use; what is wrong with the numbers is in the report.
func Teacher(ctx context.Context, device, reference Scorer, ids []int32, t Thresholds) (LogitsReport, error) {
	if err := t.Validate(); err != nil {
		return LogitsReport{}, err
	}
	if err := errors.Join(needScorer("device", device), needScorer("reference", reference)); err != nil {
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
		r.Positions++
		r.NonFinite += d.nonFinite
		absD, absE = absD+d.absD, absE+d.absE
		r.KL, r.Cosine = append(r.KL, d.kl), append(r.Cosine, d.cosine)
		if d.nonFinite > 0 {
			return nil // counted, and enough to fail; its numbers would only hide the others
		}
		if d.gotTop[0] == d.wantTop[0] {
			r.AgreedAll++
		}
		if gap := float64(want[d.wantTop[0]] - want[d.wantTop[1]]); gap >= t.Tie*d.deviation && gap > 0 {
			r.Decided++
			if d.gotTop[0] == d.wantTop[0] {
				r.Agreed++
			} else {
				r.Mismatched = append(r.Mismatched, Disagreement{Position: pos, Got: int32(d.gotTop[0]), Want: int32(d.wantTop[0]), Gap: gap / d.deviation})
			}
		}
		if pos+1 < len(ids) {
			id := int(ids[pos+1])
			if id < 0 || id >= len(want) {
				return badInput("ids", "id %d at position %d is outside the vocabulary of %d", id, pos+1, len(want))
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
	r.KLMean, r.KLP90, r.KLMax, r.KLMaxAt = KLStats(r.KL)
	r.Got, r.Want = LikelihoodOf(gotNLL), LikelihoodOf(wantNLL)
	if len(wantNLL) > 0 && r.Want.Mean > 0 {
		diff := make([]float64, len(gotNLL))
		for i := range diff {
			diff[i] = gotNLL[i] - wantNLL[i]
		}
		r.NLLChange, r.NLLChangeError, r.NLLDistance = ChangeOf(diff, r.Want)
	}
	r.Reasons = t.Judge(Summary{
		Positions: r.Positions, NonFinite: r.NonFinite, Compared: r.Positions, KLMean: r.KLMean, KLP90: r.KLP90, KLMax: r.KLMax, KLMaxAt: r.KLMaxAt, Decided: r.Decided, Agreed: r.Agreed,
		Want: r.Want, Got: r.Got, NLLChange: r.NLLChange, NLLChangeError: r.NLLChangeError, NLLDistance: r.NLLDistance,
	})
	return r, nil
}

// ChangeOf is what the differences of tokens' likelihoods, got less want, come to: the change of the mean relative to the reference's and its standard error, and the mean |difference|.
func ChangeOf(diff []float64, want Likelihood) (change, stdErr, distance float64) {
	for _, d := range diff {
		distance += math.Abs(d) / float64(len(diff))
	}
	l := LikelihoodOf(diff)
	return l.Mean / want.Mean, l.StdErr / want.Mean, distance
}

// NLL is the mean negative log-likelihood of ids under a scorer, of every id but the first, with its standard error. It needs two ids or more.
func NLL(ctx context.Context, s Scorer, ids []int32) (Likelihood, error) {
	if err := needScorer("scorer", s); err != nil {
		return Likelihood{}, err
	}
	if err := needIDs(ids, 2); err != nil {
		return Likelihood{}, err
	}
	var list []float64
	pos := 0
	for logits, err := range positions(ctx, s, ids) {
		if err != nil {
			return Likelihood{}, err
		}
		pos++
		if pos == len(ids) {
			break
		}
		id := int(ids[pos])
		if id < 0 || id >= len(logits) {
			return Likelihood{}, badInput("ids", "id %d at position %d is outside the vocabulary of %d", id, pos, len(logits))
		}
		nll := LogSumExp(logits) - float64(logits[id])
		if math.IsNaN(nll) || math.IsInf(nll, 0) {
			return Likelihood{}, fmt.Errorf("gate: the likelihood of position %d is not finite: the logits before it are not", pos)
		}
		list = append(list, nll)
	}
	return LikelihoodOf(list), nil
}

// LikelihoodOf sums up negative log-likelihoods. One token alone has no standard error that could be known, and gets 0.
func LikelihoodOf(nll []float64) Likelihood {
	l := Likelihood{Tokens: len(nll)}
	switch l.Tokens {
	case 0:
	case 1:
		l.Mean = nll[0]
	default:
		l.Mean = meanOf(nll)
		l.StdErr = stdErrOf(nll, l.Mean)
	}
	return l
}

// distribution is what one position's two rows of logits say.
type distribution struct {
	nonFinite       int
	kl              float64 // NaN when the device is not finite
	gotLSE, wantLSE float64
	gotTop, wantTop [2]int  // the two largest
	deviation       float64 // of the reference's logits
	cosine          float64
	absD, absE      float64
}

// distributions compares the softmax of two rows of logits of equal length. An infinite or NaN reference is an error.
func distributions(got, want []float32) (distribution, error) {
	var d distribution
	if len(want) < 2 {
		return d, fmt.Errorf("a vocabulary of %d has nothing to choose from", len(want))
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
	d.wantLSE, d.gotLSE = LogSumExp(want), LogSumExp(got)
	if d.nonFinite > 0 {
		d.kl = math.NaN()
		return d, nil
	}
	// sum p (log p - log q), and log p - log q is the difference of logits up to a constant.
	shift := d.gotLSE - d.wantLSE
	for i, w := range want {
		d.kl += math.Exp(float64(w)-d.wantLSE) * (float64(w) - float64(got[i]) + shift)
	}
	d.kl = max(0, d.kl) // rounding may take an exact 0 below it
	return d, nil
}

// LogSumExp is log(sum exp(x)) of a row of logits, at least one, safe from overflow: the negative log-likelihood of an id is LogSumExp less its logit.
func LogSumExp(x []float32) float64 {
	highest := float64(slices.Max(x))
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - highest)
	}
	return highest + math.Log(sum)
}

// top2 gives the indices of the two largest values; of equals the first. NaN is never among them unless there is nothing else.
func top2(x []float32) [2]int {
	top := topK(x, 2)
	return [2]int{top[0], top[1]}
}

// topK gives the indices of the k largest values, largest first; of equals the first comes first, and NaN comes last.
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

// OK reports whether every condition holds.
func (r LogitsReport) OK() bool { return len(r.Reasons) == 0 && r.Positions > 0 }

// Err is nil when r is OK, and otherwise an error with the reasons that wraps [ErrFailed].
func (r LogitsReport) Err() error { return failure(r.Name, r.OK(), r.Reasons) }

// Top1 is the share of decided positions whose first choices agree; 1 when none is decided.
func (r LogitsReport) Top1() float64 {
	if r.Decided == 0 {
		return 1
	}
	return float64(r.Agreed) / float64(r.Decided)
}

// String is the report as an aligned table.
func (r LogitsReport) String() string {
	var b strings.Builder
	verdict(&b, r.Name, r.OK(), r.Reasons)
	t := r.Thresholds
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  positions\t%d\t%s\n", r.Positions, r.Text)
	fmt.Fprintf(w, "  mean KL\t%.3g nats\tat most %.3g\n", r.KLMean, t.KLMean)
	fmt.Fprintf(w, "  p90 KL\t%.3g nats\tat most %.3g\n", r.KLP90, t.KLP90)
	fmt.Fprintf(w, "  max KL\t%.3g nats\tat position %d\n", r.KLMax, r.KLMaxAt)
	fmt.Fprintf(w, "  top-1\t%.2f %% of %d decided\tat least %.4g %%\n", 100*r.Top1(), r.Decided, 100*t.Top1)
	fmt.Fprintf(w, "  NLL\t%.5f, reference %.5f ± %.2g\t\n", r.Got.Mean, r.Want.Mean, r.Want.StdErr)
	fmt.Fprintf(w, "  change of NLL\t%+.4f %% ± %.2g %%\twithin %.4g %% and two standard errors\n", 100*r.NLLChange, 100*r.NLLChangeError, 100*t.NLL)
	flush(w)
	if len(r.Mismatched) > 0 {
		fmt.Fprintf(&b, "  first choices that differ (%d)\n", len(r.Mismatched))
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "    position\tgot\twant\tgap\n")
		for _, m := range r.Mismatched[:min(keep, len(r.Mismatched))] {
			fmt.Fprintf(w, "    %d\t%d\t%d\t%.3g deviations\n", m.Position, m.Got, m.Want, m.Gap)
		}
		flush(w)
	}
	fmt.Fprintf(&b, "  thresholds: %s\n", t.Note)
	return tidy(b.String())
}

// MarshalJSON writes the report for programs.
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
		r.Name, r.Text, r.OK(), append([]Reason{}, r.Reasons...), r.Thresholds, r.Positions, r.NonFinite, r.KLMean, r.KLP90, r.KLMax, r.KLMaxAt,
		r.Decided, r.Top1(), append([]Disagreement{}, r.Mismatched...), r.Got, r.Want, r.NLLChange, r.NLLChangeError, r.NLLDistance, r.MeanRelL1,
		numbers(r.KL), numbers(r.Cosine),
	})
}
