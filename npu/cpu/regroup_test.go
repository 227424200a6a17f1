package cpu

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/npukit/npukit/npu/dtype"
)

// enginesOfEachKind are the ways to group weights that this build has: in Go, and in C where there is cgo.
func enginesOfEachKind(t testing.TB) (list []*Device) {
	list = append(list, open(t, &Options{Threads: 1, Kernels: "go"}))
	if d := open(t, &Options{Threads: 1}); d.Kernels() != "go" {
		list = append(list, d)
	}
	return list
}

// Weights are grouped in Go block by block, and in C all rows of a group at once: both must give the same bytes, whatever the blocks hold.
func TestEnginesGroupAlike(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	devices := enginesOfEachKind(t)
	if len(devices) < 2 {
		t.Skip("this build has no C")
	}
	for _, f := range forms {
		elems, _ := f.typ.Block()
		for _, size := range []struct{ rows, blocks int }{{1, 1}, {1, 3}, {15, 2}, {16, 1}, {17, 5}, {31, 9}, {64, 8}, {100, 3}} {
			t.Run(fmt.Sprintf("%v %dx%d", f.typ, size.rows, size.blocks), func(t *testing.T) {
				cols := size.blocks * elems
				data := make([]byte, f.typ.Bytes(size.rows*cols))
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				var want []byte
				for _, d := range devices {
					w, err := newGrouped(new(weightStore), f.typ, size.rows, cols)
					if err != nil {
						t.Fatal(err)
					}
					defer w.mem.free()
					// In two parts, of which the later comes first: each writes its own groups and nothing else.
					half := w.groups() / 2
					d.engine.regroup(w, data, half, w.groups())
					d.engine.regroup(w, data, 0, half)
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

// Rows must be there in full, whatever a caller says about them.
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
			d.engine.regroup(w, data, 0, 2)
		}()
	}
}

// BenchmarkRegroup gives bytes of the file per second, for a matrix of Llama-3.2-1B (8192 rows of 2048) whose memory is there already.
func BenchmarkRegroup(b *testing.B) {
	for _, d := range enginesOfEachKind(b) {
		for _, f := range forms {
			for threads := range min(2, runtime.GOMAXPROCS(0)) {
				threads++
				b.Run(fmt.Sprintf("%s/%v/threads=%d", d.Kernels(), f.typ, threads), func(b *testing.B) {
					const rows, cols = 8192, 2048
					src, err := newMemory(f.typ.Bytes(rows * cols))
					if err != nil {
						b.Fatal(err)
					}
					defer src.free()
					for i := range src.m {
						src.m[i] = byte(i * i >> 3)
					}
					w, err := newGrouped(new(weightStore), f.typ, rows, cols)
					if err != nil {
						b.Fatal(err)
					}
					defer w.mem.free()
					d.engine.regroup(w, src.m, 0, w.groups())
					b.SetBytes(int64(f.typ.Bytes(rows * cols)))
					for b.Loop() {
						var wg sync.WaitGroup
						for i := range threads {
							wg.Go(func() { d.engine.regroup(w, src.m, w.groups()*i/threads, w.groups()*(i+1)/threads) })
						}
						wg.Wait()
					}
				})
			}
		}
	}
}
