package timing

import (
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu/xdna2"
	"github.com/npukit/npukit/skill/internal/journal"
)

// ClockError is the smallest predicted difference that counts: the clock's held-out median error.
const ClockError = xdna2.HeldOutError

// Costless is the largest predicted loss of a change that costs nothing. Two predictions of one clock
// share its error, so a loss is believed at once; only a gain must exceed the error.
const Costless = 0.001

// Median sorts list and returns its middle and its spread, which is half the distance of the
// quartiles over the median.
func Median(list []float64) (middle, spread float64) {
	slices.Sort(list)
	n := len(list)
	middle = list[n/2]
	return middle, (list[3*n/4] - list[n/4]) / 2 / middle
}

// Gain returns by which share after is faster than before in the time that the phase optimises:
// 0.2 is 20 % less time.
func Gain(p journal.Phase, before, after journal.Measurement) float64 {
	if p == journal.Decode {
		return 1 - before.TokensPerSec/after.TokensPerSec
	}
	return 1 - after.TTFT/before.TTFT
}

// Faster reports whether an attempt is kept, and returns the reason. It is kept if it is faster
// beyond noise. A change to the published form is kept if it costs nothing: its programs exist, and
// equal speed is no reason to compile others. No change may slow the other phase.
func Faster(a *journal.Attempt, p journal.Phase) (bool, string) {
	switch {
	case a.Before == nil || a.After == nil:
		return false, "it was not measured"
	case a.Turns == nil:
		return PredictedFaster(a, p)
	}
	why := timeOf(p) + " " + a.Turns.String()
	if o := a.OtherTurns; o != nil && -o.Gain > max(journal.LeastSpread, o.Noise) {
		return false, why + ", but it slows the other phase: " + timeOf(other(p)) + " " + o.String()
	}
	noise := max(journal.LeastSpread, a.Turns.Noise)
	return decide(a, a.Turns.Gain, noise, noise, why)
}

// PredictedFaster is [Faster] for predictions, whose noise is the clock's own error.
func PredictedFaster(a *journal.Attempt, p journal.Phase) (bool, string) {
	if !a.Before.Predicted || !a.After.Predicted || a.Before.Positions != a.After.Positions {
		return false, "cannot compare: a time is not predicted, or the prompts have different lengths"
	}
	gain, why := predicted(p, *a.Before, *a.After)
	if o := other(p); Gain(o, *a.Before, *a.After) < -Costless {
		_, slower := predicted(o, *a.Before, *a.After)
		return false, why + ", but it slows the other phase: " + slower
	}
	return decide(a, gain, ClockError, Costless, why)
}

// decide keeps a gain beyond noise. It keeps a change to the published form if the loss is within the
// bound.
func decide(a *journal.Attempt, gain, noise, loss float64, why string) (bool, string) {
	switch {
	case gain > noise:
		return true, why
	case a.Published && gain >= -loss:
		return true, why + "; kept because it costs nothing and its programs are published"
	}
	return false, why
}

// predicted returns the predicted gain in the time that a phase optimises, and its description.
func predicted(p journal.Phase, before, after journal.Measurement) (float64, string) {
	g := Gain(p, before, after)
	change, bound := journal.Percents(g, ClockError)
	was, is := journal.Seconds(before.TTFT), journal.Seconds(after.TTFT)
	if p == journal.Decode {
		was, is = journal.Seconds(1/before.TokensPerSec), journal.Seconds(1/after.TokensPerSec)
	}
	return g, fmt.Sprintf("%s %s -> %s predicted (%s %%, clock error %s %%)", timeOf(p), was, is, change, bound)
}

// other returns the optimisation phase that p is not.
func other(p journal.Phase) journal.Phase {
	if p == journal.Decode {
		return journal.Prefill
	}
	return journal.Decode
}

// timeOf names the time that a phase optimises.
func timeOf(p journal.Phase) string {
	if p == journal.Decode {
		return "a token"
	}
	return "first token"
}
