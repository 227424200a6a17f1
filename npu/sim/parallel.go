package sim

import (
	"context"
	"sync"
	"sync/atomic"
)

// parallelGrain is how many elements a goroutine takes at a time: some tens of microseconds of work, against less than one for taking it.
const parallelGrain = 16 << 10

// parallel calls f for pieces of [0, n) from several goroutines; each of the n is worth so many elements. A single piece runs on the
// caller's own. Pieces that have not begun when ctx ends are left out.
func parallel(ctx context.Context, threads, n, elements int, f func(from, to int)) {
	step := max(1, parallelGrain/max(1, elements))
	pieces := (n + step - 1) / step
	var next atomic.Int64
	work := func() {
		for ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= pieces {
				return
			}
			f(i*step, min(n, (i+1)*step))
		}
	}
	var wg sync.WaitGroup
	for range min(threads, pieces) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}
