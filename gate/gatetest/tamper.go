package gatetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// step is a launch before it runs.
type step struct {
	name     string // the run's name and the launch's: "layer.3.attn.q_rope"
	alone    bool   // the only launch of its program
	op       op.Op
	operands []piece
	segments []npu.Segment // may be replaced
}

// out returns the launch's output; it has no rows if that is a cache.
func (s *step) out() piece { return s.operands[written(s.op)] }

// fault replaces the execution of a launch, which run performs.
type fault func(s *step, run func() error) error

// tampered is a device that executes programs launch by launch on another one, so that a fault can
// wrap each. The other device must be able to load a launch by itself, which one with artifacts of
// merged programs is not.
type tampered struct {
	npu.Device
	find func(*step) fault // returns nil for a launch without a fault

	mu *sync.Mutex // one Submit at a time: faults have state
}

// tamper wraps a device, and the host of a hosted one with the same faults.
func tamper(dev npu.Device, find func(*step) fault) npu.Device {
	t := &tampered{Device: dev, find: find, mu: &sync.Mutex{}}
	if h, ok := dev.(npu.Hosted); ok {
		return &tamperedHosted{t, &tampered{Device: h.Host(), find: find, mu: t.mu}}
	}
	return t
}

type tamperedHosted struct {
	*tampered
	host npu.Device
}

// Host returns the host's device, with the same faults.
func (t *tamperedHosted) Host() npu.Device { return t.host }

// single is a loaded launch.
type single struct {
	exec   npu.Executable
	args   []int // the launch's arguments as indices of the whole program's
	states []int // its State arguments as indices among the whole program's
}

// dissected is a program loaded launch by launch.
type dissected struct {
	p *npu.Program
	// the program's, plus one for the scratch rows of each weight that has them, which no launch
	// alone may write
	args    []npu.Arg
	views   [][]int // per launch, the argument of each view
	singles []single
	scratch []npu.Buffer // per argument, for runs without a buffer for it
}

// newDissected turns the scratch rows of weights into arguments.
func newDissected(p *npu.Program) *dissected {
	e := &dissected{p: p, args: slices.Clone(p.Args)}
	rows := map[int]int{}
	for i, a := range p.Args {
		if a.ScratchRows > 0 {
			rows[i] = len(e.args)
			e.args[i].ScratchRows = 0
			shape := append([]int{a.ScratchRows}, a.Shape[1:]...)
			e.args = append(e.args, npu.Arg{Kind: npu.Scratch, Name: a.Name + ".rows", Type: a.Type,
				Shape: shape})
		}
	}
	for _, l := range p.Launches {
		var list []int
		for _, v := range l.Args {
			at := v.Arg
			if x, ok := rows[v.Arg]; ok && v.Offset < (op.Size{}).Elements(e.args[x].Shape) {
				at = x
			}
			list = append(list, at)
		}
		e.views = append(e.views, list)
	}
	e.scratch = make([]npu.Buffer, len(e.args))
	return e
}

func (e *dissected) Program() *npu.Program { return e.p }

// Close closes the launches and the scratch buffers.
func (e *dissected) Close() error {
	var list []error
	for _, s := range e.singles {
		list = append(list, s.exec.Close())
	}
	for i, b := range e.scratch {
		if b != nil {
			list = append(list, b.Close())
			e.scratch[i] = nil
		}
	}
	return errors.Join(list...)
}

// Load loads every launch by itself.
func (t *tampered) Load(ctx context.Context, p *npu.Program) (npu.Executable, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	e := newDissected(p)
	for i := range p.Launches {
		s, sub := e.dissect(i)
		if len(p.Launches) == 1 {
			sub = p // a device may look up its artifact
		}
		var err error
		if s.exec, err = t.Device.Load(ctx, sub); err != nil {
			return nil, errors.Join(err, e.Close())
		}
		e.singles = append(e.singles, s)
	}
	return e, nil
}

// dissect returns a program with launch i only. What it reads becomes an input unless it is a
// weight or a cache; what it writes becomes scratch, for which a run may pass a buffer. An argument
// that is both appears twice with the same buffer.
func (e *dissected) dissect(i int) (single, *npu.Program) {
	p := e.p
	if len(p.Launches) == 1 {
		var s single
		for a, arg := range p.Args {
			s.args = append(s.args, a)
			if arg.Kind == npu.State {
				s.states = append(s.states, len(s.states))
			}
		}
		return s, p
	}
	l := p.Launches[i]
	sub := npu.NewProgram(p.Name + "." + l.Name)
	type use struct {
		arg   int
		write bool
	}
	var s single
	index := map[use]int{}
	launch := npu.Launch{Name: l.Name, Op: l.Op, Mapping: l.Mapping}
	for j, operand := range l.Op.Operands() {
		v := l.Args[j]
		from := e.views[i][j]
		a := e.args[from]
		u := use{from, operand.Write && a.Kind != npu.State}
		at, ok := index[u]
		if !ok {
			kind, name := a.Kind, a.Name
			switch {
			case u.write:
				kind, name = npu.Scratch, a.Name+".written"
			case a.Kind == npu.Out || a.Kind == npu.Scratch:
				kind = npu.In
			}
			at = len(s.args)
			index[u] = at
			s.args = append(s.args, from)
			sub.Arg(kind, name, a.Type, a.Shape...)
			if kind == npu.State {
				n := 0
				for _, b := range p.Args[:v.Arg] {
					if b.Kind == npu.State {
						n++
					}
				}
				s.states = append(s.states, n)
			}
		}
		v.Arg = at
		launch.Args = append(launch.Args, v)
	}
	sub.Launches = append(sub.Launches, launch)
	return s, sub
}

