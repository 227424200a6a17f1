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

// scheduler decides whose rows the next pass takes.
//
// A session submits a job, the rows of its next pass, and waits until it is done. One pass runs at a
// time. Whenever one can start, it takes the jobs in the queue that go together. There are no timers,
// and a job that finds nothing before it runs in the goroutine of its session, so a lone session sees
// no added latency.
//
// # Holds
//
// After a decode pass each of its sessions chooses a token and submits the next row, all within a
// fraction of a millisecond. If a pass started with the first of them, that session would run alone.
// A job can therefore ask for a hold: when its pass has ended, its client holds the queue, and no
// pass starts until all holds are released. A hold covers the package's own work only, never that of
// a caller: Session.release, which ends every call, releases it, and so does everything that runs a
// caller's code. A caller that is quick to ask for the next token usually submits before the next
// pass collects its jobs, because release leaves that to another goroutine.
//
// # Which jobs share a pass
//
// On a device that takes any number of rows a pass has a segment for each of several sessions, and
// all its jobs are of one kind: few rows (decode steps and short prompts) or many (chunks of a
// prompt). The kinds are kept apart because a device may have other kernels for few rows, which sum
// in another order ([npu.Info.FewRows]). So a session's logits are the same bits whatever shares its
// passes. Programs of fixed rows take one session at a time; their kinds are the passes of the plan.
//
// # Order
//
// The job that has waited longest goes first, except that after a pass of one kind comes one of
// another if any is queued. Any number of long prompts thus delays the others by one chunk between
// two of their tokens, and the others delay a prompt by one pass of few rows between two chunks. With
// programs of fixed rows a change of kind can make the device load other programs, so up to
// prefillTurns prefills or decodeTurns steps follow each other before the other kind has its turn.
type scheduler struct {
	few   int  // rows of a pass of few rows at most
	most  int  // rows of a pass of many rows at most
	joins bool // a pass takes several sessions

	// pass executes a pass. One call runs at a time.
	pass func(ctx context.Context, p *boundPass, inputs []*input) error

	mu       sync.Mutex
	queue    []*job // in the order of submission
	running  *batch
	starting bool   // a goroutine is about to call start
	holds    int    // clients whose holding is set
	last     *input // of the last pass, if it had one
	kind     kind   // of the last pass
	turns    int    // passes of that kind in a row
	closed   bool
}

// With programs of fixed rows: passes of one kind in a row while jobs of another are queued.
const (
	prefillTurns = 4
	decodeTurns  = 16
)

// kind is a class of jobs that a pass may take together, or that need no other programs loaded.
type kind struct {
	pass *boundPass
	many bool
}

// client is a session as the scheduler sees it.
type client struct {
	holding bool // guarded by scheduler.mu

	// left is closed when a pass that the client has left no longer uses the input of its job. It is
	// nil if there is no such pass. The client owns the field.
	left <-chan struct{}
}

// job is one client's part of a pass.
type job struct {
	ctx    context.Context
	client *client
	pass   *boundPass
	in     *input
	hold   bool // the client holds the queue after the pass

	batch *batch        // nil while the job is queued
	left  bool          // the client has gone; its batch runs for others
	done  chan struct{} // closed when err is set
	err   error
}

// batch is a pass with its jobs.
type batch struct {
	ctx    context.Context
	cancel context.CancelFunc // called when all clients have left
	jobs   []*job
	live   int           // jobs whose client has not left
	ended  chan struct{} // closed when the device no longer works on the pass
}

// passPanic is the error of a pass that panicked, in a tap for example. submit panics with it in the
// goroutine of each client.
type passPanic struct {
	value any
	stack []byte
}

func (p *passPanic) Error() string {
	return fmt.Sprintf("model: a pass panicked: %v\n\n%s", p.value, p.stack)
}

func newScheduler(p *plan.Plan, info npu.Info, tapped bool) *scheduler {
	q := &scheduler{
		few:   info.FewRows,
		most:  p.Chunk,
		joins: p.Prefill[0].Rows == 0 && !tapped,
	}
	if q.few == 0 { // the device has one kind of kernels; decode steps still go before chunks
		q.few = 16
	}
	q.few = max(1, min(q.few, q.most))
	return q
}

