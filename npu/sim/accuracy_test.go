package sim

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/xdna2"
)

// long reports whether tests use whole shapes. Otherwise large shapes are sampled: fewer rows of
// the same width, which leaves the mean error unchanged.
var long = os.Getenv("NPUKIT_LONG") != ""

// sampled returns n, or at most limit if shapes are sampled.
func sampled(n, limit int) int {
	if long {
		return n
	}
	return min(n, limit)
}

// deviation accumulates mean|a-e| / mean|e| and the largest errors.
type deviation struct{ diff, want, maxAbs, maxRel float64 }

func (d *deviation) add(got, want float32) {
	e := math.Abs(float64(got) - float64(want))
	d.diff += e
	d.want += math.Abs(float64(want))
	d.maxAbs = max(d.maxAbs, e)
	d.maxRel = max(d.maxRel, e/(math.Abs(float64(want))+1e-30))
}

func (d *deviation) join(e deviation) {
	*d = deviation{d.diff + e.diff, d.want + e.want, max(d.maxAbs, e.maxAbs), max(d.maxRel, e.maxRel)}
}

// elements returns the size of an element-wise kernel's output.
func elements(s xdna2.Shape) int { return max(s.N, s.Rows*s.Width) }

func (d *deviation) meanRelL1() float64 { return d.diff / d.want }

// fp32Sum accumulates products of two BF16 numbers, which FP32 holds exactly, and bounds the
// results that FP32 arithmetic can produce.
//
// Kernels sum in different orders: sequentially, in vector lanes, in several accumulators, in
// trees. Every order takes n-1 additions for n terms if an FMA counts as one, and addition j has an
// error of at most u|s_j|, where u = 2^-24 and s_j is its result. The error of the sum is e = δ_1
// s_1 + ... + δ_(n-1) s_(n-1), |δ_j| <= u, to first order in u. The worst case, where every |s_j|
// is the sum of all magnitudes and every δ_j = u, exceeds a BF16 step at n = 2560 and would hide
// wrong rounding. Two probabilistic bounds replace it, both from Hoeffding's inequality:
//
//   - Terms are drawn independently with random signs, so |s_j| <= λ sqrt(Σ x²) for any partial
//     sum, except with probability 2 exp(-λ²/2).
//   - The δ_j are modeled as independent with mean zero (Higham and Mary, "A new approach to
//     probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019), so |e| <= λ u sqrt(Σ
//     s_j²), except with probability 2 exp(-λ²/2).
//
// Together, |e| <= λ² u sqrt(n Σ x²) for any order. With λ = 8 the test fails by chance for one
// output in 1/(2n exp(-32)): 10^10 at n = 4096, of which tests draw 10^5.
type fp32Sum struct {
	exact, square float64 // Σ x and Σ x²
	terms         int
}

const sumLambda = 8

func (s *fp32Sum) add(term float64) {
	s.exact += term
	s.square += term * term
	s.terms++
}

// allows reports whether got can be the FP32 sum, rounded to the nearest BF16 number if bf16 is
// set.
func (s *fp32Sum) allows(got float32, bf16 bool) bool {
	e := sumLambda * sumLambda * 0x1p-24 * math.Sqrt(float64(s.terms)*s.square)
	low, high := float32(s.exact-e), float32(s.exact+e)
	if bf16 {
		low, high = nearest(low), nearest(high)
	}
	return low <= got && got <= high
}

// normal returns a BF16 matrix from a normal distribution, the harness's input for all kernels.
// GEMM and GEMV inputs are scaled.
func normal(r *rand.Rand, rows, width int, scale float64) matrix {
	m := matrix{bf: make([]dtype.BFloat16, rows*width), rows: rows, width: width, stride: width}
	for i := range m.bf {
		m.bf[i] = dtype.FromFloat32(float32(scale * r.NormFloat64()))
	}
	return m
}

func empty(rows, width int) matrix {
	return matrix{bf: make([]dtype.BFloat16, rows*width), rows: rows, width: width, stride: width}
}

// at returns element (r, i) as float64.
func (m *matrix) at(r, i int) float64 {
	if m.f != nil {
		return float64(m.f[r*m.stride+i])
	}
	return float64(m.bf[r*m.stride+i].Float32())
}

func (d *deviation) addAll(got *matrix, want func(r, i int) float64) {
	for r := range got.rows {
		for i := range got.width {
			w := float32(want(r, i))
			if got.f == nil {
				w = nearest(w)
			}
			d.add(float32(got.at(r, i)), w)
		}
	}
}

// registryRows returns the published rows of kernel k that run and have an error figure, without
// rows that need the same numbers.
func registryRows(k xdna2.Kernel) []xdna2.Row {
	type key struct {
		shape   xdna2.Shape
		out     dtype.Type
		variant string
		k       int
		l1      float64
	}
	seen := map[key]bool{}
	var rows []xdna2.Row
	for _, r := range xdna2.PublishedRegistry().Rows() {
		if r.Kernel != k || r.Status != xdna2.OK && r.Status != "caveat" || r.MeanRelL1 == 0 || r.Program != "" {
			continue
		}
		id := key{r.Shape, r.Out, r.Mapping.Variant, 0, r.MeanRelL1}
		if len(r.Mapping.Tile) > 2 {
			id.k = r.Mapping.Tile[2]
		}
		if !seen[id] {
			seen[id] = true
			rows = append(rows, r)
		}
	}
	return rows
}

