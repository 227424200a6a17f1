package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// single is a launch that is loaded by itself.
type single struct {
	exec   npu.Executable
	args   []int // its arguments as indices of executable.args
	states []int // its State arguments as indices among the program's
}

// executable is a program that is loaded launch by launch.
type executable struct {
	p    *npu.Program
	find Find
	// the program's arguments, plus one for the scratch rows of each weight that has them, which no
	// launch alone may write
	args     []npu.Arg
	rows     map[int]int // from weights with scratch rows to their arguments
	right    []single    // the launches as they are
	changed  map[string]single
	scratch  []npu.Buffer // per argument, for runs without a buffer for it
	previous []npu.Buffer // per argument, in the previous run; nil before the first
}

// newExecutable turns the scratch rows of weights into arguments.
func newExecutable(p *npu.Program, find Find) *executable {
	e := &executable{p: p, find: find, args: slices.Clone(p.Args), rows: map[int]int{},
		changed: map[string]single{}}
	for i, a := range p.Args {
		if a.ScratchRows > 0 {
			e.rows[i] = len(e.args)
			e.args[i].ScratchRows = 0
			shape := append([]int{a.ScratchRows}, a.Shape[1:]...)
			e.args = append(e.args, npu.Arg{Kind: npu.Scratch, Name: a.Name + ".rows", Type: a.Type,
				Shape: shape})
		}
	}
	e.scratch = make([]npu.Buffer, len(e.args))
	return e
}

func (e *executable) Program() *npu.Program { return e.p }

// Close closes the launches and the scratch buffers.
func (e *executable) Close() error {
	var list []error
	for _, s := range e.right {
		list = append(list, s.exec.Close())
	}
	for _, s := range e.changed {
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

// arg returns the index in e.args of the argument of a view.
func (e *executable) arg(v npu.View) int {
	if x, ok := e.rows[v.Arg]; ok && v.Offset < (op.Size{}).Elements(e.args[x].Shape) {
		return x
	}
	return v.Arg
}

// buffers returns the run's buffers by argument, with scratch where it has none.
func (e *executable) buffers(
	ctx context.Context, dev npu.Device, r *npu.Run,
) ([]npu.Buffer, error) {
	bufs := append(slices.Clone(r.Args), make([]npu.Buffer, len(e.args)-len(r.Args))...)
	for i, a := range e.args {
		if bufs[i] != nil || a.Kind != npu.Scratch {
			continue
		}
		n := a.Type.Bytes(r.Size().Elements(a.Shape))
		if b := e.scratch[i]; b == nil || b.Len() < n {
			grown, err := dev.Alloc(ctx, n)
			if err == nil && b != nil {
				err = b.Close()
			}
			if err != nil {
				return nil, err
			}
			e.scratch[i] = grown
		}
		bufs[i] = e.scratch[i]
	}
	return bufs, nil
}

// wrong returns launch i with other parameters or operands, which it loads once.
func (e *executable) wrong(
	ctx context.Context, dev npu.Device, i int, l npu.Launch,
) (single, error) {
	key := fmt.Sprintf("%d %s%+v %v", i, l.Op.Kind(), l.Op, l.Args)
	if s, ok := e.changed[key]; ok {
		return s, nil
	}
	s, err := e.load(ctx, dev, i, l)
	if err == nil {
		e.changed[key] = s
	}
	return s, err
}

// load loads l in place of launch i.
func (e *executable) load(
	ctx context.Context, dev npu.Device, i int, l npu.Launch,
) (s single, err error) {
	p := e.p
	if len(p.Launches) == 1 && sameLaunch(l, p.Launches[i]) {
		for a, arg := range p.Args { // a device may look up the program's artifact
			s.args = append(s.args, a)
			if arg.Kind == npu.State {
				s.states = append(s.states, len(s.states))
			}
		}
	} else {
		s, p = e.alone(l)
	}
	s.exec, err = dev.Load(ctx, p)
	return s, err
}

// alone returns a program with one launch. What the launch reads becomes an input unless it is a
// weight or a cache; what it writes becomes scratch, for which a run may pass a buffer. An argument
// that is both appears twice with the same buffer.
func (e *executable) alone(l npu.Launch) (single, *npu.Program) {
	sub := npu.NewProgram(e.p.Name + "." + l.Name)
	type use struct {
		arg   int
		write bool
	}
	var s single
	index := map[use]int{}
	launch := npu.Launch{Name: l.Name, Op: l.Op, Mapping: l.Mapping}
	for j, operand := range l.Op.Operands() {
		v := l.Args[j]
		from := e.arg(v)
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
				s.states = append(s.states, e.state(v.Arg))
			}
		}
		v.Arg = at
		launch.Args = append(launch.Args, v)
	}
	sub.Launches = append(sub.Launches, launch)
	return s, sub
}

// state returns the index of a State argument among the program's.
func (e *executable) state(arg int) (n int) {
	for _, a := range e.p.Args[:arg] {
		if a.Kind == npu.State {
			n++
		}
	}
	return n
}
