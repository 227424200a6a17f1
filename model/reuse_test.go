package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/sim"
)

// spoken is the result of a generation, with the logits that each token was sampled from.
type spoken struct {
	ids    []int32
	logits [][]float32
	stats  Stats
}

func (a spoken) equal(b spoken) bool {
	return slices.Equal(a.ids, b.ids) && slices.EqualFunc(a.logits, b.logits, slices.Equal)
}

// speak generates some tokens greedily, and calls first at the first of them.
func speak(ctx context.Context, s *Session, ids []int32, tokens int, exact bool, first func(),
) (a spoken, err error) {
	opts := &GenerateOptions{
		MaxTokens: tokens, IgnoreEOS: true, Sampling: &Sampling{}, ExactReuse: exact, Stats: &a.stats,
	}
	for tok, err := range s.Generate(ctx, IDs(ids), opts) {
		if err != nil {
			return a, err
		}
		if first != nil && len(a.ids) == 0 {
			first()
		}
		a.ids = append(a.ids, tok.ID)
		a.logits = append(a.logits, slices.Clone(s.logits))
	}
	return a, nil
}

// meter counts the rows that a device computes, and cancels a context before a given submission.
type meter struct {
	npu.Device
	rows        int
	submissions int // until cancel is called
	cancel      context.CancelFunc
}

func (d *meter) Host() npu.Device {
	if host := npu.HostOf(d.Device); host != d.Device {
		return host
	}
	return d
}

func (d *meter) Submit(ctx context.Context, runs []npu.Run) error {
	if d.submissions--; d.submissions == 0 {
		d.cancel()
	}
	for _, rows := range segments(runs) {
		d.rows += rows
	}
	return d.Device.Submit(ctx, runs)
}

// reuseCase is a model on a device for the random tests of prefix reuse.
type reuseCase struct {
	path     func(t *testing.T) string
	sim      bool
	chunk    int
	free     bool // a plan without costs
	most     int  // ids of a prompt
	vocab    int32
	tokens   int
	rounds   int
	expected bool // there must be differences without ExactReuse, or the test proves little
}

func reuseCases() map[string]reuseCase {
	path := func(name string) func(*testing.T) string {
		return func(*testing.T) string { return tiny(name) }
	}
	demo := func(t *testing.T) string {
		if testing.Short() {
			t.Skip("reads some hundred prompts with a real model")
		}
		return testenv.DemoModel(t)
	}
	return map[string]reuseCase{
		"F32 in chunks of 64": {
			path:     path("qwen3-qknorm"),
			chunk:    64,
			most:     300,
			vocab:    250,
			tokens:   6,
			rounds:   60,
			expected: true,
		},
		"F32 in chunks of 20": {
			path:   path("llama-tied-rope-scaled"),
			chunk:  20,
			most:   200,
			vocab:  250,
			tokens: 6,
			rounds: 60,
		},
		"F32 in chunks of 8": {
			path:   path("qwen2-bias"),
			chunk:  8,
			most:   100,
			vocab:  250,
			tokens: 6,
			rounds: 30,
		},
		"BF16": {
			path:     virtualModel,
			chunk:    64,
			most:     200,
			vocab:    600,
			tokens:   6,
			rounds:   60,
			expected: true,
		},
		"Q4_1": {path: demo, most: 150, vocab: 40000, tokens: 8, rounds: 15},
		"fixed rows": {
			path:   virtualModel,
			sim:    true,
			chunk:  64,
			most:   100,
			vocab:  600,
			tokens: 4,
			rounds: 40,
		},
		"fixed rows without cost": {
			path:     virtualModel,
			sim:      true,
			chunk:    64,
			most:     100,
			vocab:    600,
			tokens:   4,
			rounds:   40,
			free:     true,
			expected: true,
		},
	}
}

func (c reuseCase) open(t *testing.T, prefixBytes *int) (*Model, *meter) {
	t.Helper()
	var dev npu.Device
	var err error
	if c.sim {
		dev, err = sim.Open(&sim.Options{Threads: 2})
	} else {
		dev, err = cpu.Open(&cpu.Options{Threads: 2})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	d := &meter{Device: dev}
	opts := &OpenOptions{PlanOptions: &plan.Options{Chunk: c.chunk}, PrefixBytes: prefixBytes}
	m, err := Open(context.Background(), d, c.path(t), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	if c.free {
		m.plan.Decode.Cost = 0
	}
	return m, d
}

// holds is the expected cache of a session after its calls.
type holds struct {
	ids       []int32
	generated []bool // the position is not of a prompt
}

func (h *holds) cut(n int) { h.ids, h.generated = h.ids[:n], h.generated[:n] }

func (h *holds) add(ids []int32, generated bool) {
	for _, id := range ids {
		h.ids, h.generated = append(h.ids, id), append(h.generated, generated)
	}
}

// Random prompts that continue the cached ids, diverge from them or repeat them, next to other
// sessions and with calls that are cancelled between two passes, meet the contract of Session:
//   - with ExactReuse, ids and logits are bit-identical to those of a new session;
//   - without it, they are as well if no generated position is reused, on a device that takes any
//     number of rows;
//   - they always equal those of a session that makes the same calls on a model without other
//     sessions;
//   - the computed rows are those that Stats counts neither as cached nor as shared.
func TestRandomReuse(t *testing.T) {
	seeds := uint64(2)
	if longTests {
		seeds = 20
	}
	for name, c := range reuseCases() {
		for _, exact := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, exact %v", name, exact), func(t *testing.T) {
				if testing.Short() && c.sim {
					c.rounds /= 4
				}
				differ := 0
				for seed := range seeds {
					differ += c.random(t, exact, seed)
				}
				if !exact && c.expected && differ == 0 {
					t.Error(
						"no reuse of generated tokens has other logits than a new session, so this proves little")
				}
			})
		}
	}
}

