package model

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
)

// The scheduler's invariants are checked whenever a session returns control to its caller, in any
// test of the package. A violation exits, because tests that wait for a pass would hang.
func TestMain(m *testing.M) {
	testHookReleased = func(s *Session) {
		if err := s.invariants(); err != nil {
			stacks := make([]byte, 1<<20)
			fmt.Fprintf(os.Stderr, "%v\n\n%s\n", err, stacks[:runtime.Stack(stacks, true)])
			os.Exit(1)
		}
		invariantChecks.Add(1)
	}
	os.Exit(m.Run())
}

// invariantChecks counts the checks.
var invariantChecks atomic.Int64

// invariants returns an error if the scheduler waits for the session, which has returned control to
// its caller, or has a job of it, or is in an invalid state.
func (s *Session) invariants() error {
	q := s.m.exec.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.client.holding {
		return errors.New("a session holds the queue and has nothing to submit")
	}
	jobs := q.queue
	if q.running != nil {
		jobs = append(jobs[:len(jobs):len(jobs)], q.running.jobs...)
	}
	for _, j := range jobs {
		if j.client == &s.client && !j.abandoned {
			return errors.New("a session waits for a job and has returned to its caller")
		}
	}
	return q.invariants()
}

// invariants returns an error if the scheduler is in an invalid state. The caller holds mu.
func (q *scheduler) invariants() error {
	switch {
	case q.holds < 0:
		return fmt.Errorf("%d clients hold the queue", q.holds)
	case q.closed && len(q.queue) > 0:
		return fmt.Errorf("%d jobs are queued after close", len(q.queue))
	case q.ready() != nil && !q.starting:
		return fmt.Errorf("%d jobs are queued, a pass can start, and nobody starts it", len(q.queue))
	}
	for _, j := range q.queue {
		select {
		case <-j.done:
			return errors.New("a job is queued and done")
		default:
		}
		if j.batch != nil || j.client.holding {
			return errors.New("a job is queued, and runs or has its client hold the queue")
		}
	}
	if b := q.running; b != nil {
		live := 0
		for _, j := range b.jobs {
			if !j.abandoned {
				live++
			}
			if j.batch != b || j.client.holding {
				return errors.New("a job runs in another batch, or its client holds the queue")
			}
		}
		if live != b.live {
			return fmt.Errorf("%d clients of a batch have not left, counted %d", live, b.live)
		}
	}
	return nil
}

// checkIdle checks that the scheduler is idle when no method of a session runs.
func checkIdle(t *testing.T, m *Model) {
	t.Helper()
	checkSchedulerIdle(t, m.exec.queue)
}

func checkSchedulerIdle(t *testing.T, q *scheduler) {
	t.Helper()
	until(t, "the last pass to end", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return !q.starting && q.running == nil
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.invariants(); err != nil || q.holds != 0 || q.running != nil || len(q.queue) != 0 {
		t.Errorf("no method is in progress: %d holds, %d jobs queued, running %v, %v", q.holds,
			len(q.queue), q.running != nil, err)
	}
}
