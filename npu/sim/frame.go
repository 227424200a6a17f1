package sim

import (
	"context"
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Steps address memory by slot: first the program's arguments, by index, then the memory that the
// lowering adds. A frame binds the slots to buffers for one run.

// slotKind is the source of a slot's memory.
type slotKind uint8

const (
	// the argument's buffer, or temporary memory if the run leaves a Scratch to the device
	slotArg  slotKind = iota
	slotTemp          // temporary memory
	slotForm          // a quantized weight
)

// slot describes one piece of memory.
type slot struct {
	kind  slotKind
	typ   dtype.Type
	shape []int // of the whole slot
	form  form  // for slotForm
	arg   int   // argument index
}

// frame is the state of a run in progress.
type frame struct {
	compute
	d     *Device
	e     *executable
	run   *npu.Run
	bufs  []npu.Buffer // software-device buffers by slot; nil for State
	temps int          // number of the device's scratch buffers in use
}

// bind finds the memory of every slot.
func (f *frame) bind() error {
	for i := range f.e.slots {
		s := &f.e.slots[i]
		b, err := f.memory(s)
		if err != nil {
			return fmt.Errorf("argument %q: %w", f.e.p.Args[s.arg].Name, err)
		}
		f.bufs = append(f.bufs, b)
	}
	return nil
}

func (f *frame) memory(s *slot) (npu.Buffer, error) {
	if s.kind == slotTemp {
		return f.temp(s)
	}
	a := &f.e.p.Args[s.arg]
	if a.Kind == npu.State {
		for _, seg := range f.run.Segments {
			if _, err := f.d.ownBuffer(seg.State[f.e.states[s.arg]]); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	if f.run.Args[s.arg] == nil {
		return f.temp(s)
	}
	b, err := f.d.ownBuffer(f.run.Args[s.arg])
	if err != nil {
		return nil, err
	}
	if a.Kind == npu.Const && b.weight == nil && a.Type != dtype.BF16 && a.Type != dtype.I32 {
		return nil, fmt.Errorf("the array cannot read %s from a plain buffer: create the weight "+
			"with Device.Const", a.Type)
	}
	if need := b.typ(a).Bytes((op.Size{}).Elements(a.Shape)); b.Len() < need {
		return nil, fmt.Errorf("buffer too small: need %d bytes as %s, have %d", need, b.typ(a), b.Len())
	}
	if b.weight != nil && f.e.written[s.arg] {
		return nil, fmt.Errorf("the program writes it, but its buffer is a read-only weight")
	}
	if s.kind == slotArg {
		return b.dev, nil
	}
	if f.d.opts.Timing {
		return nil, nil
	}
	src := dtype.BFloat16s(b.dev.Bytes())
	if b.weight != nil {
		return f.d.weights.quantized(f.compute, b.weight, src, s.form)
	}
	t, err := f.temp(s)
	if err == nil {
		f.quantize(dtype.BFloat16s(t.Bytes()), src, s.form)
	}
	return t, err
}

// temp returns scratch memory for a slot, with undefined contents. It returns nil if Options.Timing
// is set.
func (f *frame) temp(s *slot) (npu.Buffer, error) {
	if f.d.opts.Timing {
		return nil, nil
	}
	n := s.typ.Bytes((op.Size{}).Elements(s.shape))
	i := f.temps
	f.temps++
	if i == len(f.d.scratch) {
		f.d.scratch = append(f.d.scratch, nil)
	}
	if b := f.d.scratch[i]; b != nil {
		if b.Len() >= n {
			return b, nil
		}
		f.d.scratch[i] = nil
		if err := b.Close(); err != nil {
			return nil, err
		}
	}
	b, err := f.d.host.Alloc(context.WithoutCancel(f.ctx), n)
	if err == nil {
		f.d.scratch[i] = b
	}
	return b, err
}

// ownBuffer returns b as a buffer of d. It returns an error if b belongs to another device or is
// closed.
func (d *Device) ownBuffer(b npu.Buffer) (*buffer, error) {
	own, ok := b.(*buffer)
	if !ok || own.d != d {
		return nil, fmt.Errorf("buffer belongs to another device")
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.closed {
		return nil, fmt.Errorf("buffer: %w", npu.ErrClosed)
	}
	return own, nil
}

// operand is one operand of a launch.
type operand struct {
	slot int
	view npu.View // of the slot
}

// matrix returns an operand of the run as a matrix whose leading dimensions are rows.
func (f *frame) matrix(o operand) matrix {
	s := &f.e.slots[o.slot]
	v := o.view.Matrix(s.shape)
	m := matrix{rows: v.Rows, width: v.Width, stride: v.Stride}
	if s.typ == dtype.F32 {
		m.f = dtype.Float32s(f.bufs[o.slot].Bytes())[v.Offset:]
	} else {
		m.bf = dtype.BFloat16s(f.bufs[o.slot].Bytes())[v.Offset:]
	}
	return m
}
