// Package stats has the statistics that packages gate and golden share.
package stats

import (
	"math"
	"slices"
)

// KL returns the mean, the 90th percentile and the maximum of a list of KL divergences, and the
// index of the maximum. NaN is ignored. All are 0 if the list has no numbers.
func KL(kl []float64) (mean, p90, highest float64, at int) {
	sorted := slices.DeleteFunc(slices.Clone(kl), math.IsNaN)
	n := len(sorted)
	if n == 0 {
		return 0, 0, 0, 0
	}
	slices.Sort(sorted)
	highest = sorted[n-1]
	// The empirical quantile: the smallest value that at least 90 % of the values do not exceed.
	return average(sorted), sorted[(9*n+9)/10-1], highest, slices.Index(kl, highest)
}

func average(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

// Mean returns the mean of x and its standard error, which is 0 for fewer than two values.
func Mean(x []float64) (mean, stdErr float64) {
	if len(x) == 0 {
		return 0, 0
	}
	mean = average(x)
	if len(x) == 1 {
		return mean, 0
	}
	squares := 0.0
	for _, v := range x {
		squares += (v - mean) * (v - mean)
	}
	n := float64(len(x))
	return mean, math.Sqrt(squares / (n - 1) / n)
}

// Change summarizes the differences of tokens' negative log-likelihoods, got minus want: their mean
// and its standard error relative to wantMean, and their mean absolute value.
func Change(diff []float64, wantMean float64) (change, stdErr, distance float64) {
	for _, d := range diff {
		distance += math.Abs(d) / float64(len(diff))
	}
	mean, err := Mean(diff)
	return mean / wantMean, err / wantMean, distance
}

// LogSumExp returns log(sum exp(x)) of a row of at least one logit without overflow. The negative
// log-likelihood of an id is LogSumExp minus its logit.
func LogSumExp(x []float32) float64 {
	highest := float64(slices.Max(x))
	sum := 0.0
	for _, v := range x {
		sum += math.Exp(float64(v) - highest)
	}
	return highest + math.Log(sum)
}
