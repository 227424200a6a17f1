package cpu

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/npukit/npukit/npu/cpu/internal/gokernel"
	"github.com/npukit/npukit/npu/cpu/internal/kernel"
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
	for _, f := range kernel.Forms {
		const rows, cols = 37, 512
		data, want := quantized(rng, f.Type, rows, cols)
		w, err := newGrouped(new(weightStore), f.Type, rows, cols)
		if err != nil {
			t.Fatal(err)
		}
		gokernel.New(1).Regroup(&w.Grouped, data, 0, w.Groups())
		got := make([]float32, cols)
		for r := range 48 {
			gokernel.UngroupRow(got, w.Ptr(), w.Code, int64(r))
			for i, v := range got {
				value := float32(0) // of the rows that the last group lacks
				if r < rows {
					value = want[r*cols+i]
				}
				if v != value {
					t.Fatalf("%v: element %d of row %d is %v, want %v", f.Type, i, r, v, value)
				}
			}
		}
		w.mem.free()
	}
}

// enginesOfEachKind are the ways to group weights that this build has: in Go, and in C where there is cgo.
func enginesOfEachKind(t testing.TB) (list []*Device) {
	list = append(list, open(t, &Options{Threads: 1, Kernels: "go"}))
	if d := open(t, &Options{Threads: 1}); d.Kernels() != "go" {
		list = append(list, d)
	}
	return list
}

// Weights are grouped in Go block by block, and in C all rows of a group at once: both must give
// the same bytes, for all contents of the blocks.
func TestEnginesGroupAlike(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	devices := enginesOfEachKind(t)
	if len(devices) < 2 {
		t.Skip("this build has no C")
	}
	for _, f := range kernel.Forms {
		elems, _ := f.Type.Block()
		for _, size := range []struct{ rows, blocks int }{{1, 1}, {1, 3}, {15, 2}, {16, 1}, {17, 5}, {31, 9}, {64, 8},
			{100, 3}} {
			t.Run(fmt.Sprintf("%v %dx%d", f.Type, size.rows, size.blocks), func(t *testing.T) {
				cols := size.blocks * elems
				data := make([]byte, f.Type.Bytes(size.rows*cols))
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				var want []byte
				for _, d := range devices {
					w, err := newGrouped(new(weightStore), f.Type, size.rows, cols)
					if err != nil {
						t.Fatal(err)
					}
					defer w.mem.free()
					// In two parts, of which the later comes first: each writes its own groups and nothing else.
					half := w.Groups() / 2
					d.engine.Regroup(&w.Grouped, data, half, w.Groups())
					d.engine.Regroup(&w.Grouped, data, 0, half)
					if want == nil {
						want = w.mem.m
					} else if !bytes.Equal(w.mem.m, want) {
						t.Fatal("C gives other bytes than Go")
					}
				}
			})
		}
	}
}

// Rows must be complete even if a caller states otherwise.
func TestRegroupRefusesShortRows(t *testing.T) {
	for _, d := range enginesOfEachKind(t) {
		w, err := newGrouped(new(weightStore), dtype.Q8_0, 17, 64)
		if err != nil {
			t.Fatal(err)
		}
		defer w.mem.free()
		data := make([]byte, dtype.Q8_0.Bytes(17*64)-1)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s reads beyond the rows that it was given", d.Kernels())
				}
			}()
			d.engine.Regroup(&w.Grouped, data, 0, 2)
		}()
	}
}

// BenchmarkRegroup gives bytes of the file per second, for a matrix of Llama-3.2-1B (8192 rows of
// 2048) whose memory is there already.
func BenchmarkRegroup(b *testing.B) {
	for _, d := range enginesOfEachKind(b) {
		for _, f := range kernel.Forms {
			for threads := range min(2, runtime.GOMAXPROCS(0)) {
				threads++
				b.Run(fmt.Sprintf("%s/%v/threads=%d", d.Kernels(), f.Type, threads), func(b *testing.B) {
					const rows, cols = 8192, 2048
					src, err := newMemory(f.Type.Bytes(rows * cols))
					if err != nil {
						b.Fatal(err)
					}
					defer src.free()
					for i := range src.m {
						src.m[i] = byte(i * i >> 3)
					}
					w, err := newGrouped(new(weightStore), f.Type, rows, cols)
					if err != nil {
						b.Fatal(err)
					}
					defer w.mem.free()
					d.engine.Regroup(&w.Grouped, src.m, 0, w.Groups())
					b.SetBytes(int64(f.Type.Bytes(rows * cols)))
					for b.Loop() {
						var wg sync.WaitGroup
						for i := range threads {
							wg.Go(func() {
								d.engine.Regroup(&w.Grouped, src.m, w.Groups()*i/threads,
									w.Groups()*(i+1)/threads)
							})
						}
						wg.Wait()
					}
				})
			}
		}
	}
}
