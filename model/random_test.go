package model

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/sim"
)

// longTests makes the random tests take minutes.
var longTests = os.Getenv("NPUKIT_LONG") != ""

// Every method that computes lets other sessions run when it returns, and when it calls its caller.
func TestMethodsDoNotBlockOthers(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	other := func() error {
		b := m.NewSession()
		_, err := b.Step(ctx, 1)
		return errors.Join(err, b.Close())
	}
	failing := errors.New("emit")
	for name, use := range map[string]func(s *Session) error{
		"Score without emit": func(s *Session) error { return s.Score(ctx, []int32{1, 2, 3}, nil) },
		"Score": func(s *Session) error {
			return s.Score(ctx, text(100, 3), func(int, []float32) error { return nil })
		},
		"Score that others interrupt": func(s *Session) error {
			return s.Score(ctx, []int32{1, 2, 3}, func(int, []float32) error { return other() })
		},
		"Score with an emit that fails": func(s *Session) error {
			if err := s.Score(ctx, []int32{1, 2, 3}, func(int, []float32) error { return failing }); err != failing {
				return err
			}
			return nil
		},
		"Step": func(s *Session) error {
			_, err := s.Step(ctx, 1)
			return err
		},
		"Step that is refused": func(s *Session) error {
			_, _ = s.Step(ctx, 1)
			if _, err := s.Step(ctx, -1); err == nil {
				return errors.New("an id that is none was taken")
			}
			return nil
		},
		"Step that is cancelled": func(s *Session) error {
			_, _ = s.Step(ctx, 1)
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := s.Step(ended, 1); !errors.Is(err, context.Canceled) {
				return err
			}
			return nil
		},
		"Generate": func(s *Session) error {
			for _, err := range s.Generate(ctx, IDs([]int32{1, 2}),
				&GenerateOptions{MaxTokens: 3, IgnoreEOS: true}) {
				if err := errors.Join(err, other()); err != nil {
					return err
				}
			}
			return nil
		},
		"Generate that is left": func(s *Session) error {
			for range s.Generate(ctx, IDs([]int32{1, 2}), nil) {
				break
			}
			return nil
		},
		"Forget": func(s *Session) error { return s.Forget() },
	} {
		s := m.NewSession()
		if err := use(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := other(); err != nil {
			t.Errorf("another session after %s: %v", name, err)
		}
		checkIdle(t, m)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A panic in a caller's callback, or in a tap during a pass, reaches the caller of the method and
// does not block other sessions.
func TestPanicsDoNotBlockOthers(t *testing.T) {
	dev, err := cpu.Open(&cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	var broken atomic.Bool
	m, err := Open(
		context.Background(),
		dev,
		tiny("smollm-mha"),
		&OpenOptions{Tap: func(string, []int, []float32) error {
			if broken.Load() {
				panic("tap")
			}
			return nil
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	s := m.NewSession()
	for name, use := range map[string]func(){
		"emit": func() { s.Score(context.Background(), []int32{1}, func(int, []float32) error { panic("emit") }) },
		"loop": func() {
			for range s.Generate(context.Background(), IDs([]int32{1}), nil) {
				panic("loop")
			}
		},
		"tap": func() {
			broken.Store(true)
			defer broken.Store(false)
			s.Step(context.Background(), 1)
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a panic in a %s is lost", name)
				}
			}()
			use()
		}()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if _, err := s.Step(ctx, 1); err != nil {
			t.Errorf("Step after a panic in a %s: %v", name, err)
		}
		cancel()
		checkIdle(t, m)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// randomModel opens a small model for random calls. If fixed is set, the plan has NPU programs,
// which the software device runs as well.
func randomModel(t *testing.T, fixed bool) *Model {
	t.Helper()
	if fixed {
		dir := t.TempDir()
		spec := ckptgen.Spec{Family: "llama", Layers: 1, Hidden: 128, Heads: 4, KVHeads: 4, HeadDim: 64,
			FFN: 256, Vocab: 600, Context: 512, Tie: true}
		if err := ckptgen.Write(dir, spec, 2); err != nil {
			t.Fatal(err)
		}
		return npuModel(t, dir, &plan.NPUOptions{Lengths: []int{64}})
	}
	m, _ := probed(t, tiny("llama-tied-rope-scaled"), &OpenOptions{PlanOptions: &plan.Options{Chunk: 64}})
	return m
}

// Concurrent sessions that make random calls, and are cancelled and closed at random, leave nothing
// behind, and their results are bit-identical to those of a new session. The scheduler's invariants
// are checked at every return (TestMain).
func TestRandomSessions(t *testing.T) {
	for name, fixed := range map[string]bool{"any rows": false, "fixed rows": true} {
		t.Run(name, func(t *testing.T) {
			m := randomModel(t, fixed)
			var prompts [][]int32
			var want []spoken
			base := text(140, 3)
			tokens := 12
			if fixed {
				base, tokens = base[:70], 4
			}
			for i := range 10 {
				prompts = append(prompts, slices.Concat(base[:i*len(base)/10], text(1+3*i, int32(5+i%3))))
				s := m.NewSession()
				if err := s.Forget(); err != nil { // takes nothing from others
					t.Fatal(err)
				}
				a, err := speak(context.Background(), s, prompts[i], tokens, true, nil)
				if err := errors.Join(err, s.Close()); err != nil {
					t.Fatal(err)
				}
				want = append(want, a)
			}
			before := invariantChecks.Load()
			steps := 60
			if longTests {
				steps = 6000
			}
			if fixed {
				steps /= 4 // they take longer
			}
			var all sync.WaitGroup
			var done, cancelled, closed, wrong atomic.Int64
			for w := range 8 {
				all.Go(func() {
					c := chaos{
						m:       m,
						prompts: prompts,
						want:    want,
						tokens:  tokens,
						rng:     rand.New(rand.NewPCG(uint64(w), 7)),
					}
					c.s = m.NewSession()
					for range steps {
						if wrong.Load() > 0 {
							break
						}
						if c.rng.IntN(10) == 0 {
							if err := c.s.Close(); err != nil {
								t.Error(err)
							}
							c.s = m.NewSession()
							closed.Add(1)
						}
						switch ok, err := c.step(); {
						case !ok:
							wrong.Add(1)
							t.Errorf("other logits than a new session's")
						case err == nil:
							done.Add(1)
						case errors.Is(err, context.Canceled):
							cancelled.Add(1)
						default:
							t.Error(err)
						}
					}
					if err := c.s.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			waitFor(t, &all)
			checkIdle(t, m)
			t.Logf("%d calls done, %d cancelled, %d sessions closed, %d checks", done.Load(),
				cancelled.Load(), closed.Load(), invariantChecks.Load()-before)
			if done.Load() == 0 || cancelled.Load() == 0 || closed.Load() == 0 {
				t.Error("not everything was tried")
			}
		})
	}
}

// waitFor fails, with all stacks, if goroutines do not end, for example because one waits for a
// pass that does not start.
func waitFor(t *testing.T, all *sync.WaitGroup) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	limit := 3 * time.Minute
	if longTests {
		limit *= 20
	}
	select {
	case <-done:
	case <-time.After(limit):
		stacks := make([]byte, 1<<20)
		t.Fatalf("sessions hang\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}

// chaos is a session with random calls.
type chaos struct {
	m       *Model
	s       *Session
	prompts [][]int32
	want    []spoken
	tokens  int
	rng     *rand.Rand
}

// step makes one call. It reports whether the result is right.
func (c *chaos) step() (ok bool, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.rng.IntN(2) == 0 {
		time.AfterFunc(time.Duration(c.rng.IntN(20000))*time.Microsecond, cancel)
	}
	k := c.rng.IntN(len(c.prompts))
	switch c.rng.IntN(10) {
	case 0:
		emit := func(int, []float32) error { return nil }
		if c.rng.IntN(2) == 0 {
			emit = nil
		}
		return true, c.s.Score(ctx, c.prompts[k], emit)
	case 1:
		_, err := c.s.Step(ctx, 3)
		return true, err
	case 2:
		return true, c.s.Forget()
	case 3: // an answer of which some is read
		n, most := 0, c.rng.IntN(c.tokens)
		for _, err := range c.s.Generate(ctx, IDs(c.prompts[k]),
			&GenerateOptions{MaxTokens: c.tokens, IgnoreEOS: true}) {
			if err != nil {
				return true, err
			}
			if n++; n >= most {
				break
			}
		}
		return true, nil
	}
	got, err := speak(ctx, c.s, c.prompts[k], c.tokens, true, nil)
	n := len(got.ids)
	part := spoken{ids: c.want[k].ids[:n], logits: c.want[k].logits[:n]}
	return got.equal(part) && (err != nil || n == c.tokens), err
}

// Generations end with an error, and do not hang, if the model and the device are closed during
// them, in any order.
func TestCloseMidway(t *testing.T) {
	rounds := 60
	if longTests {
		rounds = 600
	}
	for i := range rounds {
		var dev npu.Device
		var err error
		var path string
		if i%10 == 9 {
			path = virtualModel(t)
			dev, err = sim.Open(&sim.Options{Threads: 2})
		} else {
			path = tiny("smollm-mha")
			dev, err = cpu.Open(&cpu.Options{Threads: 2})
		}
		if err != nil {
			t.Fatal(err)
		}
		m, err := Open(context.Background(), dev, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for w := range 4 {
			all.Go(func() {
				s := m.NewSession()
				var last error
				for _, err := range s.Generate(context.Background(), IDs(text(20*w+1, 3)),
					&GenerateOptions{MaxTokens: 400, IgnoreEOS: true}) {
					last = err
				}
				if last != nil && !errors.Is(last, ErrClosed) && !errors.Is(last, npu.ErrClosed) {
					t.Errorf("a session of a model that is closed: %v", last)
				}
				if err := s.Close(); err != nil && !errors.Is(err, npu.ErrClosed) {
					t.Errorf("closing a session of a model that is closed: %v", err)
				}
			})
		}
		time.Sleep(time.Duration(i*3000/rounds*5) * time.Microsecond)
		first, second := m.Close, dev.Close
		if i%3 == 1 {
			first, second = second, first
		}
		if i%3 == 2 {
			all.Go(func() { _ = first() })
		} else {
			_ = first() // buffers may be those of a closed device
		}
		_ = second()
		waitFor(t, &all)
		checkIdle(t, m)
	}
}

// Generations, sessions and models leave no goroutines.
func TestNoGoroutinesAreLeft(t *testing.T) {
	n := 100
	if longTests {
		n = 2000
	}
	before := runtime.NumGoroutine()
	dev, err := cpu.Open(&cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	for range n / 20 {
		m, err := Open(context.Background(), dev, tiny("smollm-mha"), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			for _, err := range m.Generate(context.Background(), IDs(text(10*i+1, 3)),
				&GenerateOptions{MaxTokens: 4, IgnoreEOS: true}) {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
}
