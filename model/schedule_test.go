package model

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/sim"
)

// probe is a device that passes its submissions to a function before it runs them.
type probe struct {
	npu.Device
	before func(ctx context.Context, runs []npu.Run) error
}

func (p *probe) Submit(ctx context.Context, runs []npu.Run) error {
	if p.before != nil {
		if err := p.before(ctx, runs); err != nil {
			return err
		}
	}
	return p.Device.Submit(ctx, runs)
}

// Host returns the host of a virtual device, or the device itself if it has none.
func (p *probe) Host() npu.Device {
	if host := npu.HostOf(p.Device); host != p.Device {
		return host
	}
	return p
}

// probed opens a model on a probe around the software device.
func probed(t *testing.T, path string, opts *OpenOptions) (*Model, *probe) {
	t.Helper()
	return probedOn(t, path, "", opts)
}

// probedOn is probed with the given kernels.
func probedOn(t *testing.T, path, kernels string, opts *OpenOptions) (*Model, *probe) {
	t.Helper()
	dev, err := cpu.Open(&cpu.Options{Threads: 2, Kernels: kernels})
	if err != nil {
		t.Skip(err) // this machine cannot execute them
	}
	p := &probe{Device: dev}
	m, err := Open(context.Background(), p, path, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Close()
		dev.Close()
	})
	return m, p
}

// queued returns the number of queued jobs.
func queued(m *Model) int {
	m.exec.queue.mu.Lock()
	defer m.exec.queue.mu.Unlock()
	return len(m.exec.queue.queue)
}

// until waits for a condition that another goroutine makes true.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Errorf("waiting for %s", what)
			return
		}
	}
}

// segments returns the rows of each session in a submission.
func segments(runs []npu.Run) (rows []int) {
	for _, r := range runs {
		if len(r.Segments) > 0 && len(r.Segments[0].State) > 0 {
			for _, s := range r.Segments {
				rows = append(rows, s.Rows)
			}
			return rows
		}
	}
	return nil
}

// crowd is some sessions behind a probe, which blocks the first submission until all other sessions
// have submitted.
type crowd struct {
	m        *Model
	sessions []*Session
	passes   [][]int       // segments of each submission
	held     chan struct{} // closed when the first submission has begun
	free     chan struct{} // to be closed to let it go on
}

func newCrowd(t *testing.T, n int) *crowd {
	return newCrowdOn(t, tiny("llama-tied-rope-scaled"), "", n)
}

