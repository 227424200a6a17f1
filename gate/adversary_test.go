package gate_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

const (
	advRows, advHeads, advDim = 64, 2, 64
	advWidth                  = advHeads * advDim
)

// rotated is q of a layer: a projection with its bias, rotated by position.
type rotated struct {
	seed        uint64
	noBias      bool
	interleaved bool
	pos         int // of the first row
}

func (o rotated) compute() []float32 {
	x, bias := random(o.seed, advRows*advWidth), random(99, advWidth)
	y := make([]float32, len(x))
	for r := range advRows {
		for h := range advHeads {
			at := r*advWidth + h*advDim
			in := make([]float64, advDim)
			for i := range in {
				in[i] = float64(x[at+i])
				if !o.noBias {
					in[i] += float64(bias[h*advDim+i]) / 2
				}
			}
			for i := range advDim / 2 {
				a, b := i, i+advDim/2
				if o.interleaved {
					a, b = 2*i, 2*i+1
				}
				sin, cos := math.Sincos(float64(o.pos+r) * math.Pow(10000, -2*float64(i)/advDim))
				y[at+a] = float32(in[a]*cos - in[b]*sin)
				y[at+b] = float32(in[b]*cos + in[a]*sin)
			}
		}
	}
	return y
}

// adversaries are outputs that broken kernels really produce. Each names the metric that must catch
// it, in both of the gates below; others may catch it too.
var adversaries = []struct {
	name   string
	break_ func(want []float32, tol gate.Tolerance) []float32
	caught string
}{
	{"zeros", edit(func(x []float32) { clear(x) }), gate.MeanRelL1},
	{"uniformly doubled", scaled(2), gate.MeanRelL1}, // Pearson and cosine are 1
	{"5 % too large", scaled(1.05), gate.MeanRelL1},
	{"sign flipped", scaled(-1), gate.MeanRelL1},
	{"two rows swapped", edit(func(x []float32) {
		a, b := x[3*advWidth:4*advWidth], x[4*advWidth:5*advWidth]
		for i := range a {
			a[i], b[i] = b[i], a[i]
		}
	}), "element"},
	{"one element off by its scale", edit(func(x []float32) { x[4321] += 1 }), "element"},
	{"a NaN", edit(func(x []float32) { x[4321] = float32(math.NaN()) }), gate.NonFinite},
	{"last row never written", edit(func(x []float32) {
		for i := len(x) - advWidth; i < len(x); i++ {
			x[i] = float32(math.NaN())
		}
	}), gate.NonFinite},
	{"tail of each row dropped", edit(func(x []float32) {
		for r := range advRows {
			clear(x[(r+1)*advWidth-8 : (r+1)*advWidth])
		}
	}), "element"},
	{"stale: the last call's output", other(rotated{seed: 2, pos: 100}), gate.MeanRelL1},
	{"rows off by one", edit(func(x []float32) { copy(x[advWidth:], slices.Clone(x)) }),
		gate.MeanRelL1},
	{"RoPE one position late", other(rotated{seed: 1, pos: 101}), gate.MeanRelL1},
	{"RoPE pairs interleaved", other(rotated{seed: 1, pos: 100, interleaved: true}), gate.MeanRelL1},
	{"bias missing", other(rotated{seed: 1, pos: 100, noBias: true}), gate.MeanRelL1},
	{"noise of 3 x the tolerance", func(want []float32, tol gate.Tolerance) []float32 {
		sum := 0.0
		for _, v := range want {
			sum += math.Abs(float64(v))
		}
		// The mean magnitude of standard normal noise is sqrt(2/pi).
		return perturb(want, 5, 3*tol.MeanRelL1*sum/float64(len(want))/math.Sqrt(2/math.Pi))
	}, gate.MeanRelL1},
}

func edit(f func(x []float32)) func([]float32, gate.Tolerance) []float32 {
	return func(want []float32, _ gate.Tolerance) []float32 {
		x := slices.Clone(want)
		f(x)
		return x
	}
}

func scaled(by float32) func([]float32, gate.Tolerance) []float32 {
	return edit(func(x []float32) {
		for i := range x {
			x[i] *= by
		}
	})
}

