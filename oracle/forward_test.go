package oracle

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/checkpoint"
)

// Picks can be in any order or empty, and the state advances without logits too.
func TestPicks(t *testing.T) {
	m, g := open(t, tiny("qwen2-bias")), readGolden(t, "qwen2-bias")
	ctx, vocab := context.Background(), m.cfg.Vocab
	st := m.NewState()
	var positions []int
	err := m.Forward(ctx, st, g.IDs[:9], &ForwardOptions{Picks: []int{8, 3}}, func(pos int, logits []float32) error {
		positions = append(positions, pos)
		if rel := relativeL1(logits, g.Logits[pos*vocab:][:vocab]); rel > 5e-6 {
			t.Errorf("position %d: mean relative L1 %.3g", pos, rel)
		}
		return nil
	})
	if err != nil || !slices.Equal(positions, []int{8, 3}) {
		t.Fatalf("positions %v, %v", positions, err)
	}
	none := &ForwardOptions{Picks: []int{}, Tap: func(name string, _ []int, _ []float32) error {
		if strings.HasPrefix(name, "head.") {
			t.Errorf("nothing was picked, but %s was computed", name)
		}
		return nil
	}}
	if err := m.Forward(ctx, st, g.IDs[9:20], none, nil); err != nil || st.pos != 20 {
		t.Fatalf("position %d, %v", st.pos, err)
	}
	err = m.Forward(ctx, st, g.IDs[20:21], nil, func(pos int, logits []float32) error {
		if rel := relativeL1(logits, g.Logits[pos*vocab:][:vocab]); pos != 20 || rel > 5e-6 {
			t.Errorf("position %d: mean relative L1 %.3g", pos, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A state that goes back to an earlier position or scored another text computes the same bits as a new one.
func TestStateIsReused(t *testing.T) {
	m, g := open(t, tiny("qwen3-qknorm")), readGolden(t, "qwen3-qknorm")
	ctx := context.Background()
	score := func(st *State, ids []int32) (all []float32) {
		err := m.Forward(ctx, st, ids, nil, func(_ int, logits []float32) error {
			all = append(all, logits...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	ids, other := g.IDs[:24], slices.Clone(g.IDs[:24])
	slices.Reverse(other)
	fresh := m.NewState()
	score(fresh, ids[:10])
	want := score(fresh, ids[10:])

	st := m.NewState()
	score(st, ids[:10])
	score(st, other)
	st.pos = 10
	if got := score(st, ids[10:]); !slices.Equal(got, want) {
		t.Error("logits differ after position 10")
	}
	var got []float32
	for range 2 {
		got = nil
		err := st.Score(ctx, ids, func(pos int, logits []float32) error {
			if pos >= 10 {
				got = append(got, logits...)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if rel := relativeL1(got, want); rel > 5e-6 {
		t.Errorf("Score after other texts: mean relative L1 %.3g", rel)
	}
}

// The cache that the k_write tap receives consists of the rows of the k_rope tap.
func TestTapOfCache(t *testing.T) {
	m, g := open(t, tiny("llama-tied-rope-scaled")), readGolden(t, "llama-tied-rope-scaled")
	st, c := m.NewState(), m.cfg
	var rows []float32 // [positions, kvHeads*headDim]
	for ids := range slices.Chunk(g.IDs[:20], 6) {
		seen := map[string][]float32{}
		if err := m.Forward(context.Background(), st, ids, &ForwardOptions{Tap: record(seen)}, nil); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, seen["layer.1.attn.k_rope"]...)
		cache := seen["layer.1.attn.k_write"] // [kvHeads, positions, headDim]
		if len(cache) != len(rows) {
			t.Fatalf("the cache has %d elements, want %d", len(cache), len(rows))
		}
		for i, v := range cache {
			h, pos, d := i/(st.pos*c.HeadDim), i/c.HeadDim%st.pos, i%c.HeadDim
			if v != rows[(pos*c.KVHeads+h)*c.HeadDim+d] {
				t.Fatalf("head %d, position %d, element %d is not what was written", h, pos, d)
			}
		}
	}
}

// If a tap substitutes the outputs of another pass, the two differ only at ops where that pass was
// wrong.
func TestTapSubstitution(t *testing.T) {
	m := open(t, tiny("qwen3-qknorm"))
	ids := []int32{5, 6, 7, 8, 9, 10}
	wrong := map[string]bool{"layer.0.attn.k_norm": true, "layer.1.ffn.act": true}
	broken := map[string][]float32{}
	err := m.Forward(context.Background(), m.NewState(), ids,
		&ForwardOptions{Tap: func(name string, _ []int, values []float32) error {
			if wrong[name] {
				for i := range values {
					values[i] *= 1.5
				}
			}
			broken[name] = slices.Clone(values)
			return nil
		}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	differ := map[string]bool{}
	err = m.Forward(context.Background(), m.NewState(), ids,
		&ForwardOptions{Tap: func(name string, _ []int, values []float32) error {
			if !slices.Equal(values, broken[name]) {
				differ[name] = true
			}
			copy(values, broken[name])
			return nil
		}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(differ, wrong) {
		t.Errorf("passes differ at %v, want %v", differ, wrong)
	}
}

// An error of the tap or of emit ends the pass, is returned unchanged, and does not change the
// state.
func TestCallbackErrors(t *testing.T) {
	m := open(t, tiny("smollm-mha"))
	stop := errors.New("stop")
	for _, at := range []string{"embed.embed", "layer.0.attn.k_write", "layer.1.ffn.act", "head.lm_head"} {
		st, after := m.NewState(), 0
		tap := func(name string, _ []int, _ []float32) error {
			if name == at || after > 0 {
				after++
				return stop
			}
			return nil
		}
		err := m.Forward(context.Background(), st, []int32{1, 2}, &ForwardOptions{Tap: tap}, nil)
		if err != stop || after != 1 || st.pos != 0 {
			t.Errorf("%s: error %v, %d later calls, position %d", at, err, after, st.pos)
		}
	}
	st, calls := m.NewState(), 0
	err := st.Score(context.Background(), []int32{1, 2}, func(int, []float32) error { calls++; return stop })
	if err != stop || calls != 1 || st.pos != 0 {
		t.Errorf("emit: error %v, %d calls, position %d", err, calls, st.pos)
	}
}

// Invalid ids, picks and lengths return descriptive errors.
func TestForwardErrors(t *testing.T) {
	m := open(t, tiny("smollm-mha"))
	other := open(t, tiny("qwen2-bias"))
	long := make([]int32, m.cfg.Context+1)
	for want, tc := range map[string]struct {
		st    *State
		ids   []int32
		picks []int
	}{
		"id 1 is -1":               {m.NewState(), []int32{0, -1}, nil},
		"id 0 is 1000000":          {m.NewState(), []int32{1000000}, nil},
		"pick 1 is row 2":          {m.NewState(), []int32{1, 2}, []int{0, 2}},
		"pick 0 is row -1":         {m.NewState(), []int32{1, 2}, []int{-1}},
		"belongs to another":       {other.NewState(), []int32{1}, nil},
		"ids at position 0 exceed": {m.NewState(), long, nil},
	} {
		err := m.Forward(context.Background(), tc.st, tc.ids, &ForwardOptions{Picks: tc.picks}, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	st := m.NewState()
	if err := m.Forward(context.Background(), st, nil, nil, nil); err != nil || st.pos != 0 {
		t.Errorf("no ids: %v, position %d", err, st.pos)
	}
	if err := m.Forward(context.Background(), st, long[1:], &ForwardOptions{Picks: []int{}}, nil); err != nil ||
		st.pos != m.cfg.Context {
		t.Errorf("the whole context: %v, position %d", err, st.pos)
	}
}

// A model is safe for concurrent use with one state per goroutine.
func TestConcurrentStates(t *testing.T) {
	m, g := open(t, tiny("llama-untied-sharded")), readGolden(t, "llama-untied-sharded")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var got []float32
			err := m.NewState().Score(context.Background(), g.IDs, func(_ int, logits []float32) error {
				got = append(got, logits...)
				return nil
			})
			if rel := relativeL1(got, g.Logits); err != nil || !(rel <= 5e-6) {
				t.Errorf("mean relative L1 %.3g, %v", rel, err)
			}
		})
	}
	wg.Wait()
}

// Logits are computed in groups of rows; group boundaries do not affect them.
func TestLogitsInGroups(t *testing.T) {
	m := open(t, testenv.DemoModel(t))
	ids := make([]int32, 16)
	for i := range ids {
		ids[i] = int32(i * 100)
	}
	var whole, cut []float32
	keep := func(dst *[]float32) func(int, []float32) error {
		return func(_ int, logits []float32) error {
			*dst = append(*dst, logits[:50]...)
			return nil
		}
	}
	picks := make([]int, 0, 400) // more than fit a group, with repeated rows
	for len(picks) < cap(picks) {
		picks = append(picks, len(picks)%len(ids))
	}
	ctx := context.Background()
	if err := m.Forward(ctx, m.NewState(), ids, nil, keep(&whole)); err != nil {
		t.Fatal(err)
	}
	if err := m.Forward(ctx, m.NewState(), ids, &ForwardOptions{Picks: picks}, keep(&cut)); err != nil {
		t.Fatal(err)
	}
	if group := logitsBytes / 4 / m.cfg.Vocab; len(picks) <= group {
		t.Fatalf("%d picks fit one group of %d", len(picks), group)
	}
	for i := range picks {
		want := whole[i%len(ids)*50:][:50]
		if rel := relativeL1(cut[i*50:][:50], want); rel > 1e-6 {
			t.Fatalf("pick %d: mean relative L1 %.3g", i, rel)
		}
	}
}

// Block computes the same as layer 0 of the whole model, from any row.
func TestBlock(t *testing.T) {
	for _, name := range []string{"qwen2-bias", "qwen3-qknorm"} {
		m, g := open(t, tiny(name)), readGolden(t, name)
		ctx, ids, taps := context.Background(), g.IDs[:24], map[string][]float32{}
		err := m.Forward(ctx, m.NewState(), ids, &ForwardOptions{Picks: []int{},
			Tap: func(name string, _ []int, values []float32) error {
				taps[name] = slices.Clone(values)
				return nil
			}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []int{0, 1, 17, 23} {
			in, out, err := m.Block(ctx, ids, from)
			if err != nil {
				t.Fatal(err)
			}
			if want := taps["embed.embed"][from*m.cfg.Hidden:]; !slices.Equal(in, want) {
				t.Errorf("%s from row %d: the embedding differs", name, from)
			}
			if rel := relativeL1(out, taps["layer.0.ffn.residual"][from*m.cfg.Hidden:]); rel > 1e-6 {
				t.Errorf("%s from row %d: mean relative L1 %.3g", name, from, rel)
			}
		}
		for _, from := range []int{-1, 24} {
			if _, _, err := m.Block(ctx, ids, from); err == nil {
				t.Errorf("from row %d of 24: no error", from)
			}
		}
	}
}

// A pass over a closed checkpoint is an error: reading its unmapped weights would crash.
func TestClosedCheckpoint(t *testing.T) {
	ck, err := checkpoint.Open(tiny("qwen2-bias"), nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(ck)
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewState()
	if err := ck.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Step(t.Context(), 1); !errors.Is(err, checkpoint.ErrClosed) {
		t.Errorf("a step: %v, want ErrClosed", err)
	}
	if _, _, err := m.Block(t.Context(), []int32{1, 2}, 0); !errors.Is(err, checkpoint.ErrClosed) {
		t.Errorf("a block: %v, want ErrClosed", err)
	}
}
