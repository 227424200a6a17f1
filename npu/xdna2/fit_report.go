package xdna2

import (
	"math"
	"slices"
)

// RowError is a row beside its prediction.
type RowError struct {
	Row       Row
	Predicted float64 // us
}

// Relative is predicted over published time, less one.
func (e RowError) Relative() float64 { return e.Predicted/e.Row.Latency - 1 }

// HeldOut is what a model fitted to one half of the shapes predicts for the other half.
type HeldOut struct {
	Fitted int        // rows used for the fit
	Rows   []RowError // the others
}

// HoldOut fits to the rows of one half (see [Row.Half]) and predicts those of the other, which the fit has not seen: how far to trust the
// clock. Rows are those of [FitRows].
func HoldOut(rows []Row, salt string) HeldOut {
	var fit, rest []Row
	for _, r := range rows {
		if r.Half(salt) == 0 {
			fit = append(fit, r)
		} else {
			rest = append(rest, r)
		}
	}
	m := Fit(fit)
	h := HeldOut{Fitted: len(fit)}
	for _, r := range rest {
		h.Rows = append(h.Rows, RowError{Row: r, Predicted: m.Row(&r)})
	}
	return h
}

// Quantile is the q-quantile (0.5 the median, 0 to 1) of the absolute relative errors of some kernels; of all when none are named. Without
// rows it is 0.
func (h HeldOut) Quantile(q float64, kernels ...Kernel) float64 {
	var off []float64
	for _, r := range h.Rows {
		if len(kernels) == 0 || slices.Contains(kernels, r.Row.Kernel) {
			off = append(off, math.Abs(r.Relative()))
		}
	}
	return quantile(off, q)
}

// quantile interpolates linearly between the values around q.
func quantile(x []float64, q float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	at := q * float64(len(x)-1)
	i := int(at)
	if i+1 == len(x) {
		return x[i]
	}
	return x[i] + (at-float64(i))*(x[i+1]-x[i])
}
