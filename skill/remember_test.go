package skill

import (
	"context"
	"slices"
	"testing"
)

// What is remembered is what the oracle says, behind the ids that were asked for and no others, and whoever has changed a row has changed nothing.
func TestRemembered(t *testing.T) {
	ctx := context.Background()
	d := deployment(t, tiny("smollm-mha"), openCPU(t), small(t))
	ids, other := []int32{5, 6, 7, 8, 9, 10}, []int32{5, 6, 7, 8, 11, 10}
	for _, list := range [][]int32{ids, other, ids, ids[:3], other} {
		want := must(logitsOf(ctx, d.ref.NewState(), list))
		got := must(logitsOf(ctx, d.known, list))
		if !slices.Equal(got, want) {
			t.Errorf("%v: other logits than the oracle's", list)
		}
		err := d.known.Score(ctx, list, func(pos int, logits []float32) error {
			clear(logits)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := len(d.known.rows); n != 8 {
		t.Errorf("%d rows are kept, want 6 and the 2 that differ", n)
	}
	d.known.ref = nil // nothing is left to be computed
	must(logitsOf(ctx, d.known, ids))
	d.known.size = rememberMost
	d.known.keep("one more", make([]float32, 4))
	if len(d.known.rows) != 1 || d.known.size != 16 {
		t.Errorf("%d rows of %d bytes behind the bound", len(d.known.rows), d.known.size)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	d.known.rows[string([]byte{1, 0, 0, 0})] = make([]float32, 4)
	if err := d.known.Score(cancelled, []int32{1}, nil); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}
