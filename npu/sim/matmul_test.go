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

// alloc makes a buffer with x in it, on both sides.
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

// run executes a program with these buffers, one for each argument, and syncs the last back into y.
func run(t testing.TB, d *Device, p *npu.Program, y *matrix, args ...npu.Buffer) {
	t.Helper()
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	e, err := d.place(t.Context(), p) // whether it could be placed is not the question here
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

// product is a[m, k] w[k, n] on the device, and what it deviates from the sums in float64.
func product(t testing.TB, d *Device, row *xdna2.Row, m, n int, r *rand.Rand) deviation {
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
	// Of a large product some outputs are compared.
	samples := min(m*n, 1<<14)
	errs := make([]deviation, samples)
	parallel(t.Context(), 2, samples, k, func(from, to int) {
		for s := from; s < to; s++ {
			i := (s*(m*n/samples) + s%n) % (m * n)
			x, z := a.bf[i/n*k:][:k], w.bf[i%n*k:][:k]
			sum := 0.0
			for j, v := range x {
				sum += float64(v.Float32() * z[j].Float32()) // a product of two BF16 is exact in FP32
			}
			want := float32(sum)
			if y.f == nil {
				want = nearest(want)
			}
			errs[s].add(float32(y.at(i/n, i%n)), want)
		}
	})
	var dev deviation
	for _, e := range errs {
		dev.join(e)
	}
	return dev
}

// Every published GEMM errs here as much as there, whatever its tier and epilogue. M and N are sampled: the error is a mean over them. The
// long form has every column and up to 256 rows, of which each is a vector-matrix product of its own, over the whole K.
func TestPublishedGEMM(t *testing.T) {
	d := open(t, nil)
	for _, row := range registryRows(xdna2.GEMM) {
		m, n := min(row.Shape.M, 32), sampled(row.Shape.N, 256)
		if long {
			m = min(row.Shape.M, 256)
		}
		r := rand.New(rand.NewPCG(42, uint64(row.Shape.N)))
		var dev deviation
		for range max(1, 1<<13/m/n) { // small shapes scatter: several draws
			dev.join(product(t, d, &row, m, n, r))
		}
		within(t, &row, &dev)
	}
}

// A GEMV is exact but for a few roundings to the other side.
func TestPublishedGEMV(t *testing.T) {
	d := open(t, nil)
	for _, row := range registryRows(xdna2.GEMV) {
		dev := product(t, d, &row, 1, sampled(row.Shape.N, 2048), rand.New(rand.NewPCG(42, uint64(row.Shape.N))))
		if e := dev.meanRelL1(); e > 5e-6 {
			t.Errorf("%s: mean relative L1 %.3g, want at most 5e-6", row.ID, e)
		}
	}
}
