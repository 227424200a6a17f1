package checkpoint

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/npukit/npukit/npu/dtype"
)

// NonFinite reads all weights and returns the sorted names of tensors with a NaN or an infinity.
// Such a checkpoint opens and runs, but its results are worthless. Reading takes some seconds for a
// few gigabytes.
func (c *Checkpoint) NonFinite(ctx context.Context) ([]string, error) {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		bad  []string
		errs []error
	)
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	next := make(chan *entry)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for e := range next {
				found, err := nonFinite(ctx, e.stored)
				mu.Lock()
				if found {
					bad = append(bad, e.Name)
				}
				if err != nil {
					errs = append(errs, err)
				}
				mu.Unlock()
			}
		})
	}
	for _, name := range c.names {
		next <- c.entries[name]
	}
	close(next)
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("checkpoint: %s: search for NaN: %w", c.path, err)
	}
	if len(errs) > 0 {
		return nil, errs[0]
	}
	slices.Sort(bad)
	return bad, nil
}

// nonFinite checks one tensor, some thousand elements at a time, so that it stays in the CPU cache
// and obeys the context within microseconds.
func nonFinite(ctx context.Context, s stored) (bool, error) {
	elems, size := s.typ.Block()
	values := make([]float32, 16<<10) // a multiple of every block's length
	chunk := len(values) / elems * size
	for data := s.data; len(data) > 0 && ctx.Err() == nil; {
		b := data[:min(chunk, len(data))]
		data = data[len(b):]
		v := values[:len(b)/size*elems]
		if err := dtype.Dequantize(v, s.typ, b); err != nil {
			return false, s.errorf("cannot be read: %v", err)
		}
		for _, f := range v {
			if math.Float32bits(f)&0x7f800000 == 0x7f800000 {
				return true, nil
			}
		}
	}
	return false, nil
}