// within fails t if the error is off the published figure or range by more than 10 %.
func within(t *testing.T, row *xdna2.Row, d *deviation) {
	t.Helper()
	got := d.meanRelL1()
	low, high := row.MeanRelL1, max(row.MeanRelL1, row.MeanRelL1Max)
	if got < 0.9*low || got > 1.1*high {
		t.Errorf("%s: mean relative L1 %.3e, published %.3e (%+.1f %%)", row.ID, got, row.MeanRelL1,
			100*(got/row.MeanRelL1-1))
	}
	t.Logf("%-55s mean relative L1 %.3e, published %.3e; max abs %.3g, published %.3g; max rel "+
		"%.3g, published %.3g",
		row.ID, got, row.MeanRelL1, d.maxAbs, row.MaxAbs, d.maxRel, row.MaxRel)
}

var testCompute = compute{ctx: context.Background(), threads: 2}

// Errors of the element-wise kernels, norms and RoPE match the published ones.
func TestPublishedErrors(t *testing.T) {
	kernels := map[xdna2.Kernel]func(row *xdna2.Row, r *rand.Rand) deviation{
		xdna2.Add: func(row *xdna2.Row, r *rand.Rand) (d deviation) {
			rows := sampled(row.Shape.N, 1<<19) / 1024
			x, z, y := normal(r, rows, 1024, 1), normal(r, rows, 1024, 1), empty(rows, 1024)
			testCompute.add(&x, &z, &y)
			d.addAll(&y, func(r, i int) float64 { return x.at(r, i) + z.at(r, i) })
			return d
		},
		xdna2.SiLUMul: func(row *xdna2.Row, r *rand.Rand) (d deviation) {
			rows := sampled(row.Shape.N, 1<<19) / 1024
			x, u, y := normal(r, rows, 1024, 1), normal(r, rows, 1024, 1), empty(rows, 1024)
			testCompute.siluMul(&x, &u, &y)
			d.addAll(&y, func(r, i int) float64 {
				return x.at(r, i) / (1 + math.Exp(-x.at(r, i))) * u.at(r, i)
			})
			return d
		},
		xdna2.GELU: func(row *xdna2.Row, r *rand.Rand) (d deviation) {
			rows := sampled(row.Shape.N, 1<<19) / 1024
			x, y := normal(r, rows, 1024, 1), empty(rows, 1024)
			testCompute.gelu(&x, &y)
			d.addAll(&y, func(r, i int) float64 {
				v := x.at(r, i)
				return 0.5 * v * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v)))
			})
			return d
		},
		xdna2.RMSNorm: func(row *xdna2.Row, r *rand.Rand) (d deviation) {
			rows, n := sampled(row.Shape.Rows, 512), row.Shape.Width
			x, w, y := normal(r, rows, n, 1), normal(r, 1, n, 1), empty(rows, n)
			testCompute.rmsNorm(&x, &w, &y, n, 1e-5)
			for r := range rows {
				sum := 0.0
				for i := range n {
					sum += x.at(r, i) * x.at(r, i)
				}
				root := 1 / math.Sqrt(sum/float64(n)+1e-5)
				for i := range n {
					d.add(float32(y.at(r, i)), nearest(float32(x.at(r, i)*root*w.at(0, i))))
				}
			}
			return d
		},
		xdna2.LayerNorm: func(row *xdna2.Row, r *rand.Rand) (d deviation) {
			rows, n := sampled(row.Shape.Rows, 512), row.Shape.Width
			x, w, b, y := normal(r, rows, n, 1), normal(r, 1, n, 1), normal(r, 1, n, 1), empty(rows, n)
			testCompute.layerNorm(&x, &w, &b, &y, 1e-5)
			for r := range rows {
				mean, variance := 0.0, 0.0
				for i := range n {
					mean += x.at(r, i) / float64(n)
				}
				for i := range n {
					variance += (x.at(r, i) - mean) * (x.at(r, i) - mean) / float64(n)
				}
				root := 1 / math.Sqrt(variance+1e-5)
				for i := range n {
					d.add(float32(y.at(r, i)),
						nearest(float32((x.at(r, i)-mean)*root*w.at(0, i)+b.at(0, i))))
				}
			}
			return d
		},
		xdna2.RoPE: func(row *xdna2.Row, r *rand.Rand) (d deviation) {
			rows, n := row.Shape.Rows, row.Shape.Width
			if !long && rows > 8192 {
				rows = 8192
			}
			x, y := normal(r, rows, n, 1), empty(rows, n)
			table := empty(rows, n)
			for pos := range rows { // one head per row, as in the harness
				for i := range n / 2 {
					sin, cos := math.Sincos(float64(pos) * math.Pow(500000, -2*float64(i)/float64(n)))
					table.bf[pos*n+i], table.bf[pos*n+n/2+i] = dtype.FromFloat32(float32(cos)),
						dtype.FromFloat32(float32(sin))
				}
			}
			testCompute.rope(&x, &table, &y, n)
			d.addAll(&y, func(r, i int) float64 {
				j := i % (n / 2)
				a, b, cos, sin := x.at(r, j), x.at(r, j+n/2), table.at(r, j), table.at(r, j+n/2)
				if i < n/2 {
					return a*cos - b*sin
				}
				return a*sin + b*cos
			})
			return d
		},
	}
	for kernel, run := range kernels {
		t.Run(string(kernel), func(t *testing.T) {
			rows := registryRows(kernel)
			if len(rows) == 0 {
				t.Fatal("no rows in the registry")
			}
			for _, row := range rows {
				r := rand.New(rand.NewPCG(42, 0))
				var d deviation
				for range max(1, 1<<14/elements(row.Shape)) { // small shapes vary: draw several times
					d.join(run(&row, r))
				}
				within(t, &row, &d)
			}
		})
	}
}
