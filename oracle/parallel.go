package oracle

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
)

// parallel calls a job for each of 0 to n-1 on GOMAXPROCS goroutines. Each goroutine calls newJob
// for its own job function, which can own scratch memory. It checks ctx between jobs, so a job
// should take a few milliseconds. It returns ctx's error or the first error of a job.
func parallel(ctx context.Context, n int, newJob func() func(i int) error) error {
	workers := min(n, runtime.GOMAXPROCS(0))
	var next atomic.Int64
	var failed atomic.Bool
	errs := make([]error, max(1, workers))
	work := func(id int) {
		job := newJob()
		for !failed.Load() {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			err := ctx.Err()
			if err == nil {
				err = job(i)
			}
			if err != nil {
				errs[id] = err
				failed.Store(true)
			}
		}
	}
	if workers <= 1 {
		work(0)
		return errs[0]
	}
	var wg sync.WaitGroup
	for id := range workers {
		wg.Go(func() { work(id) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// chunk is the number of elements per job of a pointwise op: a few tenths of a millisecond.
const chunk = 1 << 14

// spans calls f for ranges [from, to) that cover [0, n), each of about chunk elements if one of the
// n has width elements.
func spans(ctx context.Context, n, width int, f func(from, to int)) error {
	step := max(1, chunk/max(1, width))
	return parallel(ctx, (n+step-1)/step, func() func(int) error {
		return func(i int) error {
			f(i*step, min(n, (i+1)*step))
			return nil
		}
	})
}
