package model

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
)

// passLog is a device for the scheduler. It checks its passes and takes hardly any time.
type passLog struct {
	t      *testing.T
	few    int
	most   int
	fixed  bool
	inside atomic.Int32
	passes int
	err    func() error
}

var errPass = errors.New("a pass that fails")

func (l *passLog) run(ctx context.Context, p *boundPass, inputs []*input) error {
	if l.inside.Add(1) != 1 {
		l.t.Error("two passes run at once")
	}
	defer l.inside.Add(-1)
	rows, many := 0, len(inputs[0].ids) > l.few
	for _, in := range inputs {
		rows += len(in.ids)
		if (len(in.ids) > l.few) != many {
			l.t.Error("a pass has few rows of one session and many of another")
		}
	}
	if l.passes++; l.passes%4 == 0 {
		time.Sleep(20 * time.Microsecond)
	}
	for _, in := range inputs {
		in.pos++ // the race detector sees who else uses it
	}
	if limit := map[bool]int{false: l.few, true: l.most}[many]; len(inputs) > 1 &&
		(rows > limit || l.fixed) {
		l.t.Errorf("a pass has %d rows of %d sessions", rows, len(inputs))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.err()
}

// Clients that submit, hold the queue, are cancelled and fail at random all make progress, on a
// scheduler with very short passes, so that it reaches all its states.
func TestSchedulerAtRandom(t *testing.T) {
	steps := 1000
	if longTests {
		steps *= 300
	}
	for _, fixed := range []bool{false, true} {
		t.Run(fmt.Sprintf("fixed %v", fixed), func(t *testing.T) {
			prefill, decode := &boundPass{}, &boundPass{}
			if fixed {
				prefill.Rows, decode.Rows = 64, 1
			}
			p := &plan.Plan{Chunk: 64, Prefill: []plan.Pass{prefill.Pass}, Decode: decode.Pass}
			q := newScheduler(p, npu.Info{FewRows: 4}, false)
			var fail atomic.Int64
			log := &passLog{t: t, few: q.small, most: q.most, fixed: fixed, err: func() error {
				if fail.Add(1)%50 == 0 {
					return errPass
				}
				return nil
			}}
			q.pass = log.run
			var all sync.WaitGroup
			var done, cancelled, failed, left atomic.Int64
			for w := range 8 {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(w), 9))
					c := &client{}
					for range steps {
						ctx, cancel := context.WithCancel(context.Background())
						if rng.IntN(3) == 0 {
							time.AfterFunc(time.Duration(rng.IntN(30))*time.Microsecond, cancel)
						}
						in := &input{ids: make([]int32, 1)}
						j := &job{ctx: ctx, client: c, pass: decode, in: in, hold: rng.IntN(2) == 0}
						if rng.IntN(4) == 0 {
							j.pass, in.ids = prefill, make([]int32, 1+rng.IntN(60))
						}
						err := q.submit(j)
						cancel()
						switch {
						case err == nil:
							done.Add(1)
							in.pos++
						case errors.Is(err, errPass):
							failed.Add(1)
						case errors.Is(err, context.Canceled):
							cancelled.Add(1)
						default:
							t.Error(err)
						}
						if err != nil && c.holding {
							t.Error("a client holds the queue after a pass that failed")
						}
						if rng.IntN(8) == 0 { // chooses a token
							time.Sleep(time.Duration(rng.IntN(20)) * time.Microsecond)
						}
						q.release(c)
						if c.abandoned != nil {
							left.Add(1)
							<-c.abandoned
							in.pos++
							c.abandoned = nil
						}
						q.mu.Lock()
						if err := q.invariants(); err != nil {
							t.Error(err)
						}
						q.mu.Unlock()
					}
				})
			}
			waitFor(t, &all)
			checkSchedulerIdle(t, q)
			t.Logf("%d jobs done, %d failed, %d cancelled, %d of them left a pass to others",
				done.Load(), failed.Load(), cancelled.Load(), left.Load())
			if done.Load() == 0 || failed.Load() == 0 || cancelled.Load() == 0 ||
				!fixed && left.Load() == 0 {
				t.Error("not everything was tried")
			}
			// close fails queued and later jobs.
			errs := make(chan error)
			held, free := make(chan struct{}), make(chan struct{})
			q.pass = func(context.Context, *boundPass, []*input) error {
				close(held)
				<-free
				return nil
			}
			submit := func() {
				errs <- q.submit(&job{ctx: context.Background(), client: &client{}, pass: decode,
					in: &input{ids: make([]int32, 1)}})
			}
			go submit()
			<-held
			go submit()
			until(t, "the second job", func() bool {
				q.mu.Lock()
				defer q.mu.Unlock()
				return len(q.queue) == 1
			})
			closed := make(chan struct{})
			go func() {
				q.close()
				close(closed)
			}()
			if err := <-errs; !errors.Is(err, ErrClosed) {
				t.Errorf("a queued job of a scheduler that is closed: %v", err)
			}
			select {
			case <-closed:
				t.Error("close does not wait for the running pass")
			default:
			}
			close(free)
			if err := <-errs; err != nil {
				t.Errorf("a running job of a scheduler that is closed: %v", err)
			}
			<-closed
			go submit()
			if err := <-errs; !errors.Is(err, ErrClosed) {
				t.Errorf("a job after close: %v", err)
			}
			checkSchedulerIdle(t, q)
		})
	}
}

