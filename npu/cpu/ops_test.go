package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// usable returns the kernels that this machine can execute: every test of numbers runs on each. If
// KernelsVariable is set, it returns only the kernels that the variable names.
func usable(t testing.TB) []string {
	if name := os.Getenv(KernelsVariable); name != "" {
		return []string{name}
	}
	var names []string
	for _, name := range KernelNames() {
		d, err := Open(&Options{Threads: 1, Kernels: name})
		if err != nil {
			continue
		}
		names = append(names, name)
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if raced && len(names) > 2 {
		t.Logf("under the race detector: kernels %s and %s only", names[0], names[len(names)-1])
		names = []string{names[0], names[len(names)-1]}
	}
	return names
}

// some is the first two of a list under the race detector, else all of it.
func some[T any](t testing.TB, what string, list []T) []T {
	if !raced || len(list) <= 2 {
		return list
	}
	t.Logf("under the race detector: %s %v only", what, list[:2])
	return list[:2]
}

// forEachDevice runs f on a device of each kind, as a subtest.
func forEachDevice(t *testing.T, threads int, f func(t *testing.T, d *Device)) {
	for _, name := range usable(t) {
		t.Run(name, func(t *testing.T) { f(t, open(t, &Options{Threads: threads, Kernels: name})) })
	}
}

func open(t testing.TB, o *Options) *Device {
	t.Helper()
	d, err := Open(o)
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

// encode stores values in b as typ, and replaces them by the rounded values.
func encode(b []byte, typ dtype.Type, values []float64) {
	for i := range values {
		switch typ {
		case dtype.F32:
			dtype.Float32s(b)[i] = float32(values[i])
			values[i] = float64(float32(values[i]))
		case dtype.BF16:
			h := dtype.FromFloat32(float32(values[i]))
			dtype.BFloat16s(b)[i] = h
			values[i] = float64(h.Float32())
		case dtype.F16:
			var h [1]dtype.Float16
			dtype.F32ToF16(h[:], []float32{float32(values[i])})
			dtype.Float16s(b)[i] = h[0]
			values[i] = float64(h[0].Float32())
		case dtype.I32:
			dtype.Int32s(b)[i] = int32(values[i])
		}
	}
}

func decode(t testing.TB, b []byte, typ dtype.Type, n int) []float64 {
	x := make([]float32, n)
	if err := dtype.Dequantize(x, typ, b[:typ.Bytes(n)]); err != nil {
		t.Fatal(err)
	}
	y := make([]float64, n)
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// rounding is the relative error that storing as a type makes at most.
func rounding(typ dtype.Type) float64 {
	switch typ {
	case dtype.BF16:
		return 0x1p-8
	case dtype.F16:
		return 0x1p-11
	}
	return 0
}

// compare fails unless every element is within the rounding of the output's type and an FP32 error
// of the sum that made it: terms products
// of about unit size.
func compare(t *testing.T, got, want []float64, typ dtype.Type, terms int) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d elements, want %d", len(got), len(want))
	}
	// A rounding is 2^-24 of the sum so far, which is about the root of the number of terms; there
	// are as many roundings as terms, and their
	// signs leave about the root of that too. Eight times so much for the tails of both, and 32
	// roundings for exp and the norms. The 2^-17 of numbers that AMX has
	// as sums of two BF16 numbers lies within that.
	abs := 0x1p-24 * (32 + 8*float64(terms))
	for i := range got {
		if d := math.Abs(got[i] - want[i]); !(d <= abs+(rounding(typ)+0x1p-20)*math.Abs(want[i])) {
			t.Fatalf("element %d of %d is %g, want %g (off by %g)", i, len(got), got[i], want[i], d)
		}
	}
}

func alloc(t testing.TB, d *Device, bytes int) npu.Buffer {
	t.Helper()
	b, err := d.Alloc(context.Background(), bytes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// poison fills a buffer with NaN (of every float type), so that tests detect unwritten elements.
func poison(b []byte) {
	for i := range b {
		b[i] = 0xff
	}
}

// runOp executes one op on random operands of the given types, and returns the result and that of
// the reference on the same operands.
func runOp(t *testing.T, d *Device, o op.Op, types []dtype.Type, seed uint64) (got, want []float64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	p := npu.NewProgram("test")
	var refs []npu.Ref
	var bufs []npu.Buffer
	var in [][]float64
	var out npu.Buffer
	var outType dtype.Type
	outLen := 0
	for i, operand := range o.Operands() {
		kind, typ := npu.In, types[i]
		if operand.Write {
			kind = npu.Out
		}
		n := (op.Size{}).Elements(operand.Shape)
		buf := alloc(t, d, typ.Bytes(n))
		if operand.Write {
			poison(buf.Bytes())
			out, outType, outLen = buf, typ, n
		} else {
			values := make([]float64, n)
			for j := range values {
				values[j] = rng.NormFloat64()
				if typ == dtype.I32 {
					values[j] = float64(rng.IntN(limit(o)))
				}
			}
			encode(buf.Bytes(), typ, values)
			in = append(in, values)
		}
		refs = append(refs, p.Arg(kind, operand.Name, typ, operand.Shape...))
		bufs = append(bufs, buf)
	}
	p.Launch("op", o, refs...)
	exec, err := d.Load(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Submit(context.Background(), []npu.Run{{Exec: exec, Args: bufs}}); err != nil {
		t.Fatal(err)
	}
	return decode(t, out.Bytes(), outType, outLen), reference(o, in)
}

// limit is the number of rows that an index can name.
func limit(o op.Op) int {
	switch o := o.(type) {
	case op.Embed:
		return o.Vocab
	case op.Pick:
		return o.Rows
	}
	return 1
}

const (
	f32  = dtype.F32
	bf   = dtype.BF16
	half = dtype.F16
	i32  = dtype.I32
)

func TestMatMulEqualsReference(t *testing.T) {
	shapes := []struct{ m, k, n int }{
		{1, 1, 1}, {1, 64, 48}, {1, 577, 33}, {2, 100, 7}, {3, 2049, 70}, {5, 31, 65}, {7, 33, 129}, {8, 576, 192},
		{9, 65, 31},
		{12, 64, 96}, {13, 2051, 37}, {23, 7, 150}, {17, 4096, 43}, {33, 34, 50}, {64, 100, 64}, {65, 4099, 33},
		{100, 1, 3}, {131, 576, 257}, {257, 96, 13},
	}
	types := some(t, "types", [][]dtype.Type{
		{bf, bf, bf}, {f32, half, bf}, {bf, bf, f32}, {f32, bf, f32}, {f32, f32, f32}, {bf, half, bf}, {bf, f32, bf},
	})
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		for i, s := range shapes {
			for _, typ := range types {
				for _, trans := range []bool{true, false} {
					o := op.MatMul{M: s.m, K: s.k, N: s.n, TransB: trans}
					t.Run(fmt.Sprintf("%dx%dx%d %v transb=%v", s.m, s.k, s.n, typ, trans), func(t *testing.T) {
						got, want := runOp(t, d, o, typ, uint64(i))
						compare(t, got, want, typ[2], s.k)
					})
				}
			}
		}
	})
}

// Within few rows and within many, the sums of a row are the same however many rows are multiplied
// at once, so that sessions in a batch do not see each other.
func TestRowsDoNotDependOnTheirNumber(t *testing.T) {
	const n, rows = 81, 300 // columns for groups of 12, of 8 and of 1
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		for _, k := range []int{2304, 4096} { // rows a multiple of 4 KB apart have groups of their own
			rng := rand.New(rand.NewPCG(8, 2))
			x, w := random(rng, rows*k), random(rng, n*k)
			weights := alloc(t, d, 2*n*k)
			encode(weights.Bytes(), bf, w)
			product := func(m int) []float64 {
				p := npu.NewProgram("product")
				p.Launch("y", op.MatMul{M: m, K: k, N: n, TransB: true}, p.In("x", bf, m, k), p.In("w", bf, n, k),
					p.Out("y", f32, m, n))
				in, out := alloc(t, d, 2*m*k), alloc(t, d, 4*m*n)
				encode(in.Bytes(), bf, x[:m*k])
				submit(t, d, p, in, weights, out)
				return decode(t, out.Bytes(), f32, m*n)
			}
			few := d.Info().FewRows
			for _, numbers := range [][]int{{few, 1, 2, 3, few - 1}, {rows, few + 1, 31, 32, 33, 47, 64, 200, 256,
				257}} {
				all := product(numbers[0])
				for _, m := range numbers[1:] {
					if got := product(m); !slices.Equal(got, all[:m*n]) {
						t.Errorf("K = %d: %d rows of %d differ", k, m, numbers[0])
					}
				}
			}
		}
	})
}