func newCrowdOn(t *testing.T, path, kernels string, n int) *crowd {
	t.Helper()
	c := &crowd{held: make(chan struct{}), free: make(chan struct{})}
	var p *probe
	c.m, p = probedOn(t, path, kernels, nil)
	for i := range n {
		c.sessions = append(c.sessions, c.m.NewSession())
		// Each sequence has another length.
		if _, err := c.sessions[i].Step(context.Background(), int32(i)); err != nil {
			t.Fatal(err)
		}
		for j := range i {
			if _, err := c.sessions[i].Step(context.Background(), int32(5*i+j)); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.before = func(_ context.Context, runs []npu.Run) error {
		c.passes = append(c.passes, segments(runs))
		if len(c.passes) == 1 {
			close(c.held)
			<-c.free
		}
		return nil
	}
	return c
}

func (c *crowd) close(t *testing.T) {
	t.Helper()
	for _, s := range c.sessions {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// stepAll steps every session, with the first on the device while the others submit, and returns
// the results.
func (c *crowd) stepAll(t *testing.T, ctx func(i int) context.Context, id func(i int) int32,
) (logits [][]float32, errs []error) {
	t.Helper()
	logits, errs = make([][]float32, len(c.sessions)), make([]error, len(c.sessions))
	var all sync.WaitGroup
	step := func(i int) {
		row, err := c.sessions[i].Step(ctx(i), id(i))
		logits[i], errs[i] = slices.Clone(row), err
	}
	all.Go(func() { step(0) })
	<-c.held
	for i := 1; i < len(c.sessions); i++ {
		all.Go(func() { step(i) })
	}
	until(t, "the others", func() bool { return queued(c.m) == len(c.sessions)-1 })
	close(c.free)
	all.Wait()
	return logits, errs
}

func background(int) context.Context { return context.Background() }

func seven(i int) int32 { return int32(7 + i) }

// alone returns the result of the i-th session of a crowd without other sessions.
func alone(t *testing.T, i int) []float32 {
	t.Helper()
	return aloneOn(t, tiny("llama-tied-rope-scaled"), "", i)
}

func aloneOn(t *testing.T, path, kernels string, i int) []float32 {
	t.Helper()
	c := newCrowdOn(t, path, kernels, i+1)
	close(c.free)
	defer c.close(t)
	row, err := c.sessions[i].Step(context.Background(), seven(i))
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(row)
}

// Queued steps share a pass, up to the device's limit for small passes, and each session's logits
// are bit-identical to those of a session alone: with all kernels, for weights in F32, BF16 and
// blocks.
func TestStepsGoTogether(t *testing.T) {
	bf16 := t.TempDir()
	spec := ckptgen.Spec{
		Family:  "llama",
		Layers:  2,
		Hidden:  192,
		Heads:   6,
		KVHeads: 2,
		HeadDim: 32,
		FFN:     500,
		Vocab:   701,
		Context: 512,
	}
	if err := ckptgen.Write(bf16, spec, 1); err != nil {
		t.Fatal(err)
	}
	check := func(path func(t *testing.T) string, kernels string, n int) func(t *testing.T) {
		return func(t *testing.T) {
			path := path(t)
			c := newCrowdOn(t, path, kernels, n)
			defer c.close(t)
			logits, errs := c.stepAll(t, background, seven)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			few := c.m.exec.queue.small
			if want := 1 + (n-1+few-1)/few; len(c.passes) != want || len(c.passes[1]) != min(few, n-1) {
				t.Errorf("passes with segments %v, want one of 1 and %d of %d", c.passes, want-1, n-1)
			}
			for i := range n {
				if !slices.Equal(logits[i], aloneOn(t, path, kernels, i)) {
					t.Errorf("session %d has other logits beside others than alone", i)
				}
			}
		}
	}
	for _, kernels := range cpu.KernelNames() {
		t.Run("F32 "+kernels, check(func(*testing.T) string { return tiny("smollm-mha") }, kernels, 7))
		t.Run("BF16 "+kernels, check(func(*testing.T) string { return bf16 }, kernels, 7))
	}
	t.Run("Q4_1", check(func(t *testing.T) string {
		if testing.Short() {
			t.Skip("opens a real model some times")
		}
		return testenv.DemoModel(t)
	}, "", 4))
}

// An invalid token, or the end of the context, is an error only for its own session.
func TestOneOfABatch(t *testing.T) {
	const n, bad, gone = 5, 2, 3
	c := newCrowd(t, n)
	defer c.close(t)
	if _, err := c.sessions[bad].Step(context.Background(), 1<<20); err == nil {
		t.Error("an id beyond the vocabulary was taken")
	}
	if _, err := c.sessions[bad].Step(context.Background(), -1); err == nil {
		t.Error("a negative id was taken")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	device := c.m.dev.(*probe)
	hold := device.before
	left := make(chan struct{})
	device.before = func(ctx context.Context, runs []npu.Run) error {
		err := hold(ctx, runs)
		if len(c.passes) == 2 { // the batch is on the device: one leaves
			cancel()
			<-left
			if ctx.Err() != nil {
				t.Error("the pass ends because one session has left it")
			}
		}
		return err
	}
	logits, errs := c.stepAll(t, func(i int) context.Context {
		if i != gone {
			return context.Background()
		}
		context.AfterFunc(ctx, func() {
			// Its Step returns while the pass still runs: a second Step can start.
			until(t, "the session that leaves", func() bool {
				free := c.sessions[gone].busy.TryLock()
				if free {
					c.sessions[gone].busy.Unlock()
				}
				return free
			})
			close(left)
		})
		return ctx
	}, seven)
	for i, err := range errs {
		if i == gone {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("the session that left: %v", err)
			}
		} else if err != nil || !slices.Equal(logits[i], alone(t, i)) {
			t.Errorf("session %d beside one that left: %v, or other logits", i, err)
		}
	}
	// It continues as if it had not tried.
	if row, err := c.sessions[gone].Step(context.Background(), seven(gone)); err != nil ||
		!slices.Equal(row, alone(t, gone)) {
		t.Errorf("after leaving: %v, or other logits", err)
	}
}

// Sessions with a common tracer report a shared pass once.
func TestTraceOfABatch(t *testing.T) {
	c := newCrowd(t, 4)
	defer c.close(t)
	var spans atomic.Int32
	ctx := npu.WithTracer(context.Background(), func(s npu.Span) {
		if s.Category == "program" && s.Name == "embed" {
			spans.Add(1)
		}
	})
	_, errs := c.stepAll(t, func(int) context.Context { return ctx }, seven)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if got := spans.Load(); len(c.passes) != 2 || got != 2 {
		t.Errorf("%d spans of one name in %d passes, want 2 in 2", got, len(c.passes))
	}
}

// A pass is cancelled when all its clients have abandoned it.
func TestAbandonedBatch(t *testing.T) {
	const n = 4
	c := newCrowd(t, n)
	defer c.close(t)
	device := c.m.dev.(*probe)
	hold := device.before
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	device.before = func(passCtx context.Context, runs []npu.Run) error {
		err := hold(passCtx, runs)
		if len(c.passes) == 2 {
			cancel()
			select {
			case <-passCtx.Done():
			case <-time.After(time.Minute):
				t.Error("the pass goes on, and nobody wants it")
			}
		}
		return err
	}
	_, errs := c.stepAll(t, func(i int) context.Context {
		if i == 0 {
			return context.Background()
		}
		return ctx
	}, seven)
	for i, err := range errs {
		if i > 0 && !errors.Is(err, context.Canceled) || i == 0 && err != nil {
			t.Errorf("session %d: %v", i, err)
		}
	}
}

// A device error fails the sessions of the pass, and no others. They continue when the device has
// recovered.
func TestDeviceErrorOfABatch(t *testing.T) {
	const n = 4
	c := newCrowd(t, n)
	defer c.close(t)
	device := c.m.dev.(*probe)
	hold := device.before
	device.before = func(ctx context.Context, runs []npu.Run) error {
		if err := hold(ctx, runs); err != nil || len(c.passes) != 2 {
			return err
		}
		return npu.ErrDeviceLost
	}
	_, errs := c.stepAll(t, background, seven)
	for i, err := range errs {
		if i == 0 && err != nil || i > 0 && !errors.Is(err, npu.ErrDeviceLost) {
			t.Errorf("session %d: %v", i, err)
		}
	}
	for i := 1; i < n; i++ {
		if row, err := c.sessions[i].Step(context.Background(), seven(i)); err != nil ||
			!slices.Equal(row, alone(t, i)) {
			t.Errorf("session %d after the failure: %v, or other logits", i, err)
		}
	}
}

// crowded runs work, each in its own goroutine. Every pass is blocked until all unfinished work
// outside it waits for the next pass. note gets each pass first.
func crowded(t *testing.T, m *Model, p *probe, note func(b *batch, runs []npu.Run), work ...func()) {
	t.Helper()
	var live atomic.Int64
	live.Store(int64(len(work)))
	q := m.exec.queue
	var last *batch
	p.before = func(_ context.Context, runs []npu.Run) error {
		q.mu.Lock()
		b := q.running
		q.mu.Unlock()
		if b == last {
			return nil // another submission of the pass
		}
		last = b
		note(b, runs)
		until(t, "all others to wait", func() bool { return queued(m) >= int(live.Load())-len(b.jobs) })
		return nil
	}
	var all sync.WaitGroup
	for _, w := range work {
		all.Go(func() {
			defer live.Add(-1)
			w()
		})
	}
	all.Wait()
	p.before = nil
}

// speakers are sessions with prompts, whose answers must not depend on the other sessions.
type speakers struct {
	m       *Model
	prompts [][]int32
	tokens  []int
	want    [][]int32
}

func (s *speakers) work(t *testing.T) (list []func()) {
	t.Helper()
	speak := func(i int) []int32 {
		session := s.m.NewSession()
		defer session.Close()
		return generate(t, session, s.prompts[i],
			&GenerateOptions{MaxTokens: s.tokens[i], IgnoreEOS: true, Sampling: &Sampling{}})
	}
	for i := range s.prompts {
		s.want = append(s.want, speak(i))
		list = append(list, func() {
			if got := speak(i); !slices.Equal(got, s.want[i]) {
				t.Errorf("session %d says %v beside others and %v alone", i, got, s.want[i])
			}
		})
	}
	return list
}

// text returns some ids, the same ones for a seed.
func text(n int, seed int32) (ids []int32) {
	for i := range int32(n) {
		ids = append(ids, (i*i*seed+7*i+seed)%250)
	}
	return ids
}

// Prompts of many chunks delay decoding sessions by one chunk between two of their tokens, however
// many such prompts there are. All make progress, and their answers are those of sessions alone.
func TestPromptsDelayOthersByOneChunk(t *testing.T) {
	m, p := probed(t, tiny("qwen2-bias"),
		&OpenOptions{PlanOptions: &plan.Options{Chunk: 64}, PrefixBytes: new(int)})
	s := &speakers{m: m,
		prompts: [][]int32{text(20*64, 3), text(20*64, 5), {1, 2}, {3}, {4, 5, 6}},
		tokens:  []int{1, 1, 30, 30, 30},
	}
	work := s.work(t)
	var passes [][]int
	crowded(t, m, p, func(_ *batch, runs []npu.Run) { passes = append(passes, segments(runs)) }, work...)
	chunk := func(rows []int) bool { return rows[0] > m.exec.queue.small }
	first := slices.IndexFunc(passes, func(rows []int) bool { return !chunk(rows) })
	last := len(passes) - 1
	for chunk(passes[last]) {
		last--
	}
	together := 0
	for i, rows := range passes[first:last] {
		if i > 0 && chunk(rows) && chunk(passes[first+i-1]) {
			t.Errorf("passes %d and %d are chunks, and others wait to decode", first+i-1, first+i)
		}
		if len(rows) == 3 && !chunk(rows) {
			together++
		}
	}
	if together < 20 {
		t.Errorf("three sessions decode 30 tokens each, and %d passes had a row of each", together)
	}
}

// With programs of fixed rows, waiting sessions finish a phase together, so that its programs stay
// loaded, but for a bounded number of passes.
func TestSessionsFinishAPhaseTogether(t *testing.T) {
	dir := t.TempDir()
	spec := ckptgen.Spec{
		Family:  "llama",
		Layers:  1,
		Hidden:  256,
		Heads:   4,
		KVHeads: 2,
		HeadDim: 64,
		FFN:     512,
		Vocab:   600,
		Context: 512,
		Tie:     true,
	}
	if err := ckptgen.Write(dir, spec, 1); err != nil {
		t.Fatal(err)
	}
	dev, err := sim.Open(&sim.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	p := &probe{Device: dev}
	m, err := Open(context.Background(), p, dir, &OpenOptions{PlanOptions: &plan.Options{Chunk: 64}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	// a plan without costs prefills every prompt, also of a model as small as this
	m.plan.Decode.Cost = 0
	const prompts, tokens = 8, 50
	s := &speakers{m: m, prompts: [][]int32{{1}, {2}, {3}}, tokens: []int{tokens, tokens, tokens}}
	work := s.work(t)
	for i := range int32(3) {
		work = append(work, func() {
			for j := range int32(prompts) {
				session := m.NewSession()
				generate(t, session, text(40, 8*i+j), &GenerateOptions{MaxTokens: 1, IgnoreEOS: true})
				session.Close()
			}
		})
	}
	var phases []int // rows of each pass
	crowded(t, m, p, func(b *batch, _ []npu.Run) { phases = append(phases, b.jobs[0].pass.Rows) }, work...)
	prefills := 0
	for _, rows := range phases {
		if rows > 1 {
			prefills++
		}
	}
	if prefills != 3*prompts || len(phases) != 3*(prompts+tokens) {
		t.Fatalf("%d passes, of them %d prefills; want %d and %d", len(phases), prefills,
			3*(prompts+tokens), 3*prompts)
	}
	switches, row := 0, 0
	done := map[bool]int{}
	for i, rows := range phases {
		if i > 0 && rows != phases[i-1] {
			switches++
			row = 0
		}
		row++
		prefill := rows > 1
		done[prefill]++
		limit, others := maxDecodes, prefills-done[true]
		if prefill {
			limit, others = maxPrefills, len(phases)-prefills-done[false]
		}
		if row > limit &&
			others >= 3 { // when fewer are left the last ones may not be there yet, or not any more
			t.Errorf("pass %d is the %dth of %d rows in a row, and others wait", i, row, rows)
		}
	}
	// Strict alternation would switch about 2*24 times, because each prefill runs next to decoding
	// sessions.
	if most := 2 * (prefills/maxPrefills + 2); switches > most {
		t.Errorf("%d changes between prefill and decoding, want at most %d: %v", switches, most, phases)
	}
}

// A caller that looks at a token for long, or uses another session meanwhile, does not block
// others.
func TestCallersDoNotBlockOthers(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	a, b := m.NewSession(), m.NewSession()
	defer a.Close()
	defer b.Close()
	n := 0
	for _, err := range a.Generate(context.Background(), IDs([]int32{1, 2, 3}),
		&GenerateOptions{MaxTokens: 3, IgnoreEOS: true}) {
		if err != nil {
			t.Fatal(err)
		}
		n += len(generate(t, b, []int32{5}, &GenerateOptions{MaxTokens: 2, IgnoreEOS: true}))
	}
	if n != 6 {
		t.Errorf("%d tokens meanwhile, want 6", n)
	}
}

// Many sessions that are opened, closed, cancelled and abandoned do not affect each other. Closing
// the model ends them.
func TestManySessions(t *testing.T) {
	m, _ := probed(t, tiny("llama-tied-rope-scaled"), &OpenOptions{PlanOptions: &plan.Options{Chunk: 32}})
	prompts := [][]int32{text(100, 3), {1, 2, 3}, text(70, 3), text(40, 11), {9}, text(5, 4)}
	opts := &GenerateOptions{MaxTokens: 12, IgnoreEOS: true, Sampling: &Sampling{}}
	var want [][]int32
	for _, ids := range prompts {
		s := m.NewSession()
		if err := s.Forget(); err != nil {
			t.Fatal(err)
		}
		want = append(want, generate(t, s, ids, opts))
		s.Close()
	}
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			s := m.NewSession()
			for range 12 {
				k := rng.IntN(len(prompts))
				ctx, cancel := context.WithCancel(context.Background())
				stop := rng.IntN(30) // often beyond the end
				if rng.IntN(3) == 0 {
					time.AfterFunc(time.Duration(rng.IntN(3000))*time.Microsecond, cancel)
				}
				var got []int32
				for tok, err := range s.Generate(ctx, IDs(prompts[k]), opts) {
					if err != nil {
						if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						break
					}
					got = append(got, tok.ID)
					if len(got) == stop {
						break
					}
				}
				cancel()
				if len(got) > len(want[k]) || !slices.Equal(got, want[k][:len(got)]) {
					t.Errorf("prompt %d: %v, want %v", k, got, want[k])
				}
				if rng.IntN(2) == 0 {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
					s = m.NewSession()
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	checkIdle(t, m)
	begun := make(chan struct{}, 8)
	for i := range 8 {
		all.Go(func() {
			s := m.NewSession()
			defer s.Close()
			n := 0
			for _, err := range s.Generate(context.Background(), IDs(prompts[i%len(prompts)]),
				&GenerateOptions{IgnoreEOS: true}) {
				if n++; n == 2 {
					begun <- struct{}{}
				}
				if err != nil && !errors.Is(err, ErrClosed) {
					t.Errorf("a session of a model that is closed: %v", err)
				}
			}
		})
	}
	for range 8 {
		<-begun
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
}
