package sim

import (
	"context"
	"sync"
	"sync/atomic"
)

// parallelGrain is the number of elements that a goroutine takes at a time: tens of microseconds of
// work for less than one microsecond of overhead.
const parallelGrain = 16 << 10

// parallel calls f for ranges of [0, n) on up to threads goroutines, including the caller's.
// elements is the amount of work per index. Ranges that have not started when ctx is done are
// skipped.
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
