package gate_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu/dtype"
)

// loose is a tolerance that passes anything near.
var loose = gate.Tolerance{Mismatches: 1, MeanRelL1: 0.999, Note: "a test's"}

func random(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 7))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// perturb adds relative and absolute noise.
func perturb(x []float32, seed uint64, size float64) []float32 {
	noise := random(seed, len(x))
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = v + float32(size)*noise[i]
	}
	return y
}

func near(t *testing.T, name string, got, want, rel float64) {
	t.Helper()
	if math.Abs(got-want) > rel*math.Abs(want) {
		t.Errorf("%s is %v, want %v", name, got, want)
	}
}

// Every metric equals its definition, computed in several passes.
func TestMetricsEqualTheirDefinitions(t *testing.T) {
	for _, shape := range []struct{ rows, width int }{{1, 1}, {1, 2}, {3, 5}, {1, 5000}, {7, 1024},
		{4, 1025}, {100, 64}} {
		want := random(1, shape.rows*shape.width)
		got := perturb(want, 2, 0.03)
		tol := gate.Tolerance{Atol: 0.02, Rtol: 0.01, Mismatches: 0.1, Note: "a test's"}
		r, err := gate.Check(got, want, shape.width, tol)
		if err != nil {
			t.Fatal(err)
		}
		var a, e []float64
		var maxAbs, maxRel, d1, e1, d2, e2 float64
		outside, excess := 0, 0.0
		for i := range got {
			x, y := float64(got[i]), float64(want[i])
			a, e = append(a, x), append(e, y)
			d := math.Abs(x - y)
			maxAbs, maxRel = max(maxAbs, d), max(maxRel, d/math.Abs(y))
			d1, e1, d2, e2 = d1+d, e1+math.Abs(y), d2+d*d, e2+y*y
			excess = max(excess, d-tol.Rtol*math.Abs(y))
			if d > tol.Atol+tol.Rtol*math.Abs(y) {
				outside++
			}
		}
		cosine := func(a, e []float64) float64 {
			var ae, aa, ee float64
			for i := range a {
				ae, aa, ee = ae+a[i]*e[i], aa+a[i]*a[i], ee+e[i]*e[i]
			}
			return ae / math.Sqrt(aa*ee)
		}
		rowCos, rowL1 := 2.0, 0.0
		for at := 0; at < len(a); at += shape.width {
			x, y := a[at:at+shape.width], e[at:at+shape.width]
			rowCos = min(rowCos, cosine(x, y))
			var d, s float64
			for i := range x {
				d, s = d+math.Abs(x[i]-y[i]), s+math.Abs(y[i])
			}
			rowL1 = max(rowL1, d/s)
		}
		m, n := r.Metrics, float64(len(a))
		near(t, "max abs", m.MaxAbs, maxAbs, 1e-12)
		near(t, "max rel", m.MaxRel, maxRel, 1e-12)
		near(t, "mean relative L1", m.MeanRelL1, d1/e1, 1e-12)
		near(t, "relative L2", m.RelL2, math.Sqrt(d2/e2), 1e-12)
		near(t, "peak", m.Peak, excess/math.Sqrt(e2/n), 1e-12)
		near(t, "RMS", m.RMS, math.Sqrt(e2/n), 1e-12)
		near(t, "SQNR", m.SQNR, 10*math.Log10(e2/d2), 1e-12)
		near(t, "cosine", m.Cosine, cosine(a, e), 1e-12)
		near(t, "worst row's cosine", m.MinRowCosine, rowCos, 1e-12)
		near(t, "worst row", m.MaxRowL1, rowL1, 1e-12)
		if len(a) > 1 {
			near(t, "Pearson", m.Pearson, stat.Correlation(a, e, nil), 1e-12)
		}
		if m.MismatchCount != outside || m.Count != len(a) || m.Rows != shape.rows ||
			m.Width != shape.width {
			t.Errorf("%v: %d mismatches of %d, want %d; %d rows of %d", shape, m.MismatchCount, m.Count,
				outside, m.Rows, m.Width)
		}
	}
}