// A pass waits for all clients that hold the queue, and for no others.
func TestHolds(t *testing.T) {
	decode := &boundPass{}
	q := newScheduler(&plan.Plan{Chunk: 64, Prefill: []plan.Pass{{}}}, npu.Info{FewRows: 4}, false)
	var passes [][]*input
	q.pass = func(_ context.Context, _ *boundPass, inputs []*input) error {
		passes = append(passes, inputs)
		return nil
	}
	newJob := func(c *client) *job {
		return &job{
			ctx:    context.Background(),
			client: c,
			pass:   decode,
			in:     &input{ids: make([]int32, 1)},
			hold:   true,
		}
	}
	a, b, c := &client{}, &client{}, &client{}
	for _, cl := range []*client{a, b} { // each has a pass of its own, and lets the other have its
		if err := q.submit(newJob(cl)); err != nil {
			t.Fatal(err)
		}
		q.release(cl)
	}
	if err := q.submit(newJob(a)); err != nil { // a chooses a token
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, cl := range []*client{b, c} {
		all.Go(func() {
			if err := q.submit(newJob(cl)); err != nil {
				t.Error(err)
			}
		})
	}
	until(t, "two jobs", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.queue) == 2
	})
	time.Sleep(time.Millisecond)
	if len(passes) != 3 {
		t.Fatalf("%d passes while a client holds the queue, want 3", len(passes))
	}
	q.release(a)
	q.release(a) // nothing to release
	waitFor(t, &all)
	if len(passes) != 4 || len(passes[3]) != 2 {
		t.Errorf("%d passes after it, want one of two sessions", len(passes)-3)
	}
	q.mu.Lock()
	if q.holds != 2 {
		t.Errorf("%d clients hold the queue, want 2", q.holds)
	}
	q.mu.Unlock()
	q.release(b)
	q.release(c)
	checkSchedulerIdle(t, q)
}

// A pass that panics or ends its goroutine fails its jobs, and queued jobs run nevertheless.
func TestPassThatPanics(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("tap") }, "Goexit": runtime.Goexit} {
		q := newScheduler(&plan.Plan{Chunk: 64, Prefill: []plan.Pass{{Rows: 64}}}, npu.Info{}, false)
		held, free := make(chan struct{}), make(chan struct{})
		first := true
		q.pass = func(context.Context, *boundPass, []*input) error {
			if first {
				first = false
				close(held)
				<-free
				end()
			}
			return nil
		}
		var all sync.WaitGroup
		submit := func() (panicked any, err error) {
			defer func() { panicked = recover() }()
			j := &job{
				ctx:    context.Background(),
				client: &client{},
				pass:   &boundPass{},
				in:     &input{ids: make([]int32, 1)},
			}
			return nil, q.submit(j)
		}
		all.Go(func() {
			if panicked, err := submit(); err == nil && panicked == nil ||
				(panicked != nil) != (name == "panic") {
				t.Errorf("%s: the job ended with %v, panic %v", name, err, panicked)
			}
		})
		<-held
		all.Go(func() {
			if panicked, err := submit(); err != nil || panicked != nil {
				t.Errorf("%s: the next job ended with %v, panic %v", name, err, panicked)
			}
		})
		until(t, "the second job", func() bool {
			q.mu.Lock()
			defer q.mu.Unlock()
			return len(q.queue) == 1
		})
		close(free)
		waitFor(t, &all)
		checkSchedulerIdle(t, q)
	}
}
