package gate

import (
	"math"

	"github.com/npukit/npukit/npu/dtype"
)

// Element is the type of a comparison's elements. Got and want may differ: BF16 from a device, FP32
// or float64 from a reference.
type Element interface {
	float32 | float64 | dtype.BFloat16 | dtype.Float16
}

// Check compares got with want, both [rows, width], and judges them by tol. The report lists
// the worst elements and rows.
//
// It returns an [InputError] if lengths differ or are 0, if the reference has a value that is NaN,
// infinite or beyond the range of FP32, or if tol is not valid. Such a value in got is not an
// error: it fails the verdict.
//
// It makes one pass over the data and no copies.
func Check[G, W Element](got []G, want []W, width int, tol Tolerance) (Report, error) {
	if err := tol.validate(); err != nil {
		return Report{}, err
	}
	c, err := compare(got, want, width, tol)
	if err != nil {
		return Report{}, err
	}
	r := c.report()
	r.Tolerance = tol
	r.Judged, r.Reasons = r.Metrics.Count, tol.judge(r.Metrics, c.total.zerosOutside)
	return r, nil
}

// blockLen is the number of pairs per block: two blocks of float64 take 16 KB and stay in L1 for
// both passes over them.
const blockLen = 1024

// comparison is the state of one pass.
type comparison struct {
	tol    Tolerance
	width  int
	total  moments
	rows   int
	rowL1  float64
	rowCos float64
	worst  ranking[Worst]
	worstR ranking[Row]
	stride int     // of the sample
	all    *perRow // nil unless compareAll

	gotSample, wantSample []float64
}

// perRow has the metrics of each row.
type perRow struct{ cosine, l1 []float64 }

func compare[G, W Element](got []G, want []W, width int, tol Tolerance) (*comparison, error) {
	c := &comparison{tol: tol}
	return c, run(c, got, want, width)
}

// compareAll is compare with the metrics of each row.
func compareAll[G, W Element](got []G, want []W, width int) (*comparison, error) {
	c := &comparison{all: &perRow{}}
	return c, run(c, got, want, width)
}

func run[G, W Element](c *comparison, got []G, want []W, width int) error {
	switch {
	case len(got) != len(want):
		return badInput("got", "%d elements, the reference has %d: is a row, or the padding, missing?",
			len(got), len(want))
	case len(want) == 0:
		return badInput("want", "got and want are empty: there is nothing to compare")
	case width <= 0 || len(want)%width != 0:
		return badInput("width", "%d elements are not a whole number of rows of %d", len(want), width)
	}
	c.width, c.rowCos, c.stride = width, math.NaN(), (len(want)+samples-1)/samples
	var a, e [blockLen]float64
	for at := 0; at < len(want); at += width {
		var row moments
		for from := at; from < at+width; from += blockLen {
			n := min(blockLen, at+width-from)
			widen(a[:n], got[from:from+n])
			widen(e[:n], want[from:from+n])
			if c.tol.RoundWant {
				roundLike[G](e[:n])
			}
			if err := c.block(&row, a[:n], e[:n], from); err != nil {
				return err
			}
		}
		c.row(&row)
	}
	return nil
}

// widen converts src to dst exactly.
func widen[T Element](dst []float64, src []T) {
	dst = dst[:len(src)]
	switch s := any(src).(type) {
	case []float32:
		for i, v := range s {
			dst[i] = float64(v)
		}
	case []float64:
		copy(dst, s)
	case []dtype.BFloat16:
		for i, v := range s {
			dst[i] = float64(v.Float32())
		}
	case []dtype.Float16:
		for i, v := range s {
			dst[i] = float64(v.Float32())
		}
	}
}

// roundLike rounds values to T, to nearest even. FP32 and float64 stay as they are: their rounding
// is negligible.
func roundLike[T Element](x []float64) {
	var half [1]dtype.Float16
	switch any(*new(T)).(type) {
	case dtype.BFloat16:
		for i, v := range x {
			x[i] = float64(dtype.FromFloat32(float32(v)).Float32())
		}
	case dtype.Float16:
		for i, v := range x {
			dtype.F32ToF16(half[:], []float32{float32(v)})
			x[i] = float64(half[0].Float32())
		}
	}
}