// random returns the number of answers that differ from those of new sessions where the contract
// allows it.
func (c reuseCase) random(t *testing.T, exact bool, seed uint64) (differ int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 3))
	none := 0
	m, d := c.open(t, nil)
	apart, _ := c.open(t, &none)
	s, twin := m.NewSession(), apart.NewSession()
	defer func() {
		if err := errors.Join(s.Close(), twin.Close()); err != nil {
			t.Error(err)
		}
		checkIdle(t, m)
	}()
	random := func(n int) (ids []int32) {
		for range n {
			ids = append(ids, rng.Int32N(c.vocab))
		}
		return ids
	}
	base := random(c.most)
	open := !m.exec.fixed()
	var h holds
	asked, inStep := []int32{1}, true
	for round := range c.rounds {
		var ids []int32
		switch rng.IntN(8) {
		case 0, 1: // the next message
			ids = slices.Concat(h.ids, random(1+rng.IntN(40)))
		case 2, 3: // diverges within the cached ids
			if len(h.ids) > 2 {
				ids = slices.Concat(h.ids[:1+rng.IntN(len(h.ids)-1)], random(1+rng.IntN(60)))
			}
		case 4: // the same again
			ids = slices.Clone(asked)
		case 5: // a prefix of the cached ids
			if len(h.ids) > 2 {
				ids = slices.Clone(h.ids[:1+rng.IntN(len(h.ids)-1)])
			}
		case 6: // the same beginning as in other sessions
			ids = slices.Concat(base[:1+rng.IntN(len(base)-1)], random(rng.IntN(20)))
		}
		if len(ids) == 0 || len(ids) > c.most {
			ids = random(1 + rng.IntN(c.most-1))
		}
		switch rng.IntN(10) {
		case 0:
			if err := errors.Join(s.Forget(), twin.Forget()); err != nil {
				t.Fatal(err)
			}
			h.cut(0)
			inStep = true
		case 1: // ids that are stepped
			step := random(3)
			for _, id := range step {
				for _, s := range []*Session{s, twin} {
					if _, err := s.Step(context.Background(), id); err != nil {
						t.Fatal(err)
					}
				}
			}
			h.add(step, true)
		case 2: // another session
			other := m.NewSession()
			beside := slices.Concat(base[:1+rng.IntN(len(base)-1)], random(1))
			if _, err := speak(context.Background(), other, beside, 2, exact, nil); err != nil {
				t.Fatal(err)
			}
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if rng.IntN(3) == 0 { // a call that is cancelled before one of its submissions
			ctx, cancel := context.WithCancel(context.Background())
			d.submissions, d.cancel = 1+rng.IntN(12), cancel
			cut, err := speak(ctx, s, ids, c.tokens, exact, nil)
			cancel()
			d.submissions = 0
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			all := slices.Concat(ids, cut.ids)
			n := len(s.seq.ids)
			if !slices.Equal(s.seq.ids, all[:min(n, len(all))]) {
				t.Fatalf(
					"seed %d, round %d: after a cancelled call the session holds %d ids that are none of the prompt",
					seed, round, n)
			}
			h.cut(cut.stats.CachedTokens)
			for i := len(h.ids); i < n; i++ {
				h.add(all[i:i+1], i >= len(ids))
			}
			inStep = false                 // the other session holds more
			if rng.IntN(2) == 0 && n > 0 { // the next prompt ends where the pass was cancelled
				ids = slices.Clone(h.ids)
			}
		}

		common := common(h.ids, ids[:len(ids)-1])
		rows := 0
		d.rows = 0
		got, err := speak(context.Background(), s, ids, c.tokens, exact, func() { rows = d.rows })
		if err != nil {
			t.Fatal(err)
		}
		same, err := speak(context.Background(), twin, ids, c.tokens, exact, nil)
		if err != nil {
			t.Fatal(err)
		}
		fresh := apart.NewSession()
		want, err := speak(context.Background(), fresh, ids, c.tokens, exact, nil)
		if err := errors.Join(err, fresh.Close()); err != nil {
			t.Fatal(err)
		}
		stats := got.stats
		at := fmt.Sprintf("seed %d, round %d: prompt of %d, %d in common, cached %d, shared %d",
			seed, round, len(ids), common, stats.CachedTokens, stats.SharedTokens)
		promised := exact || open && !slices.Contains(h.generated[:common], true)
		switch equal := got.equal(want); {
		case !equal && promised:
			t.Fatalf("%s: %v with other logits than a new session's %v", at, got.ids, want.ids)
		case !equal:
			differ++
		}
		if inStep && !got.equal(same) {
			t.Fatalf("%s: %v with other logits than without other sessions %v", at, got.ids, same.ids)
		}
		if stats.PromptTokens != len(ids) || stats.CachedTokens > common ||
			stats.CachedTokens+stats.SharedTokens >= len(ids) ||
			want.stats.CachedTokens != 0 {
			t.Fatalf("%s: stats %+v, of a new session %+v", at, stats, want.stats)
		}
		if reused := stats.CachedTokens + stats.SharedTokens; open && rows != len(ids)-reused {
			t.Fatalf("%s: %d rows were computed before the first token, want %d", at, rows, len(ids)-reused)
		}
		h.cut(stats.CachedTokens)
		h.add(ids[stats.CachedTokens:], false)
		h.add(got.ids[:len(got.ids)-1], true)
		if !slices.Equal(h.ids, s.seq.ids) {
			t.Fatalf("%s: the session holds %d ids, want %d", at, len(s.seq.ids), len(h.ids))
		}
		asked = ids
	}
	return differ
}
