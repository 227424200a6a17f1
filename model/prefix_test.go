package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
)

// answer is a session's answer to a prompt, with the log probabilities of the whole vocabulary at
// each token.
type answer struct {
	top    [][]Alternative
	ids    []int32
	stats  Stats
	failed error
}

func ask(m *Model, s *Session, ids []int32) (a answer) {
	opts := &GenerateOptions{
		MaxTokens: 3,
		IgnoreEOS: true,
		Sampling:  &Sampling{},
		TopTokens: m.Plan().Model.Vocab,
		Stats:     &a.stats,
	}
	for tok, err := range s.Generate(context.Background(), IDs(ids), opts) {
		if err != nil {
			a.failed = err
			return a
		}
		a.ids, a.top = append(a.ids, tok.ID), append(a.top, tok.Top)
	}
	return a
}

func (a answer) equal(b answer) bool {
	return a.failed == nil && b.failed == nil && slices.Equal(a.ids, b.ids) &&
		slices.EqualFunc(a.top, b.top, slices.Equal)
}

// A prompt that starts like one of another session copies its keys and values, and has
// bit-identical logits to those without the copy.
func TestSharedPrefix(t *testing.T) {
	const chunk = 64
	apart, _ := probed(t, tiny("qwen3-qknorm"),
		&OpenOptions{PlanOptions: &plan.Options{Chunk: chunk}, PrefixBytes: new(int)})
	base := text(300, 3)
	for _, tc := range []struct {
		name   string
		donor  int         // ids of base that the other session has computed
		common int         // ids of base that the prompt begins with
		more   int         // ids after them
		shared map[int]int // by the rows that are few to the device: 16 with C, 4 without
	}{
		{"all of the other's", 100, 100, 60, map[int]int{16: 100, 4: 100}},
		// after 2 chunks, the second of which is cut at 100
		{"a last chunk of 12 rows", 100, 100, 40, map[int]int{16: 100, 4: 100}},
		{"a part of the other's", 200, 150, 60, map[int]int{16: 150, 4: 150}},
		{"the same prompt, whose last chunk has few rows", 260, 260, 0, map[int]int{16: 256, 4: 256}},
		// one row more than few is left
		{"the same prompt, whose last chunk has many", 220, 220, 0, map[int]int{16: 203, 4: 215}},
		{"another prompt", 100, 0, 80, map[int]int{16: 0, 4: 0}},
		{"hardly anything in common", 100, 12, 80, map[int]int{16: 0, 4: 0}},
		{"little is left", 100, 100, 3, map[int]int{16: 86, 4: 98}},
	} {
		for _, open := range []bool{true, false} {
			m, _ := probed(t, tiny("qwen3-qknorm"), &OpenOptions{PlanOptions: &plan.Options{Chunk: chunk}})
			prompt := slices.Concat(base[:tc.common], text(tc.more, 17))
			donor := m.NewSession()
			ask(m, donor, base[:tc.donor])
			if !open {
				donor.Close()
			}
			s, plain := m.NewSession(), apart.NewSession()
			got, want := ask(m, s, prompt), ask(apart, plain, prompt)
			if !got.equal(want) {
				t.Errorf("%s: other logits than without a prefix (%v)", tc.name, got.failed)
			}
			shared, known := tc.shared[m.dev.Info().FewRows]
			if !known {
				t.Fatalf("%d rows are few to the device: the table does not know", m.dev.Info().FewRows)
			}
			if got.stats.SharedTokens != shared || got.stats.CachedTokens != 0 ||
				want.stats.SharedTokens != 0 {
				t.Errorf("%s: %d tokens were shared, want %d", tc.name, got.stats.SharedTokens, shared)
			}
			// The next prompt of a conversation finds the first in its own cache. It copies nothing
			// after the decoded ids, although another session has computed all of it as a prompt.
			next := slices.Concat(prompt, got.ids, text(60, 9))
			other := m.NewSession()
			ask(m, other, slices.Concat(next, text(30, 41)))
			got, want = ask(m, s, next), ask(apart, plain, next)
			if !got.equal(want) || got.stats.CachedTokens != want.stats.CachedTokens ||
				got.stats.SharedTokens != 0 {
				t.Errorf("%s: the second turn differs: %+v and %+v", tc.name, got.stats, want.stats)
			}
			if err := errors.Join(other.Close(), s.Close(), plain.Close(), donor.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// Decoded positions differ in bits from those of a prompt and are not shared. A session shares
// nothing after Forget.
func TestNotShared(t *testing.T) {
	m, _ := probed(t, tiny("qwen3-qknorm"), nil)
	donor, s := m.NewSession(), m.NewSession()
	defer donor.Close()
	defer s.Close()
	said := ask(m, donor, text(100, 3))
	prompt := slices.Concat(text(100, 3), said.ids, text(60, 5))
	if got := ask(m, s, prompt); got.stats.SharedTokens != 100 {
		t.Errorf("%d tokens were shared, want the 100 of the prompt", got.stats.SharedTokens)
	}
	if err := s.Forget(); err != nil {
		t.Error(err)
	}
	if got := ask(m, s, prompt); got.stats.SharedTokens != 0 || got.stats.CachedTokens != 0 {
		t.Errorf("after Forget: %+v", got.stats)
	}
}

// A cancelled prompt shares only its complete chunks.
func TestCancelledPromptsAreNoPrefix(t *testing.T) {
	const chunk = 32
	m, p := probed(t, tiny("llama-tied-rope-scaled"),
		&OpenOptions{PlanOptions: &plan.Options{Chunk: chunk}})
	apart, _ := probed(t, tiny("llama-tied-rope-scaled"),
		&OpenOptions{PlanOptions: &plan.Options{Chunk: chunk}, PrefixBytes: new(int)})
	ids := text(10*chunk-3, 3)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	passes := 0
	p.before = func(context.Context, []npu.Run) error {
		if passes++; passes == 4 {
			cancel()
		}
		return nil
	}
	donor, s, plain := m.NewSession(), m.NewSession(), apart.NewSession()
	defer donor.Close()
	defer s.Close()
	defer plain.Close()
	for _, err := range donor.Generate(ctx, IDs(ids), nil) {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	got, want := ask(m, s, ids), ask(apart, plain, ids)
	if got.stats.SharedTokens != 3*chunk || !got.equal(want) {
		t.Errorf("%d tokens of three chunks and a cancelled one were shared, or the logits differ",
			got.stats.SharedTokens)
	}
}

// The prefix cache stays within its limit: the sequences closed first are evicted, and those that
// another contains.
func TestPrefixCacheLimit(t *testing.T) {
	m, _ := probed(t, tiny("smollm-mha"), nil)
	closed := func(ids []int32) {
		s := m.NewSession()
		ask(m, s, ids)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	shared := func(ids []int32) int {
		s := m.NewSession()
		defer s.Close()
		return ask(m, s, slices.Concat(ids, text(50, 77))).stats.SharedTokens
	}
	closed(text(60, 3))
	one := m.prefixes.bytes
	m.prefixes.limit = 2*one + one/2 // two caches
	closed(text(60, 3))              // the same again: one is enough
	closed(text(90, 3))
	if len(m.prefixes.cached) != 1 || m.prefixes.bytes != one {
		t.Errorf("%d caches of %d bytes are kept for texts that begin each other, want one of %d",
			len(m.prefixes.cached), m.prefixes.bytes, one)
	}
	closed(text(60, 5))
	closed(text(60, 7))
	if len(m.prefixes.cached) != 2 || m.prefixes.bytes != 2*one {
		t.Errorf("%d caches of %d bytes are kept, want 2 of %d", len(m.prefixes.cached),
			m.prefixes.bytes, one)
	}
	// The check itself must not cache sequences with the same prefix, so the limit is 1 meanwhile.
	limit := m.prefixes.limit
	for seed, want := range map[int32]int{3: 0, 5: 60, 7: 60} {
		s := m.NewSession()
		got := ask(m, s, slices.Concat(text(60, seed), text(50, 77))).stats.SharedTokens
		m.prefixes.limit = 1
		s.Close()
		m.prefixes.limit = limit
		if got != want {
			t.Errorf("text %d: %d tokens were shared, want %d", seed, got, want)
		}
	}
	m.prefixes.limit = one - 1
	closed(text(60, 9))
	if got := shared(text(60, 9)); got != 0 {
		t.Errorf("a cache larger than the limit was kept: %d tokens were shared", got)
	}
	if !m.prefixes.evict() || m.prefixes.bytes != 0 || m.prefixes.evict() {
		t.Error("dropping all does not leave nothing")
	}
}

// Sessions may copy from a session while it computes, and while it is closed.
func TestSharingWithSessionsAtWork(t *testing.T) {
	m, _ := probed(t, tiny("llama-tied-rope-scaled"), &OpenOptions{PlanOptions: &plan.Options{Chunk: 32}})
	apart, _ := probed(t, tiny("llama-tied-rope-scaled"),
		&OpenOptions{PlanOptions: &plan.Options{Chunk: 32}, PrefixBytes: new(int)})
	base := text(400, 3)
	var prompts [][]int32
	var want []answer
	for i := range 6 {
		prompts = append(prompts, slices.Concat(base[:60*(i+1)], text(40, int32(20+i))))
		s := apart.NewSession()
		want = append(want, ask(apart, s, prompts[i]))
		s.Close()
	}
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for round := range 6 {
				k := (i + round) % len(prompts)
				s := m.NewSession()
				if got := ask(m, s, prompts[k]); !got.equal(want[k]) {
					t.Errorf("prompt %d has other logits beside others (%v), %d tokens were shared",
						k, got.failed, got.stats.SharedTokens)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// slow is a buffer whose Close blocks, as a device's does during a pass.
type slow struct {
	npu.Buffer
	closing chan<- struct{}
	free    <-chan struct{}
}

func (b slow) Len() int { return 1 }

func (b slow) Close() error {
	b.closing <- struct{}{}
	<-b.free
	return nil
}

// While buffers of closed sessions wait to be closed, other sessions find prefixes, register and
// close.
func TestClosingDoesNotBlockOthers(t *testing.T) {
	closing, free := make(chan struct{}), make(chan struct{})
	held := func(ids []int32) *sequence {
		return &sequence{
			ids:    ids,
			origin: origin{large: len(ids)},
			cache:  &cache{buffers: map[string]npu.Buffer{"k": slow{closing: closing, free: free}}},
		}
	}
	for name, end := range map[string]func(p *prefixes) error{
		"release": func(p *prefixes) error { return p.release(held(text(30, 7))) }, // there is room for one
		"evict":   func(p *prefixes) error { p.evict(); return nil },
		"close":   (*prefixes).close,
	} {
		p := &prefixes{limit: 1, open: map[*sequence]bool{}}
		if err := p.release(held(text(20, 3))); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- end(p) }()
		<-closing
		at := held(text(40, 3))
		p.register(at)
		length := func(s *sequence) int { return common(s.ids, text(40, 3)) }
		if c, n := p.longest(length, nil); c != at || n != 40 {
			t.Errorf("%s: %d tokens of an open session were found, want 40", name, n)
		}
		free <- struct{}{}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// refusing is a device that refuses an allocation once, with a given error.
type refusing struct {
	npu.Device
	reason error
}

func (d *refusing) Alloc(ctx context.Context, bytes int) (npu.Buffer, error) {
	if err := d.reason; err != nil {
		d.reason = nil
		return nil, err
	}
	return d.Device.Alloc(ctx, bytes)
}

// The prefix cache is evicted if a device is out of memory, and for no other error.
func TestPrefixEviction(t *testing.T) {
	dev, err := cpu.Open(&cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	d := &refusing{Device: dev}
	m, err := Open(context.Background(), d, tiny("smollm-mha"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, tc := range []struct {
		reason error
		kept   int
	}{{npu.ErrClosed, 1}, {npu.ErrMemory, 0}, {syscall.ENOMEM, 0}} {
		donor, s := m.NewSession(), m.NewSession()
		ask(m, donor, text(60, 3))
		if err := donor.Close(); err != nil {
			t.Error(err)
		}
		d.reason = fmt.Errorf("no buffer: %w", tc.reason)
		got := ask(m, s, text(20, 5))
		if kept := len(m.prefixes.cached); kept != tc.kept || (got.failed == nil) != (kept == 0) ||
			got.failed != nil && !errors.Is(got.failed, tc.reason) {
			t.Errorf("%v: %d caches are kept, want %d; the session got %v", tc.reason, kept,
				tc.kept, got.failed)
		}
		m.prefixes.limit = 0 // s leaves nothing
		s.Close()
		m.prefixes.limit = defaultPrefixBytes
	}
}
