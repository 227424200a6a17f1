package gate

import (
	"encoding/json"
	"math"
)

// Metrics compares got (a) with want (e), over every element, in float64. Elements of got that are
// not finite are counted and excluded from everything else.
//
// Pearson, Cosine and MinRowCosine are NaN if the reference leaves them undefined, because it is
// constant or all zeros. JSON has null for NaN, and for the infinite SQNR of an exact result.
type Metrics struct {
	Count     int // elements
	NonFinite int // elements of got that are NaN, infinite or beyond the range of FP32

	MaxAbs        float64 // max |a-e|
	MaxRel        float64 // max |a-e| / (|e| + 1e-30), as the NPU's kernel registry defines it
	MeanRelL1     float64 // mean|a-e| / mean|e|: 1 for zeros, 1 for doubled
	RelL2         float64 // |a-e|_2 / |e|_2
	Peak          float64 // max(|a-e| - Rtol|e|, 0) / rms(e), with the tolerance's Rtol: scale-free
	Pearson       float64 // correlation: invariant to scale and offset
	Cosine        float64 // of all elements: invariant to scale
	SQNR          float64 // 10 log10(sum e^2 / sum (a-e)^2), in dB
	MismatchCount int     // elements outside the tolerance's |a-e| <= Atol + Rtol|e|
	Mismatches    float64 // MismatchCount / Count

	Rows         int // of Width elements each
	Width        int
	MaxRowL1     float64 // the worst row's mean relative L1
	MinRowCosine float64 // the worst row's cosine

	RMS float64 // root mean square of the reference
}

// tiny keeps quotients finite, as in the registry's definition.
const tiny = 1e-30

// MarshalJSON encodes NaN and infinities as null.
func (m Metrics) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Count         int      `json:"count"`
		NonFinite     int      `json:"non_finite"`
		MaxAbs        float64  `json:"max_abs"`
		MaxRel        float64  `json:"max_rel"`
		MeanRelL1     float64  `json:"mean_rel_l1"`
		RelL2         float64  `json:"rel_l2"`
		Peak          float64  `json:"peak"`
		Pearson       *float64 `json:"pearson"`
		Cosine        *float64 `json:"cosine"`
		SQNR          *float64 `json:"sqnr_db"`
		MismatchCount int      `json:"mismatch_count"`
		Mismatches    float64  `json:"mismatches"`
		Rows          int      `json:"rows"`
		Width         int      `json:"width"`
		MaxRowL1      float64  `json:"max_row_l1"`
		MinRowCosine  *float64 `json:"min_row_cosine"`
		RMS           float64  `json:"rms"`
	}{
		m.Count, m.NonFinite, m.MaxAbs, m.MaxRel, m.MeanRelL1, m.RelL2, m.Peak,
		number(m.Pearson), number(m.Cosine), number(m.SQNR), m.MismatchCount, m.Mismatches,
		m.Rows, m.Width, m.MaxRowL1, number(m.MinRowCosine), m.RMS,
	})
}

func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func numbers(list []float64) []*float64 {
	out := make([]*float64, len(list))
	for i, v := range list {
		out[i] = number(v)
	}
	return out
}

// moments are the sums over a set of pairs (a, e). Two of them merge into those of the union, so
// that rows and the whole take one pass over the data.
//
// Correlation needs sums of products around means that are known only at the end. So each block is
// centered on its own means while it is in cache, and blocks are merged by the pairwise formula,
// which is stable if the mean is large relative to the deviations; sums of squares minus squares of
// sums are not.
//
// Source: Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample
// Variances (1979), eq. 2.1.
type moments struct {
	n            float64
	meanA, meanE float64
	aa, ee, ae   float64 // sums of products of deviations from the means
	absD, absE   float64 // sum |a-e|, sum |e|
	sqD          float64 // sum (a-e)^2
	maxAbs       float64
	maxRel       float64
	excess       float64 // max |a-e| - rtol|e|
	outside      int     // elements outside the element-wise bound
	zerosOutside int     // elements that would be outside if got were zero, or doubled
	nonFinite    int
}

func (m *moments) merge(o *moments) {
	m.absD += o.absD
	m.absE += o.absE
	m.sqD += o.sqD
	m.maxAbs = max(m.maxAbs, o.maxAbs)
	m.maxRel = max(m.maxRel, o.maxRel)
	m.excess = max(m.excess, o.excess)
	m.outside += o.outside
	m.zerosOutside += o.zerosOutside
	m.nonFinite += o.nonFinite
	n := m.n + o.n
	if n == 0 {
		return
	}
	da, de, w := o.meanA-m.meanA, o.meanE-m.meanE, m.n*o.n/n
	m.aa += o.aa + da*da*w
	m.ee += o.ee + de*de*w
	m.ae += o.ae + da*de*w
	m.meanA += da * o.n / n
	m.meanE += de * o.n / n
	m.n = n
}

// meanRelL1 of a reference of zeros is 0 if got is zeros too, and huge otherwise.
func (m *moments) meanRelL1() float64 {
	if m.n == 0 {
		return 0
	}
	return m.absD / m.n / (m.absE/m.n + tiny)
}

// squareE returns the sum of e^2.
func (m *moments) squareE() float64 { return m.ee + m.n*m.meanE*m.meanE }

// constantShare is the relative deviation below which values count as constant: far above float64
// rounding, far below the spacing of FP32.
const constantShare = 1e-12

func (m *moments) pearson() float64 {
	constant := func(sum, mean float64) bool {
		limit := constantShare * mean
		return sum <= m.n*limit*limit
	}
	switch {
	case constant(m.ee, m.meanE):
		return math.NaN()
	case constant(m.aa, m.meanA):
		return 0
	}
	return m.ae / math.Sqrt(m.aa) / math.Sqrt(m.ee)
}

func (m *moments) cosine() float64 {
	a, e := m.aa+m.n*m.meanA*m.meanA, m.squareE()
	switch {
	case e == 0:
		return math.NaN()
	case a == 0:
		return 0
	}
	return (m.ae + m.n*m.meanA*m.meanE) / math.Sqrt(a) / math.Sqrt(e)
}

func (m *moments) metrics() Metrics {
	square := m.squareE()
	rms := 0.0
	if m.n > 0 {
		rms = math.Sqrt(square / m.n)
	}
	count := int(m.n) + m.nonFinite
	return Metrics{
		Count: count, NonFinite: m.nonFinite,
		MaxAbs: m.maxAbs, MaxRel: m.maxRel, MeanRelL1: m.meanRelL1(),
		RelL2:   math.Sqrt(m.sqD) / (math.Sqrt(square) + tiny),
		Peak:    m.excess / (rms + tiny),
		Pearson: m.pearson(), Cosine: m.cosine(),
		SQNR:          10 * math.Log10(square/m.sqD),
		MismatchCount: m.outside, Mismatches: float64(m.outside) / float64(max(1, count)),
		RMS: rms,
	}
}
