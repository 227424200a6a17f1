package gokernel

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/npukit/npukit/npu/cpu/internal/kernel"
)

// No goroutine passes a barrier before all have arrived, whether the waiting ones still poll or
// sleep, and all sleeping ones are woken.
func TestBarrier(t *testing.T) {
	const rounds = 300
	for _, threads := range []int{1, 2, 3, 8} {
		b := newBarrier(threads)
		var arrived atomic.Int64
		var wg sync.WaitGroup
		for id := range threads {
			wg.Go(func() {
				for r := range rounds {
					if r%30 == id { // the others sleep by then
						time.Sleep(2 * time.Millisecond)
					}
					arrived.Add(1)
					b.wait()
					if n := arrived.Load(); n < int64((r+1)*threads) {
						t.Errorf("%d threads: one goes on after round %d when %d have arrived", threads, r, n)
						return
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("%d threads: somebody sleeps for ever", threads)
		}
	}
}

// All threads pack the activations of many rows: a single chunk would run on one thread and could
// not be cancelled.
func TestPackingIsSharedOut(t *testing.T) {
	for _, k := range []int64{1, 576, 2048, 1 << 20} {
		c := kernel.Command{Kind: kernel.Pack, M: 512, K: k}
		if got, most := rowStep(&c)*k, max(int64(chunkElements), k); got > most {
			t.Errorf("rows of %d elements: %d elements to a chunk, want %d at most", k, got, most)
		}
	}
}
