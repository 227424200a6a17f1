package model

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
)

// scheduler selects the rows of each pass.
//
// A session submits a job, which has the rows of its next pass, and waits for its result. One pass
// runs at a time. As soon as a pass can start, it takes the queued jobs that can share it. There
// are no timers, and if a job can start at once it runs in its session's goroutine, so a lone
// session sees no added latency.
//
// # Holds
//
// After a decode pass each of its sessions samples a token and submits the next row, within a
// fraction of a millisecond. If a pass started with the first of them, that session would run
// alone. A job can therefore ask for a hold: when its pass ends, its client holds the queue, and no
// pass starts until all holds are released. A hold covers only the package's own work, never that
// of a caller: Session.release, which ends every call, releases it, and so does all code that calls
// a caller's. If a caller asks for the next token at once, it usually submits before the next pass
// collects its jobs, because release starts that pass in another goroutine.
//
// # Which jobs share a pass
//
// On a device that takes any number of rows, a pass has a segment for each of several sessions, and
// all its jobs are of one kind: small (decode steps and short prompts) or large (chunks of a
// prompt). The kinds do not mix, because a device may use other kernels for at most
// [npu.Info.FewRows] rows, which sum in another order. So a session's logits do not depend on the
// other jobs in its passes. Programs of fixed rows take one session at a time; their kinds are the
// passes of the plan.
//
// # Order
//
// The oldest job goes first, except that after a pass of one kind comes one of another kind if any
// is queued. So any number of long prompts delays other sessions by one chunk between two of their
// tokens, and these delay a prompt by one small pass between two chunks. With programs of fixed
// rows, a change of kind can make the device load other programs. Up to maxPrefills prefills or
// maxDecodes decode steps then run in a row.
type scheduler struct {
	small int  // most rows of a small pass
	most  int  // most rows of a large pass
	joins bool // passes can have several sessions

	// pass executes a pass. One call runs at a time.
	pass func(ctx context.Context, p *boundPass, inputs []*input) error

	mu       sync.Mutex
	queue    []*job // oldest first
	running  *batch
	starting bool   // a goroutine is about to call start
	holds    int    // clients whose holding is set
	last     *input // the input of the last pass, if it had one
	kind     kind   // of the last pass
	streak   int    // passes of that kind in a row
	closed   bool
}

// With programs of fixed rows, the most passes of one kind in a row while jobs of another are
// queued.
const (
	maxPrefills = 4
	maxDecodes  = 16
)

// kind is a class of jobs that can share a pass, or that use the same programs.
type kind struct {
	pass  *boundPass
	large bool
}

// client is a session as the scheduler sees it.
type client struct {
	holding bool // guarded by scheduler.mu

	// abandoned is closed when a pass that the client has abandoned no longer uses the input of its
	// job. It is nil if there is no such pass. The client owns the field.
	abandoned <-chan struct{}
}

// job is one client's part of a pass.
type job struct {
	ctx    context.Context
	client *client
	pass   *boundPass
	in     *input
	hold   bool // the client holds the queue after the pass

	batch     *batch        // nil while the job is queued
	abandoned bool          // the client has gone; the batch runs for others
	done      chan struct{} // closed when err is set
	err       error
}

// batch is a pass with its jobs.
type batch struct {
	ctx    context.Context
	cancel context.CancelFunc // called when all clients have gone
	jobs   []*job
	live   int           // jobs that are not abandoned
	ended  chan struct{} // closed when the device has stopped
}

// passPanic is the error of a pass that panicked, for example in a tap. submit panics with it in
// the goroutine of each client.
type passPanic struct {
	value any
	stack []byte
}

func (p *passPanic) Error() string {
	return fmt.Sprintf("model: a pass panicked: %v\n\n%s", p.value, p.stack)
}

func newScheduler(p *plan.Plan, info npu.Info, tapped bool) *scheduler {
	q := &scheduler{
		small: info.FewRows,
		most:  p.Chunk,
		joins: p.Prefill[0].Rows == 0 && !tapped,
	}
	if q.small == 0 { // one kind of kernels; decode steps still precede chunks
		q.small = 16
	}
	q.small = max(1, min(q.small, q.most))
	return q
}

// submit queues a job and waits for the end of its pass. The client must not hold the queue.
//
// If the job's context is cancelled, submit returns the context's error at once if the pass has not
// started or goes on for other clients. In the latter case it sets client.abandoned. A pass of this
// job alone runs under its context, and submit returns when the device has stopped.
func (q *scheduler) submit(j *job) error {
	j.done = make(chan struct{})
	alone, err := q.enqueue(j)
	if err != nil {
		return err
	}
	if alone != nil {
		q.run(alone)
	}
	select {
	case <-j.done:
	case <-j.ctx.Done():
		if q.cancel(j) {
			return j.ctx.Err()
		}
		<-j.done
	}
	if p := (*passPanic)(nil); errors.As(j.err, &p) {
		panic(p)
	}
	return j.err
}

// enqueue queues a job. If a pass of this job alone can start, enqueue returns that pass for the
// caller to run.
func (q *scheduler) enqueue(j *job) (alone *batch, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	q.queue = append(q.queue, j)
	if !q.starting && q.ready() == j {
		return q.collect(j), nil // no other job is queued that could share the pass
	}
	q.wake()
	return nil, nil
}

