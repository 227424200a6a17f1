package gatetest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/oracle"
)

// References caches results of the oracle, for tests of several devices or kernel variants. The
// zero value is empty and ready to use. It is safe for concurrent use.
type References struct {
	mu     sync.Mutex
	cached map[string]*reference
}

type reference struct {
	mu     sync.Mutex
	values []float32
}

// maxCached is the largest number of elements that are cached per result, 64 MB. A suite of full
// shapes would need tens of gigabytes without it.
const maxCached = 1 << 24

// get returns the values for a key, or computes them. Errors are not cached. A nil r caches
// nothing.
func (r *References) get(key string, compute func() ([]float32, error)) ([]float32, error) {
	if r == nil {
		return compute()
	}
	r.mu.Lock()
	if r.cached == nil {
		r.cached = map[string]*reference{}
	}
	e := r.cached[key]
	if e == nil {
		e = &reference{}
		r.cached[key] = e
	}
	r.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.values != nil {
		return e.values, nil
	}
	values, err := compute()
	if err == nil && len(values) <= maxCached {
		e.values = values
	}
	return values, err
}

// referenceKey encodes everything that a result of the oracle depends on.
func referenceKey(o op.Op, types []dtype.Type, opts *Options, size op.Size,
	exact []dtype.Type) string {
	// Weights that the device rounds were rounded for the oracle too.
	rounded := make([]bool, len(types))
	for i, t := range types {
		rounded[i] = roleOf(o, i) == constant && !slices.Contains(exact, t)
	}
	return fmt.Sprintf("%s%+v %v %v %v %v %d", o.Kind(), o, types, rounded, opts.Segments, size,
		opts.Seed)
}

// expected returns the oracle's result for the operands; for KVWrite the caches of all segments in
// order.
func expected(ctx context.Context, o op.Op, size op.Size, segments []Segment,
	all *operands) ([]float32, error) {
	stateful := len(all.caches) > 0 && len(all.caches[0]) > 0
	if !stateful {
		var in []any
		for i, x := range all.list {
			switch roleOf(o, i) {
			case index:
				in = append(in, x.ids)
			case result:
			default:
				in = append(in, x.values)
			}
		}
		return oracle.Compute(ctx, o, size, in...)
	}
	// Each segment sees its own caches only.
	rows := all.list[0].values // q of Attention, x of KVWrite
	width := len(rows) / size.Rows
	var want []float32
	for s, seg := range segments {
		in := []any{rows[:seg.Rows*width]}
		rows = rows[seg.Rows*width:]
		for _, c := range all.caches[s] {
			in = append(in, c.values)
		}
		at := op.Size{Rows: seg.Rows, Capacity: seg.Pos + seg.Rows + spare, Pos: seg.Pos}
		y, err := oracle.Compute(ctx, withRows(o, seg.Rows), at, in...)
		if err != nil {
			return nil, err
		}
		want = append(want, y...)
	}
	return want, nil
}