// A mean that is large relative to the deviations costs the textbook formula (sum of squares minus
// square of sums) all its digits. The reference is computed in two passes.
func TestPearsonWithALargeMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	n := 40_000
	want, got := make([]float64, n), make([]float64, n)
	for i := range want {
		x := rng.NormFloat64()
		want[i], got[i] = 1e8+x, 1e8+x+0.5*rng.NormFloat64()
	}
	m, err := gate.Measure(got, want, n)
	if err != nil {
		t.Fatal(err)
	}
	f := func(v float64) *big.Float { return new(big.Float).SetPrec(300).SetFloat64(v) }
	sum := func(of func(i int) *big.Float) *big.Float {
		s := f(0)
		for i := range n {
			s.Add(s, of(i))
		}
		return s
	}
	mul := func(a, b *big.Float) *big.Float { return f(0).Mul(a, b) }
	sa, se := sum(func(i int) *big.Float { return f(got[i]) }), sum(func(i int) *big.Float { return f(want[i]) })
	cov := func(x, y []float64, sx, sy *big.Float) float64 {
		s := sum(func(i int) *big.Float { return mul(f(x[i]), f(y[i])) })
		v, _ := s.Sub(s, f(0).Quo(mul(sx, sy), f(float64(n)))).Float64()
		return v
	}
	exact := cov(got, want, sa, se) / math.Sqrt(cov(got, got, sa, sa)*cov(want, want, se, se))
	near(t, "Pearson", m.Pearson, exact, 1e-9)
}

// The same values in other types have the same metrics, and RoundWant rounds the reference to the
// type of got.
func TestElementTypes(t *testing.T) {
	want := random(5, 3000)
	bf, half, wide := make([]dtype.BFloat16, len(want)), make([]dtype.Float16,
		len(want)), make([]float64, len(want))
	dtype.F32ToBF16(bf, want)
	dtype.F32ToF16(half, want)
	for i, v := range want {
		wide[i] = float64(v)
	}
	back := make([]float32, len(want))
	dtype.BF16ToF32(back, bf)
	a, errA := gate.Measure(bf, want, 100)
	b, errB := gate.Measure(back, wide, 100)
	if errA != nil || errB != nil || a != b || a.MeanRelL1 == 0 {
		t.Errorf("BF16 against FP32 %+v (%v), as FP32 against float64 %+v (%v)", a, errA, b, errB)
	}
	tol := gate.Tolerance{RoundWant: true, Note: "equality after rounding"}
	for name, check := range map[string]func() (gate.Report, error){
		"BF16 of FP32":    func() (gate.Report, error) { return gate.Check(bf, want, len(want), tol) },
		"BF16 of float64": func() (gate.Report, error) { return gate.Check(bf, wide, len(wide), tol) },
		"F16 of FP32":     func() (gate.Report, error) { return gate.Check(half, want, len(want), tol) },
		"FP32 of float64": func() (gate.Report, error) { return gate.Check(want, wide, len(wide), tol) },
	} {
		if r, err := check(); err != nil || !r.OK() {
			t.Errorf("%s: %v\n%v", name, err, r)
		}
	}
	if r, _ := gate.Check(back, want, len(want), tol); r.OK() {
		t.Error("FP32 that was rounded to BF16 equals FP32, it says")
	}
}

func TestWorstAreFoundInOrder(t *testing.T) {
	want := random(6, 50*300)
	got := slices.Clone(want)
	for k := range 12 {
		got[(49-k*4)*300+k*20] += float32(k + 1) // ever larger towards the front
	}
	r, err := gate.Check(got, want, 300, loose)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Worst) != 8 || len(r.WorstRows) != 8 {
		t.Fatalf("%d worst elements and %d rows", len(r.Worst), len(r.WorstRows))
	}
	for i, w := range r.Worst {
		k := 11 - i
		if w.Row != 49-k*4 || w.Column != k*20 || w.Index != w.Row*300+w.Column ||
			math.Abs(w.Abs-float64(k+1)) > 1e-5 {
			t.Errorf("worst element %d is %+v", i, w)
		}
	}
	if r.WorstRows[0].Index != 49-44 && r.WorstRows[0].Index != 49-40 {
		t.Errorf("worst row is %+v", r.WorstRows[0])
	}
}

func TestNotComparable(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	one := []float32{1}
	for want, run := range map[string]func() error{
		"got: 1 elements, the reference has 2": func() error {
			_, err := gate.Check(one, []float32{1, 2}, 2, loose)
			return err
		},
		"nothing to compare": func() error {
			_, err := gate.Check([]float32{}, []float32{}, 1, loose)
			return err
		},
		"not a whole number of rows of 2": func() error {
			_, err := gate.Check(one, one, 2, loose)
			return err
		},
		"not a whole number of rows of 0": func() error {
			_, err := gate.Check(one, one, 0, loose)
			return err
		},
		"not a whole number of rows of -1": func() error {
			_, err := gate.Measure(one, one, -1)
			return err
		},
		"NaN at element 3 (row 1, column": func() error {
			_, err := gate.Check(make([]float32, 4), []float32{0, 1, 2, nan}, 2, loose)
			return err
		},
		"-Inf at element 0": func() error {
			_, err := gate.Check(one, []float32{inf}, 1,
				loose)
			return err
		},
		"1e+300 at element 0": func() error {
			_, err := gate.Check(one, []float64{1e300}, 1,
				loose)
			return err
		},
		"Note: empty": func() error {
			_, err := gate.Check(one, one, 1,
				gate.Tolerance{})
			return err
		},
	} {
		var input *gate.InputError
		if err := run(); !errors.As(err, &input) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want an InputError about %q", err, want)
		}
	}
}

