package sim

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// executable is a program loaded on the device. It holds a hardware context from its first run
// until the context is evicted or the executable is closed.
type executable struct {
	d         *Device
	p         *npu.Program
	epoch     int // Device.epoch when it was loaded
	predicted prediction
	states    []int  // index among the State arguments, or -1, by argument
	written   []bool // whether a launch writes the argument, by argument

	slots []slot
	steps []step

	closed atomic.Bool
}

// step is one piece of a program: a function of this package, or launches that run as one program
// on the software device.
type step struct {
	launch int // index of the first launch
	run    func(f *frame) error
}

func (e *executable) Program() *npu.Program { return e.p }

// Close releases the hardware context.
func (e *executable) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	e.d.contexts.Drop(e)
	return nil
}

// Load prepares a program. It returns an [*xdna2.ResourceError] if the array cannot run it; the
// error names the rule and what would fit. More programs may be loaded than there are hardware
// contexts; see the package documentation.
func (d *Device) Load(ctx context.Context, p *npu.Program) (npu.Executable, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := check(p); err != nil {
		return nil, err
	}
	return d.place(ctx, p)
}

// place prepares a program without checking whether it fits the array.
func (d *Device) place(ctx context.Context, p *npu.Program) (*executable, error) {
	e := &executable{d: d, p: p, states: make([]int, len(p.Args)), written: make([]bool, len(p.Args))}
	var err error
	if e.predicted, err = d.clock.program(p); err != nil {
		return nil, fmt.Errorf("npu/sim: %w", err)
	}
	if err := e.lower(ctx); err != nil {
		return nil, fmt.Errorf("npu/sim: program %s: %w", p.Name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	e.epoch = d.epoch
	return e, nil
}

// lower translates the launches into steps.
func (e *executable) lower(ctx context.Context) error {
	l := lowering{ctx: ctx, e: e, scratchRows: map[int]int{}}
	n := 0
	for i, a := range e.p.Args {
		s := slot{kind: slotArg, typ: a.Type, shape: a.Shape, arg: i}
		e.states[i] = -1
		switch {
		case a.Kind == npu.State:
			e.states[i] = n
			n++
		case a.Kind == npu.Const && a.Type != dtype.I32:
			s.typ = dtype.BF16
		}
		e.slots = append(e.slots, s)
	}
	for i, a := range e.p.Args {
		if a.ScratchRows > 0 { // separate memory, because the weight below them is shared
			l.scratchRows[i] = l.slot(slot{kind: slotTemp, typ: dtype.BF16,
				shape: append([]int{a.ScratchRows}, a.Shape[1:]...), arg: i})
		}
	}
	for i := 0; i < len(e.p.Launches); i++ {
		if l.cascade(i) {
			l.wrote(i)
			i++
		} else if err := l.launch(i); err != nil {
			return fmt.Errorf("launch %q: %w", e.p.Launches[i].Name, err)
		}
		l.wrote(i)
	}
	return l.flush()
}

// lowering is the state of lowering one program.
type lowering struct {
	ctx         context.Context
	e           *executable
	scratchRows map[int]int  // slot of the scratch rows of a Const argument
	pending     []hostLaunch // launches of the step being built
	first       int          // launch index of pending[0]

	// The activations quantized last, so that the q, k and v projections share them. Valid if
	// quantized is set.
	quantized  bool
	source     operand
	activation operand
}

// hostLaunch is a launch for the software device.
type hostLaunch struct {
	name     string
	op       op.Op
	operands []operand
}

// slot adds a slot and returns its index.
func (l *lowering) slot(s slot) int {
	l.e.slots = append(l.e.slots, s)
	return len(l.e.slots) - 1
}

// temp adds temporary memory of the given type and shape.
func (l *lowering) temp(arg int, t dtype.Type, shape ...int) operand {
	return operand{slot: l.slot(slot{kind: slotTemp, typ: t, shape: shape, arg: arg})}
}

// on adds a step that is computed by run.
func (l *lowering) on(launch int, run func(f *frame) error) error {
	if err := l.flush(); err != nil {
		return err
	}
	l.e.steps = append(l.e.steps, step{launch, run})
	return nil
}

// onHost adds a launch for the software device to the pending step.
func (l *lowering) onHost(launch int, o op.Op, operands ...operand) {
	if len(l.pending) == 0 {
		l.first = launch
	}
	l.pending = append(l.pending, hostLaunch{fmt.Sprintf("%s.%d", l.e.p.Launches[launch].Name,
		len(l.pending)), o, operands})
}

// flush makes one software-device program of the pending launches. Each slot becomes one argument
// for reads and one for writes; the device finds dependencies by comparing memory ranges.
func (l *lowering) flush() error {
	if len(l.pending) == 0 {
		return nil
	}
	type key struct {
		slot  int
		write bool
	}
	p := npu.NewProgram(l.e.p.Name)
	index := map[key]int{}
	var from []int // slot by argument
	for _, h := range l.pending {
		launch := npu.Launch{Name: h.name, Op: h.op}
		for i, want := range h.op.Operands() {
			o := h.operands[i]
			s := &l.e.slots[o.slot]
			kind := npu.In
			switch {
			case s.kind == slotArg && l.e.p.Args[s.arg].Kind == npu.State:
				kind = npu.State
			case want.Write:
				kind = npu.Scratch
			case s.kind == slotForm || s.kind == slotArg && l.e.p.Args[s.arg].Kind == npu.Const:
				kind = npu.Const
			}
			k := key{o.slot, kind == npu.Scratch}
			arg, ok := index[k]
			if !ok {
				arg = len(p.Args)
				index[k] = arg
				from = append(from, o.slot)
				p.Arg(kind, fmt.Sprintf("%d.%s", o.slot, kind), s.typ, s.shape...)
			}
			o.view.Arg = arg
			launch.Args = append(launch.Args, o.view)
		}
		p.Launches = append(p.Launches, launch)
	}
	exec, err := l.e.d.host.Load(l.ctx, p)
	if err != nil {
		return err
	}
	var states []int // index of the State argument in the whole program, by State argument of p
	for i, a := range p.Args {
		if a.Kind == npu.State {
			states = append(states, l.e.states[from[i]])
		}
	}
	l.e.steps = append(l.e.steps, step{l.first, func(f *frame) error {
		run := npu.Run{Exec: exec, Args: make([]npu.Buffer, len(from))}
		for i, s := range from {
			run.Args[i] = f.bufs[s]
		}
		for _, seg := range f.run.Segments {
			s := npu.Segment{Rows: seg.Rows, Pos: seg.Pos}
			for _, i := range states {
				s.State = append(s.State, seg.State[i].(*buffer).dev)
			}
			run.Segments = append(run.Segments, s)
		}
		return f.d.host.Submit(f.ctx, []npu.Run{run})
	}})
	l.pending = nil
	return nil
}

var errSegments = errors.New("the run has several segments: array programs take the rows of one session")