// cancel removes a job whose context has ended from the queue, or from a pass that it shares. It
// returns false if the job is done or alone in its pass.
func (q *scheduler) cancel(j *job) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-j.done:
		return false
	default:
	}
	b := j.batch
	if b == nil {
		q.queue = slices.DeleteFunc(q.queue, func(o *job) bool { return o == j })
		q.wake() // a job of another kind may have waited for this one
		return true
	}
	if len(b.jobs) == 1 {
		return false
	}
	j.abandoned = true
	j.client.abandoned = b.ended
	if b.live--; b.live == 0 {
		b.cancel()
	}
	return true
}

// release ends the client's hold, if it has one.
func (q *scheduler) release(c *client) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.holding {
		c.holding = false
		q.holds--
		q.wake()
	}
}

// wake starts the next pass in another goroutine, if one can start. The caller holds mu.
func (q *scheduler) wake() {
	if !q.starting && q.ready() != nil {
		q.starting = true
		go q.start()
	}
}

// start runs the next pass, if one can still start.
func (q *scheduler) start() {
	q.mu.Lock()
	q.starting = false
	first := q.ready()
	if first == nil {
		q.mu.Unlock()
		return
	}
	b := q.collect(first)
	q.mu.Unlock()
	q.run(b)
}

// run runs a batch. It finishes the batch even if a tap panics or ends the goroutine.
func (q *scheduler) run(b *batch) {
	err := errors.New("model: the pass was not completed")
	defer func() {
		if v := recover(); v != nil {
			err = &passPanic{v, debug.Stack()}
		}
		q.finish(b, err)
	}()
	inputs := make([]*input, len(b.jobs))
	for i, j := range b.jobs {
		inputs[i] = j.in
	}
	err = q.pass(b.ctx, b.jobs[0].pass, inputs)
}

// finish marks the jobs of the running batch done, grants their holds, and wakes the next pass.
func (q *scheduler) finish(b *batch, err error) {
	b.cancel()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running, q.last = nil, nil
	if len(b.jobs) == 1 && err == nil {
		q.last = b.jobs[0].in
	}
	for _, j := range b.jobs {
		j.err = err
		if err == nil && j.hold && !j.abandoned {
			j.client.holding = true
			q.holds++
		}
		close(j.done)
	}
	close(b.ended)
	q.wake()
}

// ready returns the job that the next pass is for, or nil if no pass can start now. The caller
// holds mu.
func (q *scheduler) ready() *job {
	if q.closed || q.running != nil || len(q.queue) == 0 {
		return nil
	}
	first := q.first()
	if q.holds > 0 && (q.joins || q.kindOf(first) != q.kind) {
		return nil
	}
	return first
}

// first returns the oldest job of the kind that is next. A job whose rows were in the last pass
// precedes others of its kind, because only the head is left to compute.
func (q *scheduler) first() *job {
	var same, other *job
	for _, j := range q.queue {
		switch k := q.kindOf(j); {
		case k != q.kind && other == nil:
			other = j
		case k == q.kind && (same == nil || j.in == q.last):
			same = j
		}
	}
	if same == nil || other != nil && q.streak >= maxStreak(q.kind) {
		return other
	}
	return same
}

func (q *scheduler) kindOf(j *job) kind {
	return kind{pass: j.pass, large: j.pass.Rows == 0 && len(j.in.ids) > q.small}
}

// maxStreak returns how many passes of a kind may run in a row while jobs of another are queued.
func maxStreak(k kind) int {
	switch k.pass.Rows {
	case 0:
		return 1
	case 1:
		return maxDecodes
	}
	return maxPrefills
}

// collect moves the first job, and those that can share its pass, from the queue to the running
// batch. The caller holds mu.
func (q *scheduler) collect(first *job) *batch {
	k := q.kindOf(first)
	if k != q.kind {
		q.kind, q.streak = k, 0
	}
	q.streak++
	b := &batch{ctx: first.ctx, cancel: func() {}, ended: make(chan struct{})}
	rows, picks := 0, 0
	take := func(j *job) {
		j.batch = b
		b.jobs = append(b.jobs, j)
		rows += len(j.in.ids)
		picks += len(j.in.picks)
	}
	take(first)
	most, heads := q.small, q.small
	if k.large {
		most = q.most
	}
	if picks > q.small { // heads are small or large, too
		heads = logitRows
	}
	q.queue = slices.DeleteFunc(q.queue, func(j *job) bool {
		if j == first {
			return true
		}
		n := len(j.in.picks)
		mixed := n > 0 && picks > 0 && (n > q.small) != (picks > q.small)
		if !q.joins || q.kindOf(j) != k || rows+len(j.in.ids) > most || n > 0 && picks+n > heads || mixed {
			return false
		}
		take(j)
		return true
	})
	b.live = len(b.jobs)
	if b.live > 1 {
		ctxs := make([]context.Context, len(b.jobs)) // each tracer gets the passes of its session
		for i, j := range b.jobs {
			ctxs[i] = j.ctx
		}
		b.ctx, b.cancel = context.WithCancel(npu.JoinTracers(context.Background(), ctxs...))
	}
	q.running = b
	return b
}

// close fails all queued and later jobs with ErrClosed, and waits for the running pass.
func (q *scheduler) close() {
	q.mu.Lock()
	q.closed = true
	for _, j := range q.queue {
		j.err = ErrClosed
		close(j.done)
	}
	q.queue = nil
	running := q.running
	q.mu.Unlock()
	if running != nil {
		<-running.ended
	}
}
