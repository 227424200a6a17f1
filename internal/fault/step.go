package fault

import (
	"reflect"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// Step is a launch that is about to run. A fault may change the fields up to Buffers.
type Step struct {
	Launch   npu.Launch
	Segments []npu.Segment
	Buffers  []npu.Buffer // by argument of the program; of one step alone

	Name     string       // the run's name and the launch's: "layer.3.attn.q_rope"
	Alone    bool         // the only launch of its program
	Previous []npu.Buffer // Buffers in the previous run of the program; nil in the first

	e    *executable
	was  npu.Launch
	size op.Size
}

func newStep(e *executable, l npu.Launch, r *npu.Run, bufs []npu.Buffer) *Step {
	s := &Step{Launch: l, Segments: r.Segments, Buffers: slices.Clone(bufs), Name: l.Name,
		Alone: len(e.p.Launches) == 1, Previous: e.previous, e: e, was: l, size: r.Size()}
	s.Launch.Args = slices.Clone(l.Args)
	if r.Name != "" {
		s.Name = r.Name + "." + l.Name
	}
	return s
}

// changed reports whether the launch is no longer the program's.
func (s *Step) changed() bool { return !sameLaunch(s.Launch, s.was) }

func sameLaunch(a, b npu.Launch) bool {
	return reflect.DeepEqual(a.Op, b.Op) && reflect.DeepEqual(a.Args, b.Args)
}

// Rows returns the number of rows of a dimension in this run.
func (s *Step) Rows(dimension int) int { return s.size.Resolve(dimension) }

// Other returns the views of another launch of the same program, or nil if there is none of that
// name.
func (s *Step) Other(name string) []npu.View {
	for _, l := range s.e.p.Launches {
		if l.Name == name {
			return l.Args
		}
	}
	return nil
}

// Reshape sets the shape of every view to the one that the launch's op expects, after a change of its
// parameters. Rows stay as far apart as they were.
func (s *Step) Reshape() {
	for i, want := range s.Launch.Op.Operands() {
		v := &s.Launch.Args[i]
		shape, stride := s.e.p.Shape(*v)
		if !slices.Equal(shape, want.Shape) {
			v.Shape, v.Stride = slices.Clone(want.Shape), stride
		}
	}
}

// Written returns the index of the operand that an op writes. Programs whose ops write none are not
// valid; for such an op it returns 0.
func Written(o op.Op) int {
	return max(0, slices.IndexFunc(o.Operands(), func(x op.Operand) bool { return x.Write }))
}

// Out returns the launch's output; it has no rows if that is a cache.
func (s *Step) Out() Matrix { return s.Operand(Written(s.Launch.Op)) }

// Operand returns the memory of operand i; it has no rows if that is a cache.
func (s *Step) Operand(i int) Matrix {
	v := s.Launch.Args[i]
	a := s.e.args[s.e.arg(v)]
	if a.Kind == npu.State {
		return Matrix{}
	}
	shape, stride := s.e.p.Shape(v)
	last := len(shape) - 1
	x := Matrix{buf: s.Buffers[s.e.arg(v)], Type: a.Type, at: v.Offset, Rows: 1,
		Width: s.size.Resolve(shape[last]), Stride: stride}
	if a.Kind == npu.Const && a.Type.Quantized() {
		x.Type = blockless // the host sees quantized weights expanded
	}
	for _, d := range shape[:last] {
		x.Rows *= s.size.Resolve(d)
	}
	if len(shape) != 2 {
		x.Stride = x.Width
	}
	return x
}

// Cache returns the memory of operand i in the session of segment n: all heads' rows, one head
// after the other. It has no rows if the operand is no cache.
func (s *Step) Cache(i, n int) Matrix {
	v := s.Launch.Args[i]
	a := s.e.p.Args[v.Arg]
	if a.Kind != npu.State {
		return Matrix{}
	}
	buf, width := s.Segments[n].State[s.e.state(v.Arg)], a.Shape[len(a.Shape)-1]
	return Matrix{buf: buf, Type: a.Type, Rows: buf.Len() / a.Type.Bytes(width), Width: width,
		Stride: width}
}
