package cpu

import (
	"math/rand/v2"
	"testing"

	"github.com/npukit/npukit/npu/dtype"
)

// quantized makes rows of random blocks whose scales are numbers of moderate size, and the values that they stand for.
func quantized(rng *rand.Rand, typ dtype.Type, rows, cols int) (data []byte, values []float32) {
	data = make([]byte, typ.Bytes(rows*cols))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	elems, size := typ.Block()
	for b := range rows * cols / elems {
		block := data[b*size:]
		half := func(at int, lo, hi float64) {
			var h [1]dtype.Float16
			dtype.F32ToF16(h[:], []float32{float32(lo + (hi-lo)*rng.Float64())})
			block[at], block[at+1] = byte(h[0]), byte(h[0]>>8)
		}
		switch typ {
		case dtype.Q4_1, dtype.Q5_1:
			half(0, 0.01, 0.1)
			half(2, -1, 0.2)
		case dtype.Q4_K, dtype.Q5_K:
			half(0, 0.001, 0.01)
			half(2, 0.005, 0.05)
		case dtype.Q6_K:
			half(208, 0.0001, 0.001)
		default:
			half(0, -0.05, 0.05)
		}
	}
	values = make([]float32, rows*cols)
	if err := dtype.Dequantize(values, typ, data); err != nil {
		panic(err)
	}
	return data, values
}

func TestGroupedRowsAreTheBlocksOfTheFile(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, f := range forms {
		const rows, cols = 37, 512
		data, want := quantized(rng, f.typ, rows, cols)
		w, err := newGrouped(new(weightStore), f.typ, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		for g := range w.groups() {
			w.fill(g, data)
		}
		got := make([]float32, cols)
		for r := range 48 {
			ungroupRow(got, w.mem.ptr(), w.code, int64(r))
			for i, v := range got {
				value := float32(0) // of the rows that the last group lacks
				if r < rows {
					value = want[r*cols+i]
				}
				if v != value {
					t.Fatalf("%v: element %d of row %d is %v, want %v", f.typ, i, r, v, value)
				}
			}
		}
		w.mem.free()
	}
}
