package costfit

import (
	"math"
	"slices"

	"github.com/npukit/npukit/npu/xdna2"
)

// RowError is a registry row with its prediction.
type RowError struct {
	Row       xdna2.Row
	Predicted float64 // us
}

// Relative returns the relative error of the prediction, negative if it is too fast.
func (e RowError) Relative() float64 { return e.Predicted/e.Row.Latency - 1 }

// HeldOut is a test of the model on rows that were not used to fit it.
type HeldOut struct {
	Fitted int        // rows used for the fit
	Rows   []RowError // the others
}

// HoldOut fits a model to one half of the shapes and predicts the rows of the other half. Each salt
// yields another split. Rows are those returned by [Rows].
func HoldOut(rows []xdna2.Row, salt string) HeldOut {
	var fit, rest []xdna2.Row
	for _, r := range rows {
		if half(&r, salt) == 0 {
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

// Quantile returns the q-quantile, 0 to 1, of the absolute relative errors of the given kernels, or
// of all kernels if none are given. It returns 0 if there are no such rows.
func (h HeldOut) Quantile(q float64, kernels ...xdna2.Kernel) float64 {
	var errors []float64
	for _, r := range h.Rows {
		if len(kernels) == 0 || slices.Contains(kernels, r.Row.Kernel) {
			errors = append(errors, math.Abs(r.Relative()))
		}
	}
	return quantile(errors, q)
}

// quantile interpolates linearly between the two values next to q.
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