// Weights may be every other row of a matrix, or columns of it.
func TestProductsOfViews(t *testing.T) {
	const n, k = 37, 96
	views := map[string]struct {
		shape []int
		view  func(w npu.Ref) npu.Ref
		at    func(column, i int) int
	}{
		"every other row": {[]int{2 * n, k}, func(w npu.Ref) npu.Ref { return w.Every(1, 2) },
			func(column, i int) int { return (2*column+1)*k + i }},
		"columns": {[]int{n, 3 * k}, func(w npu.Ref) npu.Ref { return w.Cols(k, k) },
			func(column, i int) int { return column*3*k + k + i }},
	}
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		for name, v := range views {
			for _, m := range []int{1, 5, 16, 40, 260} {
				t.Run(fmt.Sprintf("%s, %d rows", name, m), func(t *testing.T) {
					rng := rand.New(rand.NewPCG(8, 3))
					x, w := random(rng, m*k), random(rng, v.shape[0]*v.shape[1])
					o := op.MatMul{M: m, K: k, N: n, TransB: true}
					p := npu.NewProgram("product")
					p.Launch("y", o, p.In("x", bf, m, k), v.view(p.In("w", bf, v.shape...)), p.Out("y", f32, m, n))
					in, weights, out := alloc(t, d, 2*len(x)), alloc(t, d, 2*len(w)), alloc(t, d, 4*m*n)
					encode(in.Bytes(), bf, x)
					encode(weights.Bytes(), bf, w)
					submit(t, d, p, in, weights, out)
					seen := make([]float64, n*k)
					for column := range n {
						for i := range k {
							seen[column*k+i] = w[v.at(column, i)]
						}
					}
					compare(t, decode(t, out.Bytes(), f32, m*n), reference(o, [][]float64{x, seen}), f32, k)
				})
			}
		}
	})
}

