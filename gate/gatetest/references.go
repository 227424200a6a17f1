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

// References keeps what the oracle computed, so that testing many devices, or many variants of one, computes it once. The zero value is empty and ready;
// it is safe for concurrent use.
type References struct {
	mu   sync.Mutex
	kept map[string]*reference
}

type reference struct {
	mu     sync.Mutex
	values []float32
}

// maxKept is how many elements a result may have to be kept: 64 MB. Of larger ones a table of full shapes would need tens of gigabytes.
const maxKept = 1 << 24

// get gives the values kept under a key, or computes them. A failure is not kept.
func (r *References) get(key string, compute func() ([]float32, error)) ([]float32, error) {
	if r == nil {
		return compute()
	}
	r.mu.Lock()
	if r.kept == nil {
		r.kept = map[string]*reference{}
	}
	e := r.kept[key]
	if e == nil {
		e = &reference{}
		r.kept[key] = e
	}
	r.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.values != nil {
		return e.values, nil
	}
	values, err := compute()
	if err == nil && len(values) <= maxKept {
		e.values = values
	}
	return values, err
}

// referenceKey names everything that a result of the oracle depends on.
func referenceKey(o op.Op, types []dtype.Type, opts *Options, size op.Size, exact []dtype.Type) string {
	// A weight that the device does not read as it is has been rounded.
	rounded := make([]bool, len(types))
	for i, t := range types {
		rounded[i] = roleOf(o, i) == constant && !slices.Contains(exact, t)
	}
	return fmt.Sprintf("%s%+v %v %v %v %v %d", o.Kind(), o, types, rounded, opts.Segments, size, opts.Seed)
}

// expected is what the oracle makes of the operands: the values of the result, or of the caches of all segments one behind the other.
func expected(ctx context.Context, o op.Op, size op.Size, segments []Segment, all *operands) ([]float32, error) {
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
	// The rows of a segment see its caches only: each is computed by itself.
	rows := all.list[0].values // q of Attention, x of KVWrite
	width := len(rows) / size.Rows
	var want []float32
	for s, seg := range segments {
		in := []any{rows[:seg.Rows*width]}
		rows = rows[seg.Rows*width:]
		for _, c := range all.caches[s] {
			in = append(in, c.values)
		}
		y, err := oracle.Compute(ctx, withRows(o, seg.Rows), op.Size{Rows: seg.Rows, Capacity: seg.Pos + seg.Rows + spare, Pos: seg.Pos}, in...)
		if err != nil {
			return nil, err
		}
		want = append(want, y...)
	}
	return want, nil
}
