package kerneltest

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/oracle"
)

// The kernel computes two ops. Rows are open; K and N are odd, to test the edges.
const k, n = 577, 131

var (
	norm = op.RMSNorm{Rows: op.Rows, Width: k, Eps: 1e-5}
	mul  = op.MatMul{M: op.Rows, K: k, N: n, TransB: true}
)

// tolerance bounds the error and states why.
var tolerance = gate.Tolerance{
	Mismatches: 1, MeanRelL1: 1e-6, MaxRowL1: 2e-6, Peak: 5e-6,
	Note: "FP32 sums of 577 products in another order: mean relative L1 2.7e-7, worst row 3.4e-7, " +
		"peak 1.3e-6 measured on normal values; about four times that",
}

// The complete test of a kernel: inputs, the device's result, the oracle's, the gate.
func TestKernel(t *testing.T) {
	ctx := context.Background()
	for _, rows := range []int{1, 3, 64} {
		x, weight, w := normal(1, rows*k), normal(2, k), normal(3, n*k)
		got := run(t, &Device{Kernel: NormMatMul}, rows, x, weight, w)

		h, err := oracle.Compute(ctx, norm, op.Size{Rows: rows}, x, weight)
		if err != nil {
			t.Fatal(err)
		}
		want, err := oracle.Compute(ctx, mul, op.Size{Rows: rows}, h, w)
		if err != nil {
			t.Fatal(err)
		}
		report, err := gate.Check(got, want, n, tolerance)
		if err != nil || !report.OK() {
			t.Errorf("%d rows: %v\n%v", rows, err, report)
		}
		t.Logf("%d rows: %v", rows, report)
	}
}

// The test fails for bugs that such kernels have had.
func TestKernelCanFail(t *testing.T) {
	const rows = 3
	x, weight, w := normal(1, rows*k), normal(2, k), normal(3, n*k)
	want := run(t, &Device{Kernel: NormMatMul}, rows, x, weight, w)
	for name, kernel := range map[string]func(dst, x, weight, w []float32, k, n int, eps float64){
		"does nothing": func(dst, x, weight, w []float32, k, n int, eps float64) {},
		"no eps": func(dst, x, weight, w []float32, k, n int, eps float64) {
			NormMatMul(dst, x, weight, w, k, n, 0)
		},
		"the last columns of K left out": func(dst, x, weight, w []float32, k, n int, eps float64) {
			w = append([]float32(nil), w...)
			for j := range n {
				clear(w[j*k:][k/4*4 : k])
			}
			NormMatMul(dst, x, weight, w, k, n, eps)
		},
		"the norm's weight forgotten": func(dst, x, weight, w []float32, k, n int, eps float64) {
			ones := make([]float32, k)
			for i := range ones {
				ones[i] = 1
			}
			NormMatMul(dst, x, ones, w, k, n, eps)
		},
		"the last output never written": func(dst, x, weight, w []float32, k, n int, eps float64) {
			last := dst[len(dst)-1]
			NormMatMul(dst, x, weight, w, k, n, eps)
			dst[len(dst)-1] = last
		},
	} {
		got := run(t, &Device{Kernel: kernel}, rows, x, weight, w)
		if report, err := gate.Check(got, want, n, tolerance); err != nil || report.OK() {
			t.Errorf("a kernel with a bug passes: %s (%v)", name, err)
		}
	}
}

// run executes the two ops as one program on a device and returns its result.
func run(t *testing.T, dev npu.Device, rows int, x, weight, w []float32) []float32 {
	t.Helper()
	ctx := context.Background()
	p := npu.NewProgram("norm_matmul")
	in, g, m := p.In("x", dtype.F32, op.Rows, k), p.In("weight", dtype.F32, k), p.In("w", dtype.F32, n,
		k)
	h, y := p.Scratch("h", dtype.F32, op.Rows, k), p.Out("y", dtype.F32, op.Rows, n)
	p.Launch("norm", norm, in, g, h)
	p.Launch("matmul", mul, h, m, y)
	exec, err := dev.Load(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	buf := func(values []float32) npu.Buffer {
		b, err := dev.Alloc(ctx, 4*len(values))
		if err != nil {
			t.Fatal(err)
		}
		copy(dtype.Float32s(b.Bytes()), values)
		if err := b.Sync(npu.ToDevice, 0, b.Len()); err != nil {
			t.Fatal(err)
		}
		return b
	}
	poison := make([]float32, rows*n) // reveals elements that the kernel does not write
	for i := range poison {
		poison[i] = float32(math.NaN())
	}
	result := buf(poison)
	r := npu.Run{Exec: exec, Args: []npu.Buffer{buf(x), buf(weight), buf(w), nil, result},
		Segments: []npu.Segment{{Rows: rows}}}
	if err := dev.Submit(ctx, []npu.Run{r}); err != nil {
		t.Fatal(err)
	}
	if err := result.Sync(npu.FromDevice, 0, result.Len()); err != nil {
		t.Fatal(err)
	}
	return dtype.Float32s(result.Bytes())
}

// normal returns seeded standard normal values.
func normal(seed uint64, count int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 0))
	list := make([]float32, count)
	for i := range list {
		list[i] = float32(rng.NormFloat64())
	}
	return list
}

// Other programs are refused with a reason.
func TestDeviceRefuses(t *testing.T) {
	p := npu.NewProgram("add")
	a, y := p.In("a", dtype.F32, 2, 4), p.Out("y", dtype.F32, 2, 4)
	p.Launch("add", op.Add{Rows: 2, Width: 4}, a, a, y)
	if _, err := (&Device{Kernel: NormMatMul}).Load(context.Background(), p); err == nil {
		t.Error("a program that the kernel does not compute was loaded")
	}
}

// The kernel can be called without a device.
func ExampleNormMatMul() {
	x, weight, w := []float32{3, 4}, []float32{1, 1}, []float32{1, 0, 0, 1} // one row, the identity
	y := make([]float32, 2)
	NormMatMul(y, x, weight, w, 2, 2, 0)
	fmt.Printf("%.4f\n", y)
	// Output: [0.8485 1.1314]
}