func other(o rotated) func([]float32, gate.Tolerance) []float32 {
	return func([]float32, gate.Tolerance) []float32 { return o.compute() }
}

// advGates are the tolerances that must catch every adversary, and the name of the element-wise
// condition in each.
func advGates() []struct {
	tol     gate.Tolerance
	element string
} {
	o := op.RoPE{Rows: advRows, Heads: advHeads, HeadDim: advDim}
	cpu, _ := gate.CPU(o, dtype.BF16)
	npu, _ := gate.Published(o)
	return []struct {
		tol     gate.Tolerance
		element string
	}{{cpu, gate.Peak}, {npu, gate.Elements}}
}

// asBF16 rounds values like a device with BF16 outputs.
func asBF16(x []float32) []dtype.BFloat16 {
	y := make([]dtype.BFloat16, len(x))
	dtype.F32ToBF16(y, x)
	return y
}

// Every adversary fails the gate for it.
func TestAdversaries(t *testing.T) {
	want := rotated{seed: 1, pos: 100}.compute()
	for i, g := range advGates() {
		// The right answer passes, or catching the others would prove nothing.
		if r, err := gate.Check(asBF16(want), want, advWidth, g.tol); err != nil || !r.OK() {
			t.Errorf("gate %d: the right answer: %v\n%v", i, err, r)
		}
		for _, a := range adversaries {
			r, err := gate.Check(asBF16(a.break_(want, g.tol)), want, advWidth, g.tol)
			if err != nil {
				t.Fatal(err)
			}
			caught := a.caught
			if caught == "element" {
				caught = g.element
			}
			if r.OK() || !reasonOf(r.Reasons, caught) {
				t.Errorf("gate %d, %s: want it caught by %s\n%v", i, a.name, caught, r)
			}
		}
	}
}

// Prints, for each adversary, the Pearson correlation and the metrics that fail under the tolerance
// of the CPU device.
func Example_adversaries() {
	want := rotated{seed: 1, pos: 100}.compute()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "output\tPearson\tCPU, BF16\tNPU, published")
	for _, a := range adversaries {
		fmt.Fprintf(w, "%s", a.name)
		for i, g := range advGates() {
			r, err := gate.Check(asBF16(a.break_(want, g.tol)), want, advWidth, g.tol)
			if err != nil {
				fmt.Println(err)
				return
			}
			var metrics []string
			for _, reason := range r.Reasons {
				metrics = append(metrics, reason.Metric)
			}
			if i == 0 {
				fmt.Fprintf(w, "\t%.2f", r.Metrics.Pearson)
			}
			fmt.Fprintf(w, "\t%s", strings.Join(metrics, ", "))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// output                         Pearson  CPU, BF16                                NPU, published
	// zeros                          0.00     mean relative L1, peak error, worst row  element-wise, mean relative L1
	// uniformly doubled              1.00     mean relative L1, peak error, worst row  element-wise, mean relative L1
	// 5 % too large                  1.00     mean relative L1, peak error, worst row  element-wise, mean relative L1
	// sign flipped                   -1.00    mean relative L1, peak error, worst row  element-wise, mean relative L1
	// two rows swapped               0.98     mean relative L1, peak error, worst row  element-wise, mean relative L1
	// one element off by its scale   1.00     peak error, worst row                    element-wise
	// a NaN                          1.00     non-finite                               non-finite
	// last row never written         1.00     non-finite                               non-finite
	// tail of each row dropped       0.97     mean relative L1, peak error, worst row  element-wise, mean relative L1
	// stale: the last call's output  0.20     mean relative L1, peak error, worst row  element-wise, mean relative L1
	// rows off by one                0.22     mean relative L1, peak error, worst row  element-wise, mean relative L1
	// RoPE one position late         0.97     mean relative L1, peak error, worst row  element-wise, mean relative L1
	// RoPE pairs interleaved         0.16     mean relative L1, peak error, worst row  element-wise, mean relative L1
	// bias missing                   0.88     mean relative L1, peak error, worst row  element-wise, mean relative L1
	// noise of 3 x the tolerance     1.00     mean relative L1, peak error, worst row  element-wise, mean relative L1
}
