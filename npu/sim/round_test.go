package sim

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/npukit/npukit/npu/dtype"
)

// roundDown returns the largest BF16 that is not above its argument.
func TestRoundDown(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	check := func(f float32) {
		got := down(f)
		if math.IsNaN(float64(f)) {
			if !math.IsNaN(float64(got)) {
				t.Errorf("NaN was rounded to %g", got)
			}
			return
		}
		if got > f {
			t.Errorf("%g was rounded up to %g", f, got)
		}
		if exact := nearest(f); exact == f && got != f {
			t.Errorf("%g is exact in BF16 and was rounded to %g", f, got)
		}
		if math.IsInf(float64(f), 0) {
			return
		}
		// The next larger BF16 must be above f.
		u := math.Float32bits(got)
		if got >= 0 && u>>31 == 0 {
			u += 1 << 16
		} else if u == 1<<31 {
			return
		} else {
			u -= 1 << 16
		}
		if up := math.Float32frombits(u); up <= f {
			t.Errorf("%g was rounded to %g, but %g is not above it", f, got, up)
		}
	}
	for range 10000 {
		check(math.Float32frombits(r.Uint32()))
		check(float32(r.NormFloat64()))
	}
	for _, f := range []float32{0, 1, -1, 1.001, -1.001, float32(math.Inf(1)), float32(math.Inf(-1)),
		float32(math.NaN()), math.Float32frombits(0xffffffff),
		math.Float32frombits(0x7f800001)} {
		check(f)
	}
}

// quantize matches its definition, computed here in float64.
func TestQuantize(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		var x, got [blockSize]dtype.BFloat16
		top := 0.0
		spread := r.Float64() * 8
		for i := range x {
			x[i] = dtype.FromFloat32(float32(r.NormFloat64() * math.Exp2(-spread*r.Float64())))
			top = max(top, math.Abs(float64(x[i].Float32())))
		}
		got = x
		quantize(got[:])
		step := math.Exp2(math.Floor(math.Log2(top)) - 6)
		for i := range x {
			m := min(math.RoundToEven(float64(x[i].Float32())/step), 127)
			if want := m * step; want != float64(got[i].Float32()) {
				t.Fatalf("%g in a block with step %g was rounded to %g, want %g", x[i].Float32(),
					step, got[i].Float32(), want)
			}
		}
	}
	inf := []dtype.BFloat16{dtype.FromFloat32(float32(math.Inf(1))), dtype.FromFloat32(1.0078125)}
	quantize(inf)
	if !math.IsInf(float64(inf[0].Float32()), 1) || inf[1].Float32() != 1.0078125 {
		t.Errorf("a block with an infinity was changed to %v", inf)
	}
}

// Quantizing columns matches quantizing rows.
func TestQuantizeColumns(t *testing.T) {
	const k, n = 20, 5 // the last block has four rows
	r := rand.New(rand.NewPCG(5, 6))
	rows := make([]dtype.BFloat16, n*k)
	cols := make([]dtype.BFloat16, k*n)
	for i := range n {
		for j := range k {
			v := dtype.FromFloat32(float32(r.NormFloat64()))
			rows[i*k+j], cols[j*n+i] = v, v
		}
	}
	byRow, byCol := make([]dtype.BFloat16, n*k), make([]dtype.BFloat16, k*n)
	for i := range n {
		quantizeRow(byRow[i*k:][:k], rows[i*k:][:k])
	}
	for j := 0; j < k; j += blockSize {
		quantizeColumns(byCol[j*n:], n, cols[j*n:], n, min(blockSize, k-j), n)
	}
	for i := range n {
		for j := range k {
			if byRow[i*k+j] != byCol[j*n+i] {
				t.Fatalf("element %d of row %d: %v by rows, %v by columns", j, i, byRow[i*k+j],
					byCol[j*n+i])
			}
		}
	}
}