// Submit executes the runs launch by launch.
func (t *tampered) Submit(ctx context.Context, runs []npu.Run) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range runs {
		if err := t.submit(ctx, &runs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *tampered) submit(ctx context.Context, r *npu.Run) error {
	e, ok := r.Exec.(*dissected)
	if !ok {
		return fmt.Errorf("gatetest: run %q: its program was loaded on another device", r.Name)
	}
	if err := r.Check(); err != nil {
		return err
	}
	size := r.Size()
	bufs := append(slices.Clone(r.Args), make([]npu.Buffer, len(e.args)-len(r.Args))...)
	for i, a := range e.args {
		if bufs[i] != nil || a.Kind != npu.Scratch {
			continue
		}
		n := a.Type.Bytes(size.Elements(a.Shape))
		if b := e.scratch[i]; b == nil || b.Len() < n {
			grown, err := t.Alloc(ctx, n)
			if err == nil && b != nil {
				err = b.Close()
			}
			if err != nil {
				return err
			}
			e.scratch[i] = grown
		}
		bufs[i] = e.scratch[i]
	}
	for i, one := range e.singles {
		l := e.p.Launches[i]
		s := &step{name: l.Name, alone: len(e.singles) == 1, op: l.Op, segments: r.Segments}
		if r.Name != "" {
			s.name = r.Name + "." + l.Name
		}
		for j, v := range l.Args {
			from := e.views[i][j]
			s.operands = append(s.operands, newPiece(e.p, v, e.args[from], bufs[from], size))
		}
		run := func() error {
			sub := npu.Run{Name: r.Name, Exec: one.exec, Picks: r.Picks}
			for _, a := range one.args {
				sub.Args = append(sub.Args, bufs[a])
			}
			for _, seg := range s.segments {
				states := seg.State
				seg.State = nil
				for _, n := range one.states {
					seg.State = append(seg.State, states[n])
				}
				sub.Segments = append(sub.Segments, seg)
			}
			return t.Device.Submit(ctx, []npu.Run{sub})
		}
		f := t.find(s)
		if f == nil {
			f = func(_ *step, run func() error) error { return run() }
		}
		if err := f(s, run); err != nil {
			return err
		}
	}
	return nil
}

// piece is an operand of a launch as rows; a cache or a weight has none.
type piece struct {
	buf                 npu.Buffer
	typ                 dtype.Type
	at                  int // offset in elements
	rows, width, stride int
}

func newPiece(p *npu.Program, v npu.View, a npu.Arg, buf npu.Buffer, size op.Size) piece {
	if a.Kind == npu.State || a.Kind == npu.Const {
		return piece{}
	}
	shape, _ := p.Shape(v)
	x := piece{buf: buf, typ: a.Type, at: v.Offset, rows: 1, width: size.Resolve(shape[len(shape)-1]),
		stride: v.Stride}
	for _, d := range shape[:len(shape)-1] {
		x.rows *= size.Resolve(d)
	}
	if x.stride == 0 {
		x.stride = x.width
	}
	return x
}

// same reports whether two pieces are the same memory.
func (x piece) same(y piece) bool { return x.buf == y.buf && x.at == y.at }

// get reads the values [rows, width].
func (x piece) get() ([]float32, error) {
	if err := x.buf.Sync(npu.FromDevice, 0, x.buf.Len()); err != nil {
		return nil, err
	}
	values := make([]float32, x.rows*x.width)
	for r := range x.rows {
		if err := dtype.Dequantize(values[r*x.width:][:x.width], x.typ, x.bytes(r)); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// put writes values [rows, width], rounded to the type.
func (x piece) put(values []float32) error {
	row := make([]float32, x.width)
	for r := range x.rows {
		copy(row, values[r*x.width:])
		copy(x.bytes(r), encode(x.typ, row))
	}
	return x.buf.Sync(npu.ToDevice, 0, x.buf.Len())
}

func (x piece) bytes(r int) []byte {
	from := x.typ.Bytes(x.at + r*x.stride)
	return x.buf.Bytes()[from:][:x.typ.Bytes(x.width)]
}

// edit runs the launch and changes its output.
func edit(change func(y []float32, width int)) fault {
	return func(s *step, run func() error) error {
		if err := run(); err != nil {
			return err
		}
		y, err := s.out().get()
		if err != nil {
			return err
		}
		change(y, s.out().width)
		return s.out().put(y)
	}
}
