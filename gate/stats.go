package gate

import (
	"math"
	"slices"
)

// KLStats returns the mean, the 90th percentile and the maximum of a list of KL divergences, and the
// index of the maximum. NaN is left out; a list without numbers has 0 everywhere.
func KLStats(kl []float64) (mean, p90, highest float64, at int) {
	sorted := slices.DeleteFunc(slices.Clone(kl), math.IsNaN)
	if len(sorted) == 0 {
		return 0, 0, 0, 0
	}
	slices.Sort(sorted)
	n := len(sorted)
	highest = sorted[n-1]
	// The empirical quantile: the smallest value that at least 90 % of the values do not exceed.
	return meanOf(sorted), sorted[(9*n+9)/10-1], highest, slices.Index(kl, highest)
}

func meanOf(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// stdErrOf returns the standard error of the mean of two values or more.
func stdErrOf(x []float64, mean float64) float64 {
	squares := 0.0
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	n := float64(len(x))
	return math.Sqrt(squares / (n - 1) / n)
}
