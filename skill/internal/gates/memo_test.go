package gates

import (
	"context"
	"slices"
	"testing"

	"github.com/npukit/npukit/skill/internal/skilltest"
)

// The memo returns the oracle's logits for exactly the ids that were asked for, and changing a row
// does not change the memo.
func TestRemembered(t *testing.T) {
	ctx := context.Background()
	e := newBench(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), 40, 32)
	known := e.Known
	ids, other := []int32{5, 6, 7, 8, 9, 10}, []int32{5, 6, 7, 8, 11, 10}
	for _, list := range [][]int32{ids, other, ids, ids[:3], other} {
		want := skilltest.Must(LogitsOf(ctx, e.Oracle.NewState(), list))
		got := skilltest.Must(LogitsOf(ctx, known, list))
		if !slices.Equal(got, want) {
			t.Errorf("%v: other logits than the oracle's", list)
		}
		err := known.Score(ctx, list, func(pos int, logits []float32) error {
			clear(logits)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := len(known.rows); n != 8 {
		t.Errorf("%d rows are kept, want 6 and the 2 that differ", n)
	}
	known.ref = nil // nothing is left to be computed
	skilltest.Must(LogitsOf(ctx, known, ids))
	known.size = rememberMost
	known.keep("one more", make([]float32, 4))
	if len(known.rows) != 1 || known.size != 16 {
		t.Errorf("%d rows of %d bytes behind the bound", len(known.rows), known.size)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	known.rows[string([]byte{1, 0, 0, 0})] = make([]float32, 4)
	if err := known.Score(cancelled, []int32{1}, nil); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}
