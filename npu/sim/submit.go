package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// Categories of the spans that the device reports to a tracer: opening a hardware context, a whole
// run, and its launches. Start times and durations are predicted; the first span starts when Submit
// is called. No span measures how long this machine took.
const (
	spanContext = "predicted context"
	spanRun     = "predicted"
	spanLaunch  = "predicted launch"
)

// Submit executes the runs in order on the device side of their buffers. All runs are checked
// before the first one is executed.
func (d *Device) Submit(ctx context.Context, runs []npu.Run) error {
	if err := d.lock(ctx); err != nil {
		return err
	}
	defer d.unlock()
	for i := range runs {
		if err := d.checkRun(&runs[i]); err != nil {
			return err
		}
	}
	trace := npu.Tracer(ctx)
	quiet := npu.WithTracer(ctx, nil) // spans of the software device would be measurements
	at := time.Now()
	for i := range runs {
		r := &runs[i]
		e := r.Exec.(*executable)
		load, err := d.open(ctx, e)
		if trace != nil && load > 0 {
			trace(npu.Span{Name: e.p.Name, Category: spanContext, Start: at, Duration: micros(load)})
			at = at.Add(micros(load))
		}
		if err == nil {
			err = d.execute(quiet, e, r)
		}
		var unsynced *CoherencyError
		switch {
		case errors.As(err, &unsynced): // its message already names the run
			return err
		case err != nil:
			return fmt.Errorf("npu/sim: run %q of program %s: %w", r.Name, e.p.Name, err)
		}
		d.clock.add(e.predicted.call + e.predicted.run)
		if trace != nil {
			at = e.report(trace, r.Name, at)
		}
	}
	return nil
}

func (d *Device) checkRun(r *npu.Run) error {
	if err := r.Check(); err != nil {
		return err
	}
	e, ok := r.Exec.(*executable)
	if !ok || e.d != d {
		return fmt.Errorf("npu/sim: run %q: program %s was loaded on another device", r.Name,
			r.Exec.Program().Name)
	}
	if e.closed.Load() {
		return fmt.Errorf("npu/sim: run %q of program %s: %w", r.Name, e.p.Name, npu.ErrClosed)
	}
	return d.alive(e)
}

// alive returns [npu.ErrDeviceLost] if e was loaded before the contexts were lost.
func (d *Device) alive(e *executable) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.epoch != d.epoch {
		return fmt.Errorf("npu/sim: program %s: %w", e.p.Name, npu.ErrDeviceLost)
	}
	return nil
}

// open opens a hardware context for e if it has none, evicting the least recently used one if
// necessary. It advances the clock by the predicted time, even if the run fails later, and returns
// that time in microseconds.
func (d *Device) open(ctx context.Context, e *executable) (float64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if err := d.alive(e); err != nil { // an earlier run may have lost the contexts
		return 0, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.contexts.Alive(e) && d.faults.happens(d.faults.f.NoContext) {
		return 0, fmt.Errorf("%w (injected fault)", npu.ErrNoContext)
	}
	if !d.contexts.Use(e) {
		return 0, nil
	}
	d.opened++
	load := d.clock.model.Host.ContextLoad
	d.clock.add(load)
	return load, nil
}

// execute computes one run.
func (d *Device) execute(ctx context.Context, e *executable, r *npu.Run) error {
	switch {
	case d.faults.happens(d.faults.f.Lost):
		d.mu.Lock()
		defer d.mu.Unlock()
		d.epoch++
		d.contexts.Clear()
		return fmt.Errorf("%w (injected fault)", npu.ErrDeviceLost)
	case d.faults.happens(d.faults.f.Timeout):
		return fmt.Errorf("%w (injected fault)", npu.ErrTimeout)
	}
	f := &frame{compute: compute{ctx, d.info.Threads}, d: d, e: e, run: r}
	if err := f.bind(); err != nil {
		return err
	}
	if err := f.coherent(); err != nil {
		return err
	}
	if !d.opts.Timing {
		for _, s := range e.steps {
			if err := s.run(f); err != nil {
				return fmt.Errorf("launch %q: %w", e.p.Launches[s.launch].Name, err)
			}
		}
		d.faults.flip(f.outputs())
	}
	return nil
}

// coherent returns a CoherencyError if debug mode is on and the program reads an argument that
// lacks a sync. It also marks the bytes that the program is about to write as dirty.
func (f *frame) coherent() error {
	size := op.Size{}
	for i, a := range f.e.p.Args {
		if a.Kind == npu.State || f.run.Args[i] == nil {
			continue
		}
		b := f.run.Args[i].(*buffer)
		if n := a.Type.Bytes(size.Elements(a.Shape)); f.d.opts.Debug && !f.e.written[i] && b.host != nil {
			if at := b.changed(n); at >= 0 {
				return &CoherencyError{f.run.Name, f.e.p.Name, a.Name, npu.ToDevice, at, ""}
			}
		}
	}
	for i, a := range f.e.p.Args {
		if f.e.written[i] && a.Kind != npu.State && f.run.Args[i] != nil {
			w := writer{f.run.Name, f.e.p.Name, a.Name}
			missed := f.run.Args[i].(*buffer).wrote(w, ranges{{0, a.Type.Bytes(size.Elements(a.Shape))}})
			if missed != nil && f.d.opts.Debug {
				return missed
			}
		}
	}
	for i, a := range f.e.p.Args {
		if !f.e.written[i] || a.Kind != npu.State {
			continue
		}
		for _, s := range f.run.Segments {
			b := s.State[f.e.states[i]].(*buffer)
			b.wrote(writer{f.run.Name, f.e.p.Name, a.Name}, positions(a, b.size, s.Pos, s.Pos+s.Rows))
		}
	}
	return nil
}

// outputs returns the bytes of the program's outputs.
func (f *frame) outputs() [][]byte {
	var list [][]byte
	for i, a := range f.e.p.Args {
		if a.Kind == npu.Out {
			list = append(list, f.bufs[i].Bytes()[:a.Type.Bytes(op.Size{}.Elements(a.Shape))])
		}
	}
	return list
}

// report sends the predicted spans of a run to trace and returns the predicted end time.
func (e *executable) report(trace func(npu.Span), run string, at time.Time) time.Time {
	prefix := ""
	if run != "" {
		prefix = run + "."
	} else {
		run = e.p.Name
	}
	trace(npu.Span{Name: run, Category: spanRun, Start: at,
		Duration: micros(e.predicted.call + e.predicted.run)})
	at = at.Add(micros(e.predicted.call))
	for _, l := range e.predicted.launches {
		trace(npu.Span{Name: prefix + l.name, Category: spanLaunch, Start: at, Duration: micros(l.us)})
		at = at.Add(micros(l.us))
	}
	return at
}
