package gate

import (
	"fmt"
	"math"
	"strings"
)

// Tolerance has the conditions of a comparison, all of which must hold, and the source of their
// numbers.
//
// The element-wise bound |got-want| <= Atol + Rtol*|want| applies to all elements except a share of
// Mismatches; the zero value requires equality. Mismatches = 1 disables it, and then one of
// MeanRelL1, metricRelL2 and Peak must be set. Every other bound is off if it is 0.
type Tolerance struct {
	Atol       float64 `json:"atol"`
	Rtol       float64 `json:"rtol"`       // below 1
	Mismatches float64 `json:"mismatches"` // share of elements that may be outside: 0 to 0.1, or 1

	MaxAbs    float64 `json:"max_abs,omitempty"`
	MaxRel    float64 `json:"max_rel,omitempty"` // large for references near zero
	MeanRelL1 float64 `json:"mean_rel_l1,omitempty"`
	RelL2     float64 `json:"rel_l2,omitempty"`
	// Peak bounds every element: |got-want| <= Peak*rms(want) + Rtol*|want|; below 1 - Rtol.
	Peak float64 `json:"peak,omitempty"`
	// MaxRowL1 bounds the mean relative L1 of every row of 32 elements or more.
	MaxRowL1 float64 `json:"max_row_l1,omitempty"`

	Pearson      float64 `json:"pearson,omitempty"`        // at least
	Cosine       float64 `json:"cosine,omitempty"`         // at least
	MinRowCosine float64 `json:"min_row_cosine,omitempty"` // at least, of every row
	SQNR         float64 `json:"sqnr_db,omitempty"`        // at least, dB

	// RoundWant rounds the reference to the type of got (BF16 or F16, to nearest even) before
	// comparing.
	RoundWant bool `json:"round_want,omitempty"`

	// Note states where the numbers came from: the measurement or publication, its data and its
	// method. It
	// must not be empty.
	Note string `json:"note"`
}

// maxMismatches is the largest share of mismatches with an element-wise bound. The widest in use
// upstream is 0.05 %; a tenth is far above rounding and far below the share that a broken kernel gets
// right.
const maxMismatches = 0.1

// validate returns an [InputError] if t proves nothing: if it has no bound on the size of errors
// that an output of zeros would exceed, if a bound is not a finite number >= 0, or if Note is
// empty.
func (t Tolerance) validate() error {
	for _, b := range t.bounds() {
		if v := *b.at; math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
			return badInput(b.name, "%v, want a finite number >= 0", v)
		}
	}
	if strings.TrimSpace(t.Note) == "" {
		return badInput("Note", "empty: state where the numbers came from")
	}
	if t.Rtol >= 1 {
		return badInput("Rtol", "%v, want less than 1: an output of zeros has a relative error of 1",
			t.Rtol)
	}
	if t.Mismatches > maxMismatches && t.Mismatches != 1 {
		return badInput("Mismatches", "%v, want at most %v, or 1 to disable the element-wise bound",
			t.Mismatches, maxMismatches)
	}
	for _, b := range []struct {
		name string
		v    float64
	}{{"Pearson", t.Pearson}, {"Cosine", t.Cosine}, {"MinRowCosine", t.MinRowCosine}} {
		if b.v > 1 {
			return badInput(b.name, "%v, want at most 1", b.v)
		}
	}
	if t.Mismatches == 1 && !t.scaleFree() {
		return badInput("MeanRelL1, RelL2 or Peak", "must be set below 1 (Peak below 1 - Rtol) if the "+
			"element-wise bound is "+
			"disabled; correlation and cosine cannot tell an output from its double")
	}
	return nil
}

// scaleFree reports whether a bound is set that zeros and doubling, both of which score 1 or more,
// exceed at any scale.
func (t Tolerance) scaleFree() bool {
	below := func(v, limit float64) bool { return v > 0 && v < limit }
	return below(t.MeanRelL1, 1) || below(t.RelL2, 1) || below(t.Peak, 1-t.Rtol)
}

type bound struct {
	name string
	at   *float64
}

