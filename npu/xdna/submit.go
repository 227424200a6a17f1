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

// Submit executes the runs in order, neighbours of one hardware context with one submission to the driver. It checks all of them before it
// executes any.
//
// A run that fails together with its context is tried once more in a new one, and the runs before it are not repeated; the error of the
// second failure is [npu.ErrDeviceLost] where the context was lost again. Programs stay loaded: a later Submit opens what it needs. When
// ctx ends while the device works, Submit returns at once; what comes after waits until the device is done.
func (d *Device) Submit(ctx context.Context, runs []npu.Run) error {
	if err := d.enter(ctx); err != nil {
		return err
	}
	s := submission{d: d, ctx: ctx, trace: npu.Tracer(ctx)}
	defer func() {
		if s.flying == nil {
			d.leave()
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
	if s.flying != nil {
		d.land(s.flying, func(err error) {
			if err != nil {
				d.log.Warn("what a cancelled Submit left on the device failed", "error", err)
				d.contexts.abandon(s.in)
			}
		})
		return err
	}
	return errors.Join(err, d.lock.unlock())
}

// submission is one Submit. It has the device's turn.
type submission struct {
	d      *Device
	ctx    context.Context
	trace  func(npu.Span)
	args   []object
	flying func(context.Context) error // waits for what the device still works on after ctx has ended

	// Of the last list.
	in     *live // the context, nil if there is none
	asked  bool  // the device was asked to do something
	astray bool  // it failed, and nobody knows at which of several runs
}

func (s *submission) check(r *npu.Run) error {
	if err := r.Check(); err != nil {
		return err
	}
	e, ok := r.Exec.(*executable)
	if !ok || e.d != s.d {
		return fmt.Errorf("npu/xdna: run %q: program %s was loaded on another device", r.Name, r.Exec.Program().Name)
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
		if s.flying != nil {
			return fmt.Errorf("npu/xdna: %w", s.ctx.Err())
		}
		r := &runs[done]
		if s.in != nil && (s.asked || lost(err)) { // whatever it was, the context is suspect
			s.d.contexts.abandon(s.in)
		}
		if lost(err) && !retried && !s.astray && repeatable(r) {
			s.d.log.Warn("a run failed with its context: trying again in a new one", "run", r.Name, "program", r.Exec.Program().Name, "error", err)
			retried = true
			continue
		}
		return fmt.Errorf("npu/xdna: run %q of program %s: %w", r.Name, r.Exec.Program().Name, failure(err))
	}
	return nil
}

// repeatable reports whether a run that was broken off can be run again: nothing that it reads is also written by it.
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

// list executes as many of the first runs as go down together, and returns how many were completed. An error is that of the run after them.
//
// A list is one chain of the driver's, after whose failed run nothing is done: were there chains behind it, they would write over what that
// run must read again.
func (s *submission) list(runs []npu.Run) (completed int, err error) {
	s.in, s.asked, s.astray = nil, false, false
	list, err := s.gather(runs)
	if err != nil {
		return 0, err
	}
	l := s.in
	start := func() (wait func(context.Context) error, err error) { return list[0].start(l) }
	if len(list) > 1 {
		n, err := l.enlist(list)
		if n == 0 {
			return 0, err
		}
		list, start = list[:n], l.execute
	}
	began := time.Now()
	s.asked = true
	wait, err := start()
	if err != nil {
		return 0, err
	}
	if err := wait(s.ctx); err != nil {
		if s.ctx.Err() != nil && errors.Is(err, s.ctx.Err()) {
			s.flying = wait
			return 0, err
		}
		var at *xrt.Error
		if known := errors.As(err, &at) && at.Run >= 0 && at.Run < len(list); known {
			completed = at.Run
		} else {
			s.astray = len(list) > 1
		}
		return completed, err
	}
	s.report(runs[:len(list)], began)
	return len(list), nil
}

// gather binds the first runs, as many as go down together, in the context of the first. A run that cannot be bound is left for the next
// list, whose first it is.
func (s *submission) gather(runs []npu.Run) (list []*bound, err error) {
	if s.in, err = s.d.contexts.get(runs[0].Exec.(*executable)); err != nil {
		return nil, err
	}
	limit, cost := len(runs), 0
	for i := range runs {
		e := runs[i].Exec.(*executable)
		if e.config != s.in.config {
			break
		}
		k, err := s.in.kernelOf(e)
		if err == nil {
			limit = min(limit, k.chain())
			// What is in one list cannot make room for itself.
			if cost += e.config.cost; i >= limit || i > 0 && cost > heapBudget/2 {
				break
			}
			var b *bound
			if b, err = s.bind(e, &runs[i], list); err == nil {
				if slices.Contains(list, b) { // the very same again: a run is in a list once
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

// bind is the run with its arguments.
func (s *submission) bind(e *executable, r *npu.Run, list []*bound) (b *bound, err error) {
	if s.args, err = e.arguments(r, s.args[:0]); err != nil {
		return nil, err
	}
	s.d.key = appendKey(s.d.key[:0], e, s.args)
	return s.d.contexts.bind(s.in, e, s.args, s.d.key, list)
}

// start starts a run by itself.
func (b *bound) start(l *live) (wait func(context.Context) error, err error) {
	if err := l.release(b); err != nil {
		return nil, err
	}
	return b.run.wait, b.run.start()
}

// enlist fills the context's list, which is the one of the last time if it had the same, and returns how many runs it has. Those behind
// one that cannot be added are left for the next.
func (l *live) enlist(runs []*bound) (n int, err error) {
	if l.list == nil {
		if l.list, err = l.hw.list(); err != nil {
			return 0, err
		}
	}
	if slices.Equal(l.listed, runs) {
		return len(runs), nil
	}
	if err := l.unlist(); err != nil {
		return 0, err
	}
	for _, b := range runs {
		if err := l.list.add(b.run); err != nil {
			return len(l.listed), err
		}
		b.in = true
		l.listed = append(l.listed, b)
	}
	return len(runs), nil
}

// execute starts the context's list.
func (l *live) execute() (wait func(context.Context) error, err error) {
	return l.list.wait, l.list.execute()
}

// land leaves the turn, and the lock that keeps other processes away, with whoever waits for what a cancelled call left on the device. What
// comes of it is given to after.
func (d *Device) land(flying func(context.Context) error, after func(error)) {
	down := make(chan struct{})
	d.flight.Store(&down)
	go func() {
		after(flying(context.Background()))
		if err := d.lock.unlock(); err != nil {
			d.log.Warn("unlocking the NPU", "error", err)
		}
		d.flight.Store(nil)
		close(down)
		d.leave()
	}()
}

// report gives a list to a tracer: XRT does not tell when the runs of a list began.
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
