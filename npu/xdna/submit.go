package xdna

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/xrt"
)

// Submit executes the runs in order. All runs are checked before the first one is executed.
// Consecutive runs of one hardware context are submitted to the driver together.
//
// If a run fails in a way that a new context may fix, it is retried once in a new one; earlier runs
// are not repeated. If the context is lost again, the error wraps [npu.ErrDeviceLost]. Programs
// stay loaded, and a later Submit opens the contexts that it needs. If ctx is done while the device
// is working, Submit returns at once, and later calls wait until the device is idle.
func (d *Device) Submit(ctx context.Context, runs []npu.Run) error {
	if err := d.acquire(ctx); err != nil {
		return err
	}
	s := submission{d: d, ctx: ctx, trace: npu.Tracer(ctx)}
	defer func() {
		if s.pending == nil {
			d.release()
		}
	}()
	for i := range runs {
		if err := s.check(&runs[i]); err != nil {
			return err
		}
	}
	if len(runs) == 0 {
		return nil
	}
	if err := d.lock.lock(ctx); err != nil {
		return err
	}
	err := s.all(runs)
	if s.pending != nil {
		d.finishInBackground(s.pending, func(err error) {
			if err != nil {
				d.log.Warn("a command of a canceled Submit failed", "error", err)
				d.contexts.discard(s.live)
			}
		})
		return err
	}
	return errors.Join(err, d.lock.unlock())
}

// submission is the state of one Submit. It holds d.sem.
type submission struct {
	d     *Device
	ctx   context.Context
	trace func(npu.Span)
	args  []object
	// waits for commands still running after ctx is done; nil if there are none
	pending func(context.Context) error

	// State of the last list.
	live      *live // the context, nil if none
	submitted bool  // commands were sent to the device
	unknown   bool  // it failed, and the failed run is unknown
}

func (s *submission) check(r *npu.Run) error {
	if err := r.Check(); err != nil {
		return err
	}
	e, ok := r.Exec.(*executable)
	if !ok || e.d != s.d {
		return fmt.Errorf("npu/xdna: run %q: program %s was loaded on another device", r.Name,
			r.Exec.Program().Name)
	}
	if e.closed.Load() {
		return fmt.Errorf("npu/xdna: run %q of program %s: %w", r.Name, e.p.Name, npu.ErrClosed)
	}
	var err error
	s.args, err = e.arguments(r, s.args[:0])
	return err
}

// all executes the runs list by list.
func (s *submission) all(runs []npu.Run) error {
	retried := false
	for done := 0; done < len(runs); {
		if err := s.ctx.Err(); err != nil {
			return fmt.Errorf("npu/xdna: %w", err)
		}
		n, err := s.list(runs[done:])
		done += n
		if err == nil {
			continue
		}
		if s.pending != nil {
			return fmt.Errorf("npu/xdna: %w", s.ctx.Err())
		}
		r := &runs[done]
		if s.live != nil && (s.submitted || retryable(err)) { // the context is suspect after any error
			s.d.contexts.discard(s.live)
		}
		if retryable(err) && !retried && !s.unknown && repeatable(r) {
			s.d.log.Warn("a run failed: retrying in a new context", "run", r.Name, "program",
				r.Exec.Program().Name, "error", err)
			retried = true
			continue
		}
		return fmt.Errorf("npu/xdna: run %q of program %s: %w", r.Name, r.Exec.Program().Name, failure(err))
	}
	return nil
}

// repeatable reports whether an interrupted run can be run again: it must not write its own inputs.
func repeatable(r *npu.Run) bool {
	args := r.Exec.Program().Args
	for i, a := range args {
		for j, b := range args {
			if a.Kind == npu.In && b.Kind == npu.Out && r.Args[i] == r.Args[j] {
				return false
			}
		}
	}
	return true
}