// submit queues a job and waits until its pass has ended. The client must not hold the queue.
//
// When the job's context is cancelled, submit returns its error at once if the pass has not started
// or goes on for other clients. In the latter case it sets client.left. A pass of this job alone
// runs under its context, and submit returns when the device has stopped.
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

// enqueue queues a job. If a pass of this job alone can start, it returns that pass for the caller to
// run.
func (q *scheduler) enqueue(j *job) (alone *batch, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	q.queue = append(q.queue, j)
	if !q.starting && q.ready() == j {
		return q.collect(j), nil // nothing joins it: a job that could would be running or starting
	}
	q.wake()
	return nil, nil
}

// cancel removes a job whose context has ended from the queue, or from a pass that it shares. It
// returns false if the job is done or has its pass to itself.
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
		q.wake() // the job may have been the first, of a kind that had to wait
		return true
	}
	if len(b.jobs) == 1 {
		return false
	}
	j.left = true
	j.client.left = b.ended
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

// wake has the next pass started in another goroutine, if one can start. The caller holds mu.
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

// run runs a batch. It finishes it also if a tap panics or ends the goroutine.
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

// finish marks the jobs of the running batch done, gives out their holds, and wakes the next pass.
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
		if err == nil && j.hold && !j.left {
			j.client.holding = true
			q.holds++
		}
		close(j.done)
	}
	close(b.ended)
	q.wake()
}

// ready returns the job that the next pass is for, or nil if no pass can start now. The caller holds
// mu.
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

// first returns the job that has waited longest, of the kind whose turn it is. A job whose rows were
// in the last pass goes before others of its kind, because only the head is left to compute.
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
	if same == nil || other != nil && q.turns >= maxTurns(q.kind) {
		return other
	}
	return same
}

func (q *scheduler) kindOf(j *job) kind {
	return kind{pass: j.pass, many: j.pass.Rows == 0 && len(j.in.ids) > q.few}
}

// maxTurns is how many passes of a kind may follow each other while jobs of another are queued.
func maxTurns(k kind) int {
	switch k.pass.Rows {
	case 0:
		return 1
	case 1:
		return decodeTurns
	}
	return prefillTurns
}

// collect moves the first job and those that can share its pass from the queue to the running batch.
// The caller holds mu.
func (q *scheduler) collect(first *job) *batch {
	k := q.kindOf(first)
	if k != q.kind {
		q.kind, q.turns = k, 0
	}
	q.turns++
	b := &batch{ctx: first.ctx, cancel: func() {}, ended: make(chan struct{})}
	rows, picks := 0, 0
	take := func(j *job) {
		j.batch = b
		b.jobs = append(b.jobs, j)
		rows += len(j.in.ids)
		picks += len(j.in.picks)
	}
	take(first)
	most, heads := q.few, q.few
	if k.many {
		most = q.most
	}
	if picks > q.few { // picked rows are of two kinds as well
		heads = logitRows
	}
	q.queue = slices.DeleteFunc(q.queue, func(j *job) bool {
		if j == first {
			return true
		}
		n := len(j.in.picks)
		mixed := n > 0 && picks > 0 && (n > q.few) != (picks > q.few)
		if !q.joins || q.kindOf(j) != k || rows+len(j.in.ids) > most || n > 0 && picks+n > heads || mixed {
			return false
		}
		take(j)
		return true
	})
	b.live = len(b.jobs)
	if b.live > 1 {
		ctxs := make([]context.Context, len(b.jobs)) // each tracer sees the passes of its session
		for i, j := range b.jobs {
			ctxs[i] = j.ctx
		}
		b.ctx, b.cancel = context.WithCancel(npu.JoinTracers(context.Background(), ctxs...))
	}
	q.running = b
	return b
}

// close fails the queued jobs and all later ones with ErrClosed, and waits for the running pass.
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
