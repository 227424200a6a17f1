package model

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/npukit/npukit/npu"
)

// scheduler decides whose rows the next pass takes.
//
// Sessions hand in their next rows, each in a goroutine of its own, and wait. Whenever no pass runs, the next one takes what is there: nobody is waited for who may or
// may not come, and there are no timers, so that a session that is alone never waits. What is waited for is the package's own work between two passes, the choice of a
// token: the sessions of a pass that has ended would otherwise come one by one, and the first of them would run alone.
//
// # Who goes together
//
// On a device that takes any rows a pass has a segment for each of several sessions, and all its jobs are of one kind: steps of decoding, short turns of few rows, or
// chunks of a prompt, of many. Few and many are kept apart because a device may have other kernels for few rows, which sum in another order ([npu.Info.FewRows]); so a
// session's logits are the same bits whoever is beside it. Programs of fixed rows take one session at a time; their kinds are the passes of the plan.
//
// # Who goes first
//
// Who has waited longest, but after a pass of one kind comes one of another, if any waits: a prompt of any length, or any number of prompts, holds up the others by no more
// than one chunk between two of their tokens, and they hold it up by one pass of few rows between two of its chunks. On programs of fixed rows a change of kind can mean
// that a device loads other programs, so that waiting sessions finish a phase together: up to prefillTurns prefills or decodeTurns steps come after each other before
// others have their turn, and these get as many.
type scheduler struct {
	few   int  // rows of a pass of few rows at most
	most  int  // rows of a pass of many rows at most
	joins bool // a pass takes several sessions

	mu      sync.Mutex
	waiting []*job // as they came
	running *batch
	coming  int  // sessions that choose a token, after which they come with another row or say that they do not
	kind    kind // of the last pass
	turns   int  // passes of that kind in a row
	closed  bool
}

// On programs of fixed rows: passes of a kind in a row while others wait for another kind.
const (
	prefillTurns = 4
	decodeTurns  = 16
)

// kind says which jobs a pass may take together, or without loading other programs.
type kind struct {
	pass *boundPass
	many bool
}

// job is one session's part of a pass, from its handing in to its end.
type job struct {
	ctx  context.Context
	pass *boundPass
	in   *input

	// quick says that what follows on the pass is short and the package's own: the session is then counted in scheduler.coming until it hands in its next rows or calls
	// executor.away.
	quick bool

	batch *batch        // nil while it waits
	lead  chan struct{} // gets a token when the job is to be run by who handed it in
	done  chan struct{} // closed when err is set
	err   error
}

// batch is a pass with the jobs that it takes.
type batch struct {
	jobs   []*job
	stay   int                // of them, how many have not left
	cancel context.CancelFunc // of a batch of several jobs: when all have left
	ended  chan struct{}      // closed when no device works on it any more
}

func newScheduler(plan *Plan, info npu.Info, tapped bool) *scheduler {
	s := &scheduler{few: info.FewRows, most: plan.Chunk, joins: plan.Prefill[0].Rows == 0 && !tapped}
	if s.few == 0 { // rows are the same however many there are, and steps still go before chunks
		s.few = 16
	}
	s.few = max(1, min(s.few, s.most))
	return s
}

// kindOf is a job's kind.
func (s *scheduler) kindOf(j *job) kind {
	return kind{pass: j.pass, many: j.pass.Rows == 0 && len(j.in.ids) > s.few}
}

// limit is how many passes of a kind may come after each other while jobs of another wait.
func (s *scheduler) limit(k kind) int {
	switch {
	case k.pass.Rows == 0:
		return 1
	case k.pass.Rows == 1:
		return decodeTurns
	}
	return prefillTurns
}

// first is the job that the next pass is for. A job whose rows were in the last pass already goes before others of its kind: only the head is left to do.
func (s *scheduler) first(last *input) *job {
	var same, other *job
	for _, j := range s.waiting {
		switch k := s.kindOf(j); {
		case k != s.kind && other == nil:
			other = j
		case k == s.kind && (same == nil || j.in == last):
			same = j
		}
	}
	if same == nil || other != nil && s.turns >= s.limit(s.kind) {
		return other
	}
	return same
}

// gather takes the first job and those that go with it out of the queue.
func (s *scheduler) gather(first *job) *batch {
	k := s.kindOf(first)
	if k != s.kind {
		s.kind, s.turns = k, 0
	}
	s.turns++
	b := &batch{ended: make(chan struct{})}
	rows, picks := 0, 0
	take := func(j *job) {
		j.batch = b
		b.jobs = append(b.jobs, j)
		rows += len(j.in.ids)
		picks += len(j.in.picks)
	}
	take(first)
	most, heads := s.few, s.few
	if k.many {
		most = s.most
	}
	if picks > s.few { // rows of the head are of two kinds as well
		heads = logitRows
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(j *job) bool {
		if j == first {
			return true
		}
		n := len(j.in.picks)
		if !s.joins || s.kindOf(j) != k || rows+len(j.in.ids) > most || n > 0 && (picks+n > heads || (n > s.few) != (picks > s.few) && picks > 0) {
			return false
		}
		take(j)
		return true
	})
	b.stay = len(b.jobs)
	return b
}