func TestRowOpsEqualReference(t *testing.T) {
	var cases []op.Op
	for _, rows := range []int{1, 3, 64} {
		for _, width := range []int{1, 7, 64, 577} {
			cases = append(cases,
				op.RMSNorm{Rows: rows, Width: width, Eps: 1e-5}, op.RMSNorm{Rows: rows, Width: width, Heads: 3,
					Eps: 1e-6},
				op.LayerNorm{Rows: rows, Width: width, Eps: 1e-5},
				op.SiLUMul{Rows: rows, Width: width}, op.GELU{Rows: rows, Width: width},
				op.GELU{Rows: rows, Width: width, Tanh: true},
				op.Add{Rows: rows, Width: width}, op.Add{Rows: rows, Width: width, Broadcast: true},
				op.RoPE{Rows: rows, Heads: 3, HeadDim: 2 * width}, op.RoPE{Rows: rows, Heads: 5, HeadDim: 2 * width,
					TableHeads: 5},
				op.Embed{Rows: rows, Vocab: 11, Width: width}, op.Pick{Picks: 2, Rows: rows, Width: width},
				op.Cast{Rows: rows, Width: width}, op.Slice{Rows: rows, Width: width + 5, From: 3, N: width},
				op.Concat{Rows: rows, Widths: []int{width}}, op.Concat{Rows: rows, Widths: []int{width, 1, 9}},
				op.Permute{Shape: []int{rows, width}, Perm: []int{1, 0}},
				op.Permute{Shape: []int{rows, 3, width}, Perm: []int{1, 0, 2}},
				op.Permute{Shape: []int{2, rows, 3, width}, Perm: []int{3, 1, 0, 2}},
			)
		}
	}
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		for i, o := range cases {
			for _, types := range typings(o) {
				t.Run(fmt.Sprintf("%s %+v %v", o.Kind(), o, types), func(t *testing.T) {
					got, want := runOp(t, d, o, types, uint64(i))
					compare(t, got, want, types[len(types)-1], 8)
				})
			}
		}
	})
}

// typings gives the combinations of types to test an op with: all operands FP32, all BF16, and
// mixed where the op allows more.
func typings(o op.Op) [][]dtype.Type {
	var list [][]dtype.Type
	for pick := range 4 {
		var types []dtype.Type
		for i, operand := range o.Operands() {
			types = append(types, operand.Types[[]int{0, len(operand.Types) - 1, i % len(operand.Types),
				(i + 1) % len(operand.Types)}[pick]])
			if last := types[i]; last.Quantized() {
				types[i] = half
			}
		}
		list = append(list, types)
	}
	return list
}
