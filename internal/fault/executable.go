package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// part is adjacent launches that are loaded together: one that may have a fault, or several
// without.
type part struct {
	launches []npu.Launch
	exec     npu.Executable
	args     []int // its arguments as indices of executable.args
	states   []int // its State arguments as indices among the program's
}

// executable is a program that is loaded in parts.
type executable struct {
	p      *npu.Program
	faults *Faults
	// the program's arguments, plus one for the scratch rows of each weight that has them, which no
	// launch alone may write
	args     []npu.Arg
	rows     map[int]int // from weights with scratch rows to their arguments
	parts    []part
	changed  map[string]part // launches that faults have changed
	scratch  []npu.Buffer    // per argument, for runs without a buffer for it
	previous []npu.Buffer    // per argument, in the previous run; nil before the first
}

// newExecutable turns the scratch rows of weights into arguments.
func newExecutable(p *npu.Program, faults *Faults) *executable {
	e := &executable{p: p, faults: faults, args: slices.Clone(p.Args), rows: map[int]int{},
		changed: map[string]part{}}
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
	for _, s := range e.parts {
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

// may reports whether a launch can have a fault.
func (e *executable) may(l npu.Launch) bool { return e.faults.May == nil || e.faults.May(l) }

// end returns the end of the part that begins with launch from.
func (e *executable) end(from int) int {
	to := from + 1
	if e.may(e.p.Launches[from]) {
		return to
	}
	for to < len(e.p.Launches) && !e.may(e.p.Launches[to]) {
		to++
	}
	return to
}

// wrong returns a launch that a fault has changed, and loads it the first time.
func (e *executable) wrong(ctx context.Context, dev npu.Device, l npu.Launch) (part, error) {
	key := fmt.Sprintf("%s %s%+v %v", l.Name, l.Op.Kind(), l.Op, l.Args)
	if one, ok := e.changed[key]; ok {
		return one, nil
	}
	one, err := e.load(ctx, dev, []npu.Launch{l})
	if err == nil {
		e.changed[key] = one
	}
	return one, err
}

// load loads launches as a program.
func (e *executable) load(
	ctx context.Context, dev npu.Device, launches []npu.Launch,
) (one part, err error) {
	p := e.p
	if len(p.Launches) == len(launches) && sameLaunch(launches[0], p.Launches[0]) {
		one.launches = launches
		for a, arg := range p.Args { // a device may look up the program's artifact
			one.args = append(one.args, a)
			if arg.Kind == npu.State {
				one.states = append(one.states, len(one.states))
			}
		}
	} else {
		one, p = e.alone(launches)
	}
	one.exec, err = dev.Load(ctx, p)
	return one, err
}

// alone returns a program with some launches. Their operands become inputs unless they are weights
// or caches; their results become scratch, for which a run may pass a buffer. An argument that
// is both appears twice with the same buffer.
func (e *executable) alone(launches []npu.Launch) (part, *npu.Program) {
	sub := npu.NewProgram(e.p.Name + "." + launches[0].Name)
	type use struct {
		arg   int
		write bool
	}
	one := part{launches: launches}
	index := map[use]int{}
	for _, l := range launches {
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
				at = len(one.args)
				index[u] = at
				one.args = append(one.args, from)
				sub.Arg(kind, name, a.Type, a.Shape...)
				if kind == npu.State {
					one.states = append(one.states, e.state(v.Arg))
				}
			}
			v.Arg = at
			launch.Args = append(launch.Args, v)
		}
		sub.Launches = append(sub.Launches, launch)
	}
	return one, sub
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
