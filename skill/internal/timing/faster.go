package timing

import (
	"fmt"
	"slices"

	"github.com/npukit/npukit/skill/internal/journal"
)

// LeastGain is the smallest predicted gain that counts: the clock is not more accurate than that.
const LeastGain = 0.001

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

// Faster reports whether an attempt is faster beyond noise, and returns the reason.
func Faster(a *journal.Attempt, p journal.Phase) (bool, string) {
	switch {
	case a.Before == nil || a.After == nil:
		return false, "it was not measured"
	case a.Turns != nil:
		return a.Turns.Faster(), timeOf(p) + " " + a.Turns.String()
	}
	return PredictedFaster(p, *a.Before, *a.After)
}

// PredictedFaster compares two predictions: it reports whether a change is kept, and returns the
// reason. Measurements are compared by their turns.
func PredictedFaster(p journal.Phase, before, after journal.Measurement) (bool, string) {
	if !before.Predicted || !after.Predicted || before.Positions != after.Positions {
		return false, "one figure is not predicted, or they are of prompts of different lengths: nothing can be said"
	}
	g := Gain(p, before, after)
	change, bound := journal.Percents(g, LeastGain)
	was, is := journal.Seconds(before.TTFT), journal.Seconds(after.TTFT)
	if p == journal.Decode {
		was, is = journal.Seconds(1/before.TokensPerSec), journal.Seconds(1/after.TokensPerSec)
	}
	return g > LeastGain, fmt.Sprintf("%s %s -> %s predicted (%s %%, noise %s %%)", timeOf(p), was, is, change, bound)
}

// timeOf names the time that a phase optimises.
func timeOf(p journal.Phase) string {
	if p == journal.Decode {
		return "a token"
	}
	return "first token"
}