// list executes as many of the first runs as can be submitted together and returns the number of
// completed runs. An error is that of the next run.
//
// A list is limited to one chain of the driver, because later chains would still be executed after
// a failure and overwrite inputs of the failed run.
func (s *submission) list(runs []npu.Run) (completed int, err error) {
	s.live, s.submitted, s.unknown = nil, false, false
	list, err := s.bindRuns(runs)
	if err != nil {
		return 0, err
	}
	l := s.live
	start := func() (wait func(context.Context) error, err error) { return list[0].start(l) }
	if len(list) > 1 {
		n, err := l.fillList(list)
		if n == 0 {
			return 0, err
		}
		list, start = list[:n], l.execute
	}
	began := time.Now()
	s.submitted = true
	wait, err := start()
	if err != nil {
		return 0, err
	}
	if err := wait(s.ctx); err != nil {
		if s.ctx.Err() != nil && errors.Is(err, s.ctx.Err()) {
			s.pending = wait
			return 0, err
		}
		var at *xrt.Error
		if known := errors.As(err, &at) && at.Run >= 0 && at.Run < len(list); known {
			completed = at.Run
		} else {
			s.unknown = len(list) > 1
		}
		return completed, err
	}
	s.report(runs[:len(list)], began)
	return len(list), nil
}

// bindRuns binds the first runs that can be submitted together in the context of runs[0]. A run
// that cannot be bound is left for the next list, where it is the first and its error is returned.
func (s *submission) bindRuns(runs []npu.Run) (list []*bound, err error) {
	if s.live, err = s.d.contexts.get(runs[0].Exec.(*executable)); err != nil {
		return nil, err
	}
	limit, cost := len(runs), 0
	for i := range runs {
		e := runs[i].Exec.(*executable)
		if e.config != s.live.config {
			break
		}
		k, err := s.live.kernelOf(e)
		if err == nil {
			limit = min(limit, k.chain())
			// Runs in one list cannot be evicted to make room for each other.
			if cost += e.config.cost; i >= limit || i > 0 && cost > heapBudget/2 {
				break
			}
			var b *bound
			if b, err = s.bind(e, &runs[i], list); err == nil {
				if slices.Contains(list, b) { // identical run: a run can be in a list only once
					break
				}
				list = append(list, b)
				continue
			}
		}
		if i == 0 {
			return nil, err
		}
		break
	}
	return list, nil
}

// bind returns the run bound to its arguments.
func (s *submission) bind(e *executable, r *npu.Run, list []*bound) (b *bound, err error) {
	if s.args, err = e.arguments(r, s.args[:0]); err != nil {
		return nil, err
	}
	s.d.key = appendKey(s.d.key[:0], e, s.args)
	return s.d.contexts.bind(s.live, e, s.args, s.d.key, list)
}

// start starts a single run.
func (b *bound) start(l *live) (wait func(context.Context) error, err error) {
	if err := l.release(b); err != nil {
		return nil, err
	}
	return b.run.wait, b.run.start()
}

// fillList puts runs into the context's list and returns the number of runs in it. A list with the
// same runs as last time is reused. If a run cannot be added, it and the following ones are left
// for the next list.
func (l *live) fillList(runs []*bound) (n int, err error) {
	if l.list == nil {
		if l.list, err = l.hw.list(); err != nil {
			return 0, err
		}
	}
	if slices.Equal(l.listed, runs) {
		return len(runs), nil
	}
	if err := l.resetList(); err != nil {
		return 0, err
	}
	for _, b := range runs {
		if err := l.list.add(b.run); err != nil {
			return len(l.listed), err
		}
		b.listed = true
		l.listed = append(l.listed, b)
	}
	return len(runs), nil
}

// execute starts the context's list.
func (l *live) execute() (wait func(context.Context) error, err error) {
	return l.list.wait, l.list.execute()
}

// finishInBackground waits for the commands of a canceled call in a goroutine, which then calls
// after with their error and releases sem and the lock between processes.
func (d *Device) finishInBackground(pending func(context.Context) error, after func(error)) {
	down := make(chan struct{})
	d.inFlight.Store(&down)
	go func() {
		after(pending(context.Background()))
		if err := d.lock.unlock(); err != nil {
			d.log.Warn("unlocking the NPU", "error", err)
		}
		d.inFlight.Store(nil)
		close(down)
		d.release()
	}()
}

// report sends one span per list to the tracer: XRT does not report when each run started.
func (s *submission) report(runs []npu.Run, began time.Time) {
	if s.trace == nil {
		return
	}
	name := func(r *npu.Run) string {
		if r.Name == "" {
			return r.Exec.Program().Name
		}
		return r.Name + "." + r.Exec.Program().Name
	}
	text := name(&runs[0])
	if n := len(runs) - 1; n > 0 {
		text += " to " + name(&runs[n])
	}
	s.trace(npu.Span{Name: text, Category: "program", Start: began, Duration: time.Since(began)})
}
