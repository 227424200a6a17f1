package sim

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

func open(t testing.TB, opts *Options) *Device {
	t.Helper()
	d, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// alloc returns a buffer with the contents of x on both sides.
func alloc(t testing.TB, d *Device, x *matrix) npu.Buffer {
	t.Helper()
	data := dtype.AsBytes(x.bf)
	if x.f != nil {
		data = dtype.AsBytes(x.f)
	}
	b, err := d.Alloc(t.Context(), len(data))
	if err != nil {
		t.Fatal(err)
	}
	copy(b.Bytes(), data)
	if err := b.Sync(npu.ToDevice, 0, len(data)); err != nil {
		t.Fatal(err)
	}
	return b
}

// run executes p with one buffer per argument and syncs the last one into y.
func run(t testing.TB, d *Device, p *npu.Program, y *matrix, args ...npu.Buffer) {
	t.Helper()
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	e, err := d.place(t.Context(), p) // shapes need not fit the array
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := d.Submit(t.Context(), []npu.Run{{Exec: e, Args: args}}); err != nil {
		t.Fatal(err)
	}
	last := args[len(args)-1]
	if err := last.Sync(npu.FromDevice, 0, last.Len()); err != nil {
		t.Fatal(err)
	}
	if y.f != nil {
		copy(y.f, dtype.Float32s(last.Bytes()))
	} else {
		copy(y.bf, dtype.BFloat16s(last.Bytes()))
	}
	for _, b := range args {
		if b == nil {
			continue
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// product computes a[m, k] w[k, n] on the device and returns its deviation from float64 sums.
// outside is the number of compared outputs that no FP32 sum produces (see fp32Sum).
func product(t testing.TB, d *Device, row *xdna2.Row, m, n int, r *rand.Rand) (dev deviation,
	outside, samples int) {
	k := row.Shape.K
	scale := 1 / math.Sqrt(float64(k))
	if row.Kernel == xdna2.GEMV {
		scale = 4
	}
	a, w, y := normal(r, m, k, scale), normal(r, n, k, scale), empty(m, n)
	o := op.MatMul{M: m, K: k, N: n, TransB: true}
	p := npu.NewProgram("product")
	pa, pw := p.In("a", dtype.BF16, m, k), p.In("w", dtype.BF16, n, k)
	if row.Out == dtype.F32 {
		y = matrix{f: make([]float32, m*n), rows: m, width: n, stride: n}
	}
	if row.Mapping.Variant == "fused-cast" {
		sums := p.Scratch("sums", dtype.F32, m, n)
		p.Launch("product", o, pa, pw, sums)
		p.Map(row.Mapping)
		p.Launch("cast", op.Cast{Rows: m, Width: n}, sums, p.Out("y", dtype.BF16, m, n))
		p.Map(npu.Mapping{Variant: "fused-cast"})
		run(t, d, p, &y, alloc(t, d, &a), alloc(t, d, &w), nil, alloc(t, d, &y))
	} else {
		p.Launch("product", o, pa, pw, p.Out("y", row.Out, m, n))
		p.Map(row.Mapping)
		run(t, d, p, &y, alloc(t, d, &a), alloc(t, d, &w), alloc(t, d, &y))
	}
	// Only some outputs of a large product are compared.
	samples = min(m*n, 1<<14)
	errs, wrong := make([]deviation, samples), make([]bool, samples)
	parallel(t.Context(), 2, samples, k, func(from, to int) {
		for s := from; s < to; s++ {
			i := (s*(m*n/samples) + s%n) % (m * n)
			x, z := a.bf[i/n*k:][:k], w.bf[i%n*k:][:k]
			var total fp32Sum
			for j, v := range x {
				total.add(float64(v.Float32()) * float64(z[j].Float32()))
			}
			want := float32(total.exact)
			if y.f == nil {
				want = nearest(want)
			}
			got := float32(y.at(i/n, i%n))
			errs[s].add(got, want)
			wrong[s] = !total.allows(got, y.f == nil)
		}
	})
	for s, e := range errs {
		dev.join(e)
		if wrong[s] {
			outside++
		}
	}
	return dev, outside, samples
}

// Errors of every published GEMM match, for all variants and epilogues. M and N are sampled,
// because the error is a mean over them. Long tests use every column and up to 256 rows. K is never
// sampled.
func TestPublishedGEMM(t *testing.T) {
	d := open(t, nil)
	for _, row := range registryRows(xdna2.GEMM) {
		m, n := min(row.Shape.M, 32), sampled(row.Shape.N, 256)
		if long {
			m = min(row.Shape.M, 256)
		}
		r := rand.New(rand.NewPCG(42, uint64(row.Shape.N)))
		var dev deviation
		for range max(1, 1<<13/m/n) { // small shapes vary: draw several times
			e, _, _ := product(t, d, &row, m, n, r)
			dev.join(e)
		}
		within(t, &row, &dev)
	}
}

// Every output of a published GEMV is an FP32 sum rounded once.
func TestPublishedGEMV(t *testing.T) {
	d := open(t, nil)
	for _, row := range registryRows(xdna2.GEMV) {
		dev, outside, samples := product(t, d, &row, 1, sampled(row.Shape.N, 2048),
			rand.New(rand.NewPCG(42, uint64(row.Shape.N))))
		if outside > 0 {
			t.Errorf("%s: %d of %d outputs are not an FP32 sum rounded once", row.ID, outside, samples)
		}
		t.Logf("%-30s mean relative L1 %.3g, published %.3g", row.ID, dev.meanRelL1(), row.MeanRelL1)
	}
}

// fp32Sum is tight enough to reject at least an eighth of the outputs of a defective GEMV.
func TestFP32SumRejectsDefects(t *testing.T) {
	const n = 512
	// sequential order, as in the Go kernels for many rows: the largest error
	single := func(x []float32) float32 {
		s := float32(0)
		for _, v := range x {
			s += v
		}
		return s
	}
	defects := map[string]func(terms []float32) float32{
		"none":         func(x []float32) float32 { return nearest(single(x)) },
		"rounded down": func(x []float32) float32 { return down(single(x)) },
		"rounded toward zero": func(x []float32) float32 {
			return math.Float32frombits(math.Float32bits(single(x)) &^ 0xffff)
		},
		"the last term is missing": func(x []float32) float32 { return nearest(single(x[:len(x)-1])) },
		"one term counts twice":    func(x []float32) float32 { return nearest(single(x) + x[7]) },
		"products rounded to BF16": func(x []float32) float32 {
			s := float32(0)
			for _, v := range x {
				s += nearest(v)
			}
			return nearest(s)
		},
		"halves in BF16": func(x []float32) float32 {
			return nearest(nearest(single(x[:len(x)/2])) + nearest(single(x[len(x)/2:])))
		},
	}
	for _, k := range []int{576, 2048, 2560, 8192} {
		r := rand.New(rand.NewPCG(7, uint64(k)))
		found := map[string]int{}
		for range n {
			a, w := normal(r, 1, k, 4), normal(r, 1, k, 4)
			terms := make([]float32, k)
			var total fp32Sum
			for i := range terms {
				terms[i] = a.bf[i].Float32() * w.bf[i].Float32()
				total.add(float64(terms[i]))
			}
			for name, f := range defects {
				if !total.allows(f(terms), true) {
					found[name]++
				}
			}
		}
		for name := range defects {
			if name == "none" {
				if found[name] > 0 {
					t.Errorf("K = %d: %d of %d correct outputs rejected", k, found[name], n)
				}
			} else if found[name] < n/8 {
				t.Errorf("K = %d: %s: %d of %d outputs rejected, want an eighth", k, name, found[name], n)
			}
		}
		t.Logf("K = %d: outputs rejected of %d: %v", k, n, found)
	}
}