func (t *Tolerance) bounds() []bound {
	return []bound{
		{"Atol", &t.Atol}, {"Rtol", &t.Rtol}, {"Mismatches", &t.Mismatches}, {"MaxAbs", &t.MaxAbs},
		{"MaxRel", &t.MaxRel}, {"MeanRelL1", &t.MeanRelL1}, {"RelL2", &t.RelL2}, {"Peak", &t.Peak},
		{"MaxRowL1", &t.MaxRowL1}, {"Pearson", &t.Pearson}, {"Cosine", &t.Cosine},
		{"MinRowCosine", &t.MinRowCosine}, {"SQNR", &t.SQNR},
	}
}

// Metrics that programs look for in reasons.
const (
	NonFinite = "non-finite"
	MeanRelL1 = "mean relative L1"
	MeanKL    = "mean KL"
	Repeats   = "determinism"
)

// Metrics that only appear in reports.
const (
	metricElements    = "element-wise"
	metricBlind       = "blind bound"
	metricMaxAbs      = "max abs"
	metricMaxRel      = "max rel"
	metricRelL2       = "relative L2"
	metricPeak        = "peak error"
	metricWorstRow    = "worst row"
	metricPearson     = "Pearson"
	metricCosine      = "cosine"
	metricWorstCosine = "worst row's cosine"
	metricSQNR        = "SQNR"
	metricP90KL       = "p90 KL"
	metricMaxKL       = "max KL"
	metricTop1        = "top-1"
	metricNLL         = "NLL"
	metricTwoWayTop   = "two-way top-k"
	metricDistinct    = "distinct prompts"
)

// minRowWidth is the number of elements from which a row is held to MaxRowL1: a short row near zero
// can have any relative error.
const minRowWidth = 32

// judge lists the conditions that do not hold. ZerosOutside is the number of elements that an
// output of zeros would have outside the element-wise bound.
func (t Tolerance) judge(m Metrics, zerosOutside int) []Reason {
	var list []Reason
	fail := func(metric, format string, args ...any) {
		list = append(list, Reason{metric, fmt.Sprintf(format, args...)})
	}
	if m.NonFinite > 0 {
		fail(NonFinite, "%d of %d elements are NaN, infinite or beyond FP32 where the reference is not",
			m.NonFinite, m.Count)
	}
	if t.Mismatches < 1 {
		switch zeros := float64(zerosOutside) / float64(m.Count); {
		case m.Mismatches > t.Mismatches:
			fail(metricElements, "%d of %d elements (%.3g %%) are outside |got-want| <= %g + %g*|want|, "+
				"at most %.3g %% may be",
				m.MismatchCount, m.Count, 100*m.Mismatches, t.Atol, t.Rtol, 100*t.Mismatches)
		case zeros <= t.Mismatches && m.RMS > 0 && !t.scaleFree():
			fail(metricBlind, "an output of zeros would be within %g + %g*|want| too (the reference's root mean "+
				"square is %.3g): set MeanRelL1 or Peak, which are scale-free", t.Atol, t.Rtol, m.RMS)
		}
	}
	rowBound := t.MaxRowL1
	if m.Width < minRowWidth {
		rowBound = 0
	}
	for _, c := range []struct {
		metric     string
		got, bound float64
		unit       string
	}{
		{metricMaxAbs, m.MaxAbs, t.MaxAbs, ""},
		{metricMaxRel, m.MaxRel, t.MaxRel, ""},
		{MeanRelL1, m.MeanRelL1, t.MeanRelL1, ""},
		{metricRelL2, m.RelL2, t.RelL2, ""},
		{metricPeak, m.Peak, t.Peak, " times the reference's root mean square (beyond the relative part)"},
		{metricWorstRow, m.MaxRowL1, rowBound, " mean relative L1"},
	} {
		if c.bound > 0 && !(c.got <= c.bound) {
			fail(c.metric, "%s is %.4g%s, want at most %.4g", c.metric, c.got, c.unit, c.bound)
		}
	}
	for _, c := range []struct {
		metric     string
		got, bound float64
	}{
		{metricPearson, m.Pearson, t.Pearson},
		{metricCosine, m.Cosine, t.Cosine},
		{metricWorstCosine, m.MinRowCosine, t.MinRowCosine},
		{metricSQNR, m.SQNR, t.SQNR},
	} {
		// A metric that the reference leaves undefined is NaN and holds.
		if c.bound > 0 && c.got < c.bound {
			fail(c.metric, "%s is %.6g, want at least %.6g", c.metric, c.got, c.bound)
		}
	}
	return list
}
