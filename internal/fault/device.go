// Package fault wraps a device so that single launches compute something wrong, on purpose: gates
// and diagnoses are tested with devices that are wrong in one place.
//
// The wrapped device executes programs launch by launch on the real one, and hands each launch to a
// [Fault], which may change the launch, its operands before it runs, or its result.
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

// Find returns the fault of a launch, or nil if it has none.
type Find func(*Step) Fault

// Always returns the argument of Wrap for faults in every program.
func Always(find Find) func(context.Context) Find {
	return func(context.Context) Find { return find }
}

// Wrap returns a device that computes with dev and adds faults. Inject returns the faults of a
// program that is loaded under ctx; if it returns nil, the program is loaded on dev as it is. If
// dev is hosted, so is the result, with the same faults in the host's programs.
//
// Dev must be able to load any launch by itself, which a device with artifacts of merged programs
// is not.
func Wrap(dev npu.Device, inject func(ctx context.Context) Find) npu.Device {
	d := &device{Device: dev, inject: inject, mu: &sync.Mutex{}}
	if h, ok := dev.(npu.Hosted); ok {
		return &hosted{d, &device{Device: h.Host(), inject: inject, mu: d.mu}}
	}
	return d
}

type device struct {
	npu.Device
	inject func(ctx context.Context) Find

	mu *sync.Mutex // one Submit at a time: faults have state
}

type hosted struct {
	*device
	host npu.Device
}

// Host returns the host's device, with the same faults.
func (h *hosted) Host() npu.Device { return h.host }

// Load loads every launch by itself if the program has faults.
func (d *device) Load(ctx context.Context, p *npu.Program) (npu.Executable, error) {
	find := d.inject(ctx)
	if find == nil {
		return d.Device.Load(ctx, p)
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	e := newExecutable(p, find)
	for i, l := range p.Launches {
		one, err := e.load(ctx, d.Device, i, l)
		if err != nil {
			return nil, errors.Join(err, e.Close())
		}
		e.right = append(e.right, one)
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
	for i, l := range e.p.Launches {
		s := newStep(e, l, r, bufs)
		run := func() error { return d.run(ctx, e, i, s, r) }
		if f := e.find(s); f != nil {
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

// run executes launch i as the step has it now.
func (d *device) run(ctx context.Context, e *executable, i int, s *Step, r *npu.Run) error {
	one := e.right[i]
	if s.changed() {
		var err error
		if one, err = e.wrong(ctx, d.Device, i, s.Launch); err != nil {
			return err
		}
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