// block adds a block of pairs, which starts at element from, to a row.
func (c *comparison) block(row *moments, a, e []float64, from int) error {
	// A block with a value beyond the limit, NaN included, takes the slow path.
	const limit = math.MaxFloat32
	largestA, largestE, nonFinite := 0.0, 0.0, false
	for i, v := range a {
		// NaN if an argument is
		largestA, largestE = max(largestA, math.Abs(v)), max(largestE, math.Abs(e[i]))
	}
	if !(largestE <= limit) {
		for i, v := range e {
			if !(math.Abs(v) <= limit) {
				return badInput("want", "the reference is %v at element %d (row %d, column %d): "+
					"nothing can be compared with that; is its own input right?",
					v, from+i, (from+i)/c.width, (from+i)%c.width)
			}
		}
	}
	index := func(i int) int { return from + i }
	if nonFinite = !(largestA <= limit); nonFinite {
		a, e, index = c.dropNonFinite(row, a, e, from)
	}

	var b moments
	b.n = float64(len(a))
	var sumA, sumE float64
	atol, rtol := c.tol.Atol, c.tol.Rtol
	for i, v := range a {
		w := e[i]
		d, absE := math.Abs(v-w), math.Abs(w)
		sumA += v
		sumE += w
		b.absD += d
		b.absE += absE
		b.sqD += d * d
		relative := rtol * absE
		if d > atol+relative {
			b.outside++
		}
		if absE > atol+relative {
			b.zerosOutside++
		}
		if d-relative > b.excess {
			b.excess = d - relative
		}
		if d > b.maxAbs {
			b.maxAbs = d
		}
		if d > b.maxRel*(absE+tiny) {
			b.maxRel = d / (absE + tiny)
		}
		if d > c.worst.floor {
			c.worst.add(d, Worst{Index: index(i), Got: v, Want: w, Abs: d, Rel: d / (absE + tiny)})
		}
	}
	if len(a) > 0 {
		b.meanA, b.meanE = sumA/b.n, sumE/b.n
		for i, v := range a {
			da, de := v-b.meanA, e[i]-b.meanE
			b.aa += da * da
			b.ee += de * de
			b.ae += da * de
		}
	}
	for i := (c.stride - from%c.stride) % c.stride; i < len(a) && !nonFinite; i += c.stride {
		c.gotSample, c.wantSample = append(c.gotSample, a[i]), append(c.wantSample, e[i])
	}
	row.merge(&b)
	return nil
}

// dropNonFinite removes and counts the pairs whose a is not finite. The result uses the same
// memory; index returns where each element was.
func (c *comparison) dropNonFinite(row *moments, a, e []float64, from int) (keptA, keptE []float64,
	index func(int) int) {
	keptA, keptE = a[:0], e[:0]
	var at []int
	for i, v := range a {
		if math.Abs(v) <= math.MaxFloat32 {
			keptA, keptE = append(keptA, v), append(keptE, e[i])
			at = append(at, from+i)
			continue
		}
		row.nonFinite++
		// No finite error is worse. The report shows the first ones.
		inf := math.Inf(1)
		c.worst.add(inf, Worst{Index: from + i, Got: v, Want: e[i], Abs: inf, Rel: inf})
	}
	return keptA, keptE, func(i int) int { return at[i] }
}

// row ends a row.
func (c *comparison) row(m *moments) {
	l1, cos := m.meanRelL1(), m.cosine()
	c.rowL1 = max(c.rowL1, l1)
	if !(cos >= c.rowCos) && cos == cos {
		c.rowCos = cos
	}
	rank := l1
	if m.nonFinite > 0 {
		rank = math.Inf(1)
	}
	if rank > c.worstR.floor {
		c.worstR.add(rank, Row{
			Index: c.rows, MeanRelL1: l1, MaxAbs: m.maxAbs, Cosine: cos, NonFinite: m.nonFinite,
		})
	}
	if c.all != nil {
		c.all.cosine, c.all.l1 = append(c.all.cosine, cos), append(c.all.l1, l1)
	}
	c.rows++
	c.total.merge(m)
}

func (c *comparison) report() Report {
	m := c.total.metrics()
	m.Rows, m.Width, m.MaxRowL1, m.MinRowCosine = c.rows, c.width, c.rowL1, c.rowCos
	worst := c.worst.items
	for i := range worst {
		worst[i].Row, worst[i].Column = worst[i].Index/c.width, worst[i].Index%c.width
	}
	r := Report{Metrics: m, Worst: worst, WorstRows: c.worstR.items}
	r.Sample.Got, r.Sample.Want = c.gotSample, c.wantSample
	return r
}

// maxWorst is the number of worst elements and rows in a report: enough to see a pattern in their
// indices.
const maxWorst = 8

// samples is about the number of pairs that a report keeps for its scatter plot.
const samples = 2000

// ranking holds the items with the largest keys in descending order; of equal keys, the first
// added.
type ranking[T any] struct {
	keys  []float64
	items []T
	floor float64 // keys up to it are dropped; 0 drops exact elements
}

func (r *ranking[T]) add(key float64, item T) {
	if len(r.keys) == maxWorst && !(key > r.keys[maxWorst-1]) {
		return
	}
	at := len(r.keys)
	for at > 0 && key > r.keys[at-1] {
		at--
	}
	r.keys, r.items = append(r.keys, 0), append(r.items, item)
	copy(r.keys[at+1:], r.keys[at:])
	copy(r.items[at+1:], r.items[at:])
	r.keys[at], r.items[at] = key, item
	if len(r.keys) > maxWorst {
		r.keys, r.items = r.keys[:maxWorst], r.items[:maxWorst]
	}
	if len(r.keys) == maxWorst {
		r.floor = r.keys[maxWorst-1]
	}
}
