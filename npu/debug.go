package npu

import "slices"

// Debug returns the program's debug form: the same launches, with every scratch argument that they
// fill turned into an output at the same index, so that it can be read after a run. Scratch that is
// never or only partly written stays scratch.
func (p *Program) Debug() *Program {
	d := &Program{Name: p.Name, Instance: p.Instance, Args: slices.Clone(p.Args), Launches: p.Launches}
	done := newCoverage(p, len(p.Launches))
	for i, a := range p.Args {
		if a.Kind == Scratch && done.covers(View{Arg: i}) {
			d.Args[i].Kind = Out
		}
	}
	return d
}

// Tap is a launch's output that can be read after a run of a debug form.
type Tap struct {
	Launch string `json:"launch"` // name of the launch
	View   View   `json:"view"`   // its output
}

// Taps lists the readable outputs in the order of the launches, without those that a later launch
// overwrites and those in a cache or a constant's scratch rows.
func (p *Program) Taps() []Tap {
	var taps []Tap
	for i, l := range p.Launches {
		v, ok := written(l)
		if !ok || p.Args[v.Arg].Kind != Out {
			continue
		}
		over := slices.ContainsFunc(p.Launches[i+1:], func(m Launch) bool {
			w, ok := written(m)
			return ok && v.Arg == w.Arg && p.matrix(v).overlaps(p.matrix(w))
		})
		if !over {
			taps = append(taps, Tap{Launch: l.Name, View: v})
		}
	}
	return taps
}

// written returns the view that a launch writes.
func written(l Launch) (View, bool) {
	for i, o := range l.Op.Operands() {
		if o.Write {
			return l.Args[i], true
		}
	}
	return View{}, false
}
