package npu

import (
	"slices"

	"github.com/npukit/npukit/npu/op"
)

// Debug is the program's debug form: the same launches, and every scratch argument that they fill has become an output, at the same index. What was
// hidden between launches can then be read after a run. Scratch that nothing writes, or only in part, stays what it is.
func (p *Program) Debug() *Program {
	d := &Program{Name: p.Name, Instance: p.Instance, Args: slices.Clone(p.Args), Launches: p.Launches}
	for i, a := range p.Args {
		if a.Kind == Scratch && p.writtenBefore(len(p.Launches), View{Arg: i}) {
			d.Args[i].Kind = Out
		}
	}
	return d
}

// Tap is a place where the output of a launch can be read after a run of a debug form.
type Tap struct {
	Launch string // name of the launch
	View   View   // where its output lies
}

// Taps lists what can be read after a run of a debug form, in the order of the launches. Left out are outputs that a later launch overwrites, and those
// that go into a cache or a constant's scratch rows.
func (p *Program) Taps() []Tap {
	var taps []Tap
	for i, l := range p.Launches {
		v, ok := written(l)
		if !ok || p.Args[v.Arg].Kind != Out {
			continue
		}
		over := slices.ContainsFunc(p.Launches[i+1:], func(m Launch) bool {
			w, ok := written(m)
			return ok && p.overlap(v, w)
		})
		if !over {
			taps = append(taps, Tap{Launch: l.Name, View: v})
		}
	}
	return taps
}

// written is the view that a launch writes.
func written(l Launch) (View, bool) {
	for i, o := range l.Op.Operands() {
		if o.Write {
			return l.Args[i], true
		}
	}
	return View{}, false
}

// overlap reports whether two views may share an element: whether the ranges from their first to their last element do.
func (p *Program) overlap(a, b View) bool {
	if a.Arg != b.Arg {
		return false
	}
	end := func(v View) int {
		shape, stride := p.viewShape(v)
		one := op.Size{Rows: 1, Picks: 1, Capacity: 1}
		if len(shape) < 2 || symbols(shape) != [3]int{} {
			return v.Offset + one.Elements(shape)
		}
		return v.Offset + (shape[0]-1)*stride + one.Elements(shape[1:])
	}
	return a.Offset < end(b) && b.Offset < end(a)
}