// A value that is not finite fails under every tolerance, is counted, and is listed first; the
// other metrics exclude it.
func TestNonFiniteAlwaysFails(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		want := random(8, 4000)
		got := slices.Clone(want)
		got[3333] = float32(bad)
		got[7] += 0.25
		r, err := gate.Check(got, want, 40, gate.Tolerance{Atol: 1, Mismatches: 0.1, MeanRelL1: 0.9,
			Note: "a test's"})
		if err != nil {
			t.Fatal(err)
		}
		if r.OK() || r.Metrics.NonFinite != 1 || r.Reasons[0].Metric != gate.NonFinite ||
			r.Worst[0].Index != 3333 || r.WorstRows[0].Index != 83 {
			t.Errorf("%v: %+v", bad, r)
		}
		if math.Abs(r.Metrics.MaxAbs-0.25) > 1e-6 || r.Worst[1].Index != 7 {
			t.Errorf("%v: the worst finite element is %+v", bad, r.Worst[1])
		}
		data, err := json.Marshal(r)
		if err != nil || !json.Valid(data) || !strings.Contains(string(data), `"ok":false`) {
			t.Errorf("%s, %v", data, err)
		}
	}
	all := []float32{float32(math.NaN()), float32(math.NaN())}
	if r, err := gate.Check(all, []float32{1, 2}, 2, loose); err != nil || r.OK() ||
		r.Metrics.NonFinite != 2 {
		t.Errorf("nothing finite: %v, %v", r, err)
	}
}

func TestDegenerateReferences(t *testing.T) {
	zeros, ones := make([]float32, 100), slices.Repeat([]float32{1}, 100)
	strict := gate.Tolerance{MeanRelL1: 1e-3, Atol: 1e-3, Pearson: 0.99, Cosine: 0.99,
		MinRowCosine: 0.99, SQNR: 20, Note: "a test's"}
	for _, tc := range []struct {
		name      string
		got, want []float32
		ok        bool
	}{
		{"zeros of zeros", zeros, zeros, true},
		{"a constant of itself", ones, ones, true},
		{"ones of zeros", ones, zeros, false},
		{"zeros of ones", zeros, ones, false},
		{"a constant of noise", ones, random(1, 100), false},
	} {
		r, err := gate.Check(tc.got, tc.want, 10, strict)
		if err != nil || r.OK() != tc.ok {
			t.Errorf("%s: %v\n%v", tc.name, err, r)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	if (gate.Report{}).OK() {
		t.Error("a report of nothing is OK")
	}
	r, err := gate.Check(ones, zeros, len(zeros), strict)
	if err != nil || !errors.Is(r.Err(), gate.ErrFailed) {
		t.Errorf("%v, %v", r.Err(), err)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte{0, 0, 128, 63, 0, 0, 192, 127}, []byte{1, 2, 3, 4, 5, 6, 7, 8}, 2)
	f.Fuzz(func(t *testing.T, a, e []byte, width int) {
		got, want := dtype.Float32s(a), dtype.BFloat16s(e)
		r, err := gate.Check(got, want, width, loose)
		if err != nil {
			return
		}
		if r.OK() && (r.Metrics.NonFinite > 0 || r.Metrics.MeanRelL1 >= 1) {
			t.Errorf("passes: %v", r)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
		_ = r.String()
	})
}

func BenchmarkCheck(b *testing.B) {
	const n = 10_000_000
	want := random(1, n)
	got := perturb(want, 2, 1e-3)
	bf := make([]dtype.BFloat16, n)
	dtype.F32ToBF16(bf, got)
	for _, width := range []int{50, 2500, n} {
		for name, run := range map[string]func() (gate.Report, error){
			"float32": func() (gate.Report, error) { return gate.Check(got, want, width, loose) },
			"bf16":    func() (gate.Report, error) { return gate.Check(bf, want, width, loose) },
		} {
			b.Run(name+"/"+big.NewInt(int64(width)).String(), func(b *testing.B) {
				for b.Loop() {
					if _, err := run(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
			})
		}
	}
}
