// Package fault wraps a device so that single launches compute something wrong, on purpose: gates
// and diagnoses are tested with devices that are wrong in one place.
//
// The wrapped device executes the launches of a program one after the other on the real one, and
// hands those with a [Fault] to it, which may change the launch, its operands, or its result.
package fault

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/npukit/npukit/npu"
)

// Fault replaces the execution of a launch. Run executes s as it is then, with the changes that the
// fault has made to it.
type Fault func(s *Step, run func() error) error

// Faults is the faults of a program.
type Faults struct {
	// Find returns the fault of a launch, or nil if it has none.
	Find func(*Step) Fault
	// May reports whether Find can return a fault for a launch in some run. The launches between
	// two of these execute together. Nil means that every launch can have one.
	May func(npu.Launch) bool
}

// Always returns the argument of Wrap for faults in every program.
func Always(find func(*Step) Fault) func(context.Context) *Faults {
	return func(context.Context) *Faults { return &Faults{Find: find} }
}

// Wrap returns a device that computes with dev and adds faults. Inject returns the faults of a
// program that is loaded under ctx; if it returns nil, the program is loaded on dev as it is. If
// dev is hosted, so is the result, with the same faults in the host's programs.
//
// Dev must be able to load any launch by itself, which a device with artifacts of merged programs
// is not. It must order launches by the memory that they use: in a part of a program, the operands
// read and written are different arguments with the same buffer.
func Wrap(dev npu.Device, inject func(ctx context.Context) *Faults) npu.Device {
	d := &device{Device: dev, inject: inject, mu: &sync.Mutex{}}
	if h, ok := dev.(npu.Hosted); ok {
		return &hosted{d, &device{Device: h.Host(), inject: inject, mu: d.mu}}
	}
	return d
}

type device struct {
	npu.Device
	inject func(ctx context.Context) *Faults

	mu *sync.Mutex // one Submit at a time: faults have state
}

type hosted struct {
	*device
	host npu.Device
}

// Host returns the host's device, with the same faults.
func (h *hosted) Host() npu.Device { return h.host }

// Load loads the program in parts if it has faults.
func (d *device) Load(ctx context.Context, p *npu.Program) (npu.Executable, error) {
	faults := d.inject(ctx)
	if faults == nil {
		return d.Device.Load(ctx, p)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	e := newExecutable(p, faults)
	for from := 0; from < len(p.Launches); {
		to := e.end(from)
		one, err := e.load(ctx, d.Device, p.Launches[from:to])
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
		e.parts = append(e.parts, one)
		from = to
	}
	return e, nil
}

// Submit executes runs of programs with faults launch by launch, and the runs between them
// together.
func (d *device) Submit(ctx context.Context, runs []npu.Run) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := 0; i < len(runs); {
		if e, ok := runs[i].Exec.(*executable); ok {
			if err := d.submit(ctx, e, &runs[i]); err != nil {
				return err
			}
			i++
			continue
		}
		from := i
		for i < len(runs) {
			if _, ok := runs[i].Exec.(*executable); ok {
				break
			}
			i++
		}
		if err := d.Device.Submit(ctx, runs[from:i]); err != nil {
			return err
		}
	}
	return nil
}

func (d *device) submit(ctx context.Context, e *executable, r *npu.Run) error {
	if err := r.Check(); err != nil {
		return err
	}
	bufs, err := e.buffers(ctx, d.Device, r)
	if err != nil {
		return err
	}
	for i := range e.parts {
		one := &e.parts[i]
		s := newStep(e, one.launches[0], r, bufs)
		run := func() error { return d.run(ctx, e, one, s, r) }
		f := Fault(nil)
		if e.may(one.launches[0]) {
			f = e.faults.Find(s)
		}
		if f != nil {
			err = f(s, run)
		} else {
			err = run()
		}
		if err != nil {
			return fmt.Errorf("fault: launch %q: %w", s.Name, err)
		}
	}
	e.previous = bufs
	return nil
}

// run executes a part, or the launch that the step has been changed to.
func (d *device) run(ctx context.Context, e *executable, one *part, s *Step, r *npu.Run) error {
	if s.changed() {
		wrong, err := e.wrong(ctx, d.Device, s.Launch)
		if err != nil {
			return err
		}
		one = &wrong
	}
	sub := npu.Run{Name: r.Name, Exec: one.exec, Picks: r.Picks}
	for _, a := range one.args {
		sub.Args = append(sub.Args, s.Buffers[a])
	}
	for _, seg := range s.Segments {
		states := seg.State
		seg.State = nil
		for _, n := range one.states {
			seg.State = append(seg.State, states[n])
		}
		sub.Segments = append(sub.Segments, seg)
	}
	return d.Device.Submit(ctx, []npu.Run{sub})
}