// pass brings one session's rows through a pass, together with those of other sessions where they go together, and returns when their logits have been copied out.
// When ctx ends it returns at once. A pass in which others have rows goes on, and in.flying tells when it has let go of the input.
// Before is the session's last input, or nil: handing in ends the waiting for it.
func (e *executor) pass(ctx context.Context, p *boundPass, in, before *input, quick bool) error {
	err := e.check(p, in)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		e.away(before) // it is not handed in, and nobody asks for it again
		return err
	}
	j := &job{ctx: ctx, pass: p, in: in, quick: quick, lead: make(chan struct{}, 1), done: make(chan struct{})}
	s := e.queue
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	s.waiting = append(s.waiting, j)
	s.arrived(before)
	e.start()
	s.mu.Unlock()
	select {
	case <-j.done:
	case <-j.lead:
		e.perform(ctx, j.batch)
	case <-ctx.Done():
		if e.leave(j) {
			return ctx.Err()
		}
		select { // it has ended meanwhile, or is ours to run, which the device refuses at once
		case <-j.done:
		case <-j.lead:
			e.perform(ctx, j.batch)
		}
	}
	return j.err
}

// check reports what would make a device refuse the pass of all.
func (e *executor) check(p *boundPass, in *input) error {
	if p.Rows > 0 && len(in.ids) > p.Rows {
		return fmt.Errorf("model: a pass of %d rows cannot take %d", p.Rows, len(in.ids))
	}
	for i, id := range in.ids {
		if id < 0 || int(id) >= e.plan.Model.Vocab {
			return fmt.Errorf("model: token %d is id %d, want 0 to %d", in.pos+i, id, e.plan.Model.Vocab-1)
		}
	}
	return nil
}

// start begins the next pass, if there is work and none runs. A pass of one job is run by the goroutine that handed it in, under its own context; one of several by a
// goroutine of its own, because each of them may leave. The caller holds the scheduler's mutex.
func (e *executor) start() {
	s := e.queue
	if s.running != nil || len(s.waiting) == 0 || s.closed {
		return
	}
	first := s.first(e.done)
	if s.coming > 0 && (s.joins || s.kindOf(first) != s.kind) {
		return
	}
	b := s.gather(first)
	s.running = b
	if len(b.jobs) == 1 {
		first.lead <- struct{}{}
		return
	}
	ctxs := make([]context.Context, len(b.jobs)) // each session's tracer sees the passes that its rows are in
	for i, j := range b.jobs {
		ctxs[i] = j.ctx
	}
	ctx, cancel := context.WithCancel(npu.JoinTracers(context.Background(), ctxs...))
	b.cancel = cancel
	go e.perform(ctx, b)
}

// perform runs a batch and begins what comes after it.
func (e *executor) perform(ctx context.Context, b *batch) {
	err := fmt.Errorf("model: the pass was not completed") // what a panic in a tap leaves to the others
	defer func() {
		s := e.queue
		s.mu.Lock()
		defer s.mu.Unlock()
		if b.cancel != nil {
			b.cancel()
		}
		s.running = nil
		for _, j := range b.jobs {
			j.err = err
			if err == nil && j.quick && j.in.flying == nil {
				j.in.coming = true
				s.coming++
			}
			close(j.done)
		}
		close(b.ended)
		e.start()
	}()
	inputs := make([]*input, len(b.jobs))
	for i, j := range b.jobs {
		inputs[i] = j.in
	}
	if p := b.jobs[0].pass; p.Rows == 0 {
		err = e.openPass(ctx, p, inputs)
	} else {
		err = e.fixedPass(ctx, p, inputs[0])
	}
}

// leave takes a job whose context has ended out of the queue or out of its pass. It reports false when there is nothing to leave: the job has ended, or is its
// session's own to run.
func (e *executor) leave(j *job) bool {
	s := e.queue
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-j.done:
		return false
	default:
	}
	if j.batch == nil {
		s.waiting = slices.DeleteFunc(s.waiting, func(o *job) bool { return o == j })
		e.start()
		return true
	}
	if len(j.batch.jobs) == 1 {
		return false
	}
	j.in.flying = j.batch.ended
	if j.batch.stay--; j.batch.stay == 0 {
		j.batch.cancel()
	}
	return true
}

// away says that the session whose input this was need not be waited for: its token goes to the caller, who may do with it what takes long. A caller who does not is back
// with the next row before the goroutine that is started here has its turn, so that its session goes with the others.
func (e *executor) away(in *input) {
	s := e.queue
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arrived(in) && s.coming == 0 && s.running == nil && len(s.waiting) > 0 {
		go func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			e.start()
		}()
	}
}

// arrived takes the session whose last input this was out of those that are waited for. It reports false where it was none of them. The caller holds the mutex.
func (s *scheduler) arrived(in *input) bool {
	if in == nil || !in.coming {
		return false
	}
	in.coming = false
	s.coming--
	return true
}

// close lets no pass start any more, and waits for the one that runs.
func (s *scheduler) close() {
	s.mu.Lock()
	s.closed = true
	for _, j := range s.waiting {
		j.err = ErrClosed
		close(j.done)
	}
	s.waiting = nil
	running := s.running
	s.mu.Unlock()
	if running != nil {
		<-running.ended
	}
}
