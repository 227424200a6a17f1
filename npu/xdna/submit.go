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
		s.land()
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
	in     *live                       // the context that it is in
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

// all executes the runs piece by piece.
func (s *submission) all(runs []npu.Run) error {
	retried := false
	for done := 0; done < len(runs); {
		if err := s.ctx.Err(); err != nil {
			return fmt.Errorf("npu/xdna: %w", err)
		}
		n, l, err := s.piece(runs[done:])
		done += n
		if err == nil {
			continue
		}
		if s.flying != nil {
			return fmt.Errorf("npu/xdna: %w", s.ctx.Err())
		}
		r := &runs[done]
		if l != nil { // whatever it was, the context is suspect
			s.d.contexts.abandon(l)
		}
		if lost(err) && !retried && repeatable(r) {
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

// piece executes as many of the first runs as go down together, and returns how many were completed, and the context they were in once the
// device has been asked to do something.
func (s *submission) piece(runs []npu.Run) (done int, l *live, err error) {
	d := s.d
	e := runs[0].Exec.(*executable)
	if l, err = d.contexts.get(e); err != nil {
		return 0, nil, err
	}
	var piece []*bound
	limit, cost := len(runs), 0
	for i := 0; i < limit; i++ {
		e := runs[i].Exec.(*executable)
		limit = min(limit, pieceLimit(len(e.p.Args)))
		// What is in one piece cannot make room for itself.
		if cost += e.config.cost; i >= limit || e.config != l.config || i > 0 && cost > heapBudget/2 {
			break
		}
		if s.args, err = e.arguments(&runs[i], s.args[:0]); err != nil {
			return 0, nil, err
		}
		d.key = appendKey(d.key[:0], e, s.args)
		b, err := d.contexts.bind(l, e, s.args, d.key, piece)
		if err != nil {
			return 0, l, err
		}
		if slices.Contains(piece, b) { // the very same again: a run is in a list once
			break
		}
		piece = append(piece, b)
	}
	began := time.Now()
	var wait func(context.Context) error
	if len(piece) == 1 {
		wait, err = piece[0].start(l)
	} else {
		wait, err = l.execute(piece)
	}
	if err != nil {
		return 0, l, err
	}
	if err := wait(s.ctx); err != nil {
		if s.ctx.Err() != nil && errors.Is(err, s.ctx.Err()) {
			s.flying, s.in = wait, l
			return 0, l, err
		}
		var at *xrt.Error
		if errors.As(err, &at) && at.Run > 0 && at.Run < len(piece) {
			done = at.Run
		}
		return done, l, err
	}
	s.report(runs[:len(piece)], began)
	return len(piece), l, nil
}

// start starts a run by itself.
func (b *bound) start(l *live) (wait func(context.Context) error, err error) {
	if err := l.release(b); err != nil {
		return nil, err
	}
	return b.run.wait, b.run.start()
}

// execute starts runs as a list, which is the one of the last time if it had the same.
func (l *live) execute(piece []*bound) (wait func(context.Context) error, err error) {
	if l.list == nil {
		if l.list, err = l.hw.list(); err != nil {
			return nil, err
		}
	}
	if !slices.Equal(l.listed, piece) {
		if err := l.unlist(); err != nil {
			return nil, err
		}
		for _, b := range piece {
			if err := l.list.add(b.run); err != nil {
				return nil, err
			}
			b.in = true
			l.listed = append(l.listed, b)
		}
	}
	return l.list.wait, l.list.execute()
}

// XRT sends a list in chains of 24 commands, which the kernel driver writes into slots of one buffer of 4 KiB: 52 bytes for a slot and the
// command's payload, at most 48 bytes and 8 for every argument (XRT 2.25, xrt_kernel.cpp; xdna-driver 1.8, aie2_msg_priv.h).
const (
	chainLength = 24
	chainBuffer = 4096
	chainSlot   = 52 + 48
)

// pieceLimit is how many runs with so many arguments a list may have.
func pieceLimit(args int) int {
	n := chainBuffer / (chainSlot + 8*args)
	if n >= chainLength {
		return maxPiece
	}
	return max(1, n)
}

// maxPiece bounds a list, so that a cancelled one ends soon.
const maxPiece = 256

// land leaves the turn, and the lock that keeps other processes away, with whoever waits for the device.
func (s *submission) land() {
	d := s.d
	down := make(chan struct{})
	d.flight.Store(&down)
	go func() {
		if err := s.flying(context.Background()); err != nil {
			d.log.Warn("what a cancelled Submit left on the device failed", "error", err)
			d.contexts.abandon(s.in)
		}
		if err := d.lock.unlock(); err != nil {
			d.log.Warn("unlocking the NPU", "error", err)
		}
		d.flight.Store(nil)
		close(down)
		d.leave()
	}()
}

// report gives the piece to a tracer: XRT does not tell when the runs of a list began.
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
