package cpu

import (
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/npukit/npukit/internal/defect"
	"github.com/npukit/npukit/npu/cpu/internal/kernel"
	"github.com/npukit/npukit/npu/op"
)

// A program that was loaded under a context with a defect runs with it: tests of gates and
// diagnoses need a device that is wrong in one place. Such contexts cannot be created outside the
// module. Load checks once whether there is one.

// hostCall is work on the host between commands: the kernel of a defect.
type hostCall struct {
	before int // index of the command that it precedes
	run    func()
}

// lowerDefect appends the commands of a launch in a program with a defect.
func (b *builder) lowerDefect(l *launch) error {
	d := b.exec.defect
	if l.op.Kind() != d.Op || !d.In(b.run.Name+"."+l.name) {
		return b.lower(l)
	}
	wrong := b.rewrite(l)
	if !d.Replaces() {
		if err := b.lower(&wrong); err != nil {
			return err
		}
	}
	if d.Computes() {
		k := b.kernel(&wrong)
		b.calls = append(b.calls, hostCall{len(b.cmds), func() { d.Compute(k) }})
		b.packed.panels = nil // the host may be about to write what they were packed from
	}
	return nil
}

// rewrite returns the launch with the defect.
func (b *builder) rewrite(l *launch) launch {
	views := func(l *launch) []defect.View {
		var list []defect.View
		for _, o := range l.operands {
			list = append(list, defect.View{Arg: o.arg, Offset: int(o.offset), Stride: int(o.stride)})
		}
		return list
	}
	w := defect.Launch{Op: l.op, Views: views(l), Other: func(name string) []defect.View {
		for i := range b.exec.launches {
			if other := &b.exec.launches[i]; other.name == name {
				return views(other)
			}
		}
		return nil
	}}
	b.exec.defect.Rewrite(&w)
	out := launch{name: l.name, op: w.Op}
	for i, want := range w.Op.Operands() {
		v := w.Views[i]
		// weights stay in place
		if e := b.exec; v.Before && v.Arg < len(e.before) && e.before[v.Arg].constant {
			b.bound = append(b.bound, e.before[v.Arg])
			v.Arg = len(b.bound) - 1
		}
		out.operands = append(out.operands, operand{
			arg: v.Arg, offset: int64(v.Offset), shape: want.Shape, stride: int64(v.Stride),
			read: want.Read, write: want.Write})
	}
	return out
}

// kernel returns a launch with its memory, in the form that a defect takes.
func (b *builder) kernel(l *launch) *defect.Kernel {
	k := &defect.Kernel{Op: l.op, Operands: make([]defect.Matrix, len(l.operands))}
	for i := range l.operands {
		if !isCache(l.op, i) {
			k.Operands[i] = b.matrix(&l.operands[i])
		}
	}
	// padding rows count
	if o, ok := l.op.(op.Attention); ok && !o.Cached && len(b.run.Segments) < 2 {
		k.Segments = []defect.Segment{{Rows: b.size.Resolve(o.Rows)}}
		return k
	}
	row := 0
	for i := range b.run.Segments {
		s := &b.run.Segments[i]
		seg := defect.Segment{Row: row, Rows: s.Rows, Pos: s.Pos, Caches: make([]defect.Matrix, len(l.operands))}
		for j := range l.operands {
			if o := &l.operands[j]; isCache(l.op, j) {
				buf := s.State[b.exec.states[o.arg]].(*buffer)
				typ, hd := b.exec.p.Args[o.arg].Type, o.shape[len(o.shape)-1]
				seg.Caches[j] = defect.Matrix{Type: typ, Data: buf.data, Rows: len(buf.data) / typ.Bytes(hd), Width: hd, Stride: hd}
			}
		}
		k.Segments = append(k.Segments, seg)
		row += s.Rows
	}
	return k
}

// matrix returns the memory of an operand.
func (b *builder) matrix(o *operand) defect.Matrix {
	x := &b.bound[o.arg]
	b.widen(x)
	m := defect.Matrix{Type: x.typ, Rows: 1}
	last := len(o.shape) - 1
	for _, d := range o.shape[:last] {
		m.Rows *= b.size.Resolve(d)
	}
	m.Width = b.size.Resolve(o.shape[last])
	m.Stride = int(o.stride)
	if len(o.shape) != 2 {
		m.Stride = m.Width
	}
	size := kernel.TypeBytes[x.code]
	first := (*byte)(unsafe.Add(unsafe.Pointer(x.mem), o.offset*size))
	m.Data = unsafe.Slice(first, ((m.Rows-1)*m.Stride+m.Width)*int(size))
	return m
}

// execute runs the commands and, between them, the defect's host calls.
func (b *builder) execute(cancel *uint32, trace bool) (cancelled bool, err error) {
	if len(b.calls) == 0 {
		return b.engine.Run(b.cmds, cancel, trace)
	}
	began := time.Now()
	from := 0
	for i := range len(b.calls) + 1 {
		to := len(b.cmds)
		if i < len(b.calls) {
			to = b.calls[i].before
		}
		if from < to {
			gone := int64(time.Since(began))
			if cancelled, err := b.engine.Run(b.cmds[from:to], cancel, trace); cancelled || err != nil {
				return cancelled, err
			}
			for j := range b.cmds[from:to] {
				b.cmds[from+j].Start += gone
				b.cmds[from+j].End += gone
			}
			from = to
		}
		if i < len(b.calls) && atomic.LoadUint32(cancel) == 0 {
			b.calls[i].run()
		}
	}
	return atomic.LoadUint32(cancel) != 0, nil
}
