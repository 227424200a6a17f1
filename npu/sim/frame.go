package sim

import (
	"context"
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// An executable's steps work on slots: the program's arguments, by their index, and after them memory that the lowering has asked for. A
// frame binds the slots to memory for one run.

// slotKind says where a slot's memory comes from.
type slotKind uint8

const (
	slotArg  slotKind = iota // the run's buffer for an argument, or temporary memory for a Scratch that it leaves to the device
	slotTemp                 // temporary memory
	slotForm                 // a weight as the matrix unit takes it
)

// slot is one piece of memory.
type slot struct {
	kind  slotKind
	typ   dtype.Type
	shape []int // of the whole
	form  form  // slotForm: which of
	arg   int   // argument
}

// frame is a run in progress.
type frame struct {
	compute
	d     *Device
	e     *executable
	run   *npu.Run
	bufs  []npu.Buffer // device side of every slot, as buffers of the software device; nil for State
	temps int          // of the device's scratch buffers, in use
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
			if _, err := f.d.own(seg.State[f.e.states[s.arg]]); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
	if f.run.Args[s.arg] == nil {
		return f.temp(s)
	}
	b, err := f.d.own(f.run.Args[s.arg])
	if err != nil {
		return nil, err
	}
	if a.Kind == npu.Const && b.weight == nil && a.Type != dtype.BF16 && a.Type != dtype.I32 {
		return nil, fmt.Errorf("it is %s, which the array does not read from a plain buffer: make it with Device.Const", a.Type)
	}
	if need := b.typ(a).Bytes((op.Size{}).Elements(a.Shape)); b.Len() < need {
		return nil, fmt.Errorf("it needs %d bytes as %s, the buffer has %d", need, b.typ(a), b.Len())
	}
	if b.weight != nil && f.e.written[s.arg] {
		return nil, fmt.Errorf("it is written, and its buffer is a read-only weight")
	}
	if s.kind == slotArg {
		return b.dev, nil
	}
	if f.d.opts.Timing {
		return nil, nil
	}
	src := dtype.BFloat16s(b.dev.Bytes())
	if b.weight != nil {
		return f.d.quantized(f.compute, b.weight, src, s.form)
	}
	t, err := f.temp(s)
	if err == nil {
		f.quantize(dtype.BFloat16s(t.Bytes()), src, s.form)
	}
	return t, err
}

// temp gives a slot memory of the device's, whose content is undefined; none where nothing is computed.
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

// own is the device's own buffer behind b.
func (d *Device) own(b npu.Buffer) (*buffer, error) {
	own, ok := b.(*buffer)
	if !ok || own.d != d {
		return nil, fmt.Errorf("its buffer belongs to another device")
	}
	own.mu.Lock()
	defer own.mu.Unlock()
	if own.closed {
		return nil, fmt.Errorf("its buffer: %w", npu.ErrClosed)
	}
	return own, nil
}

// operand is one operand of a launch.
type operand struct {
	slot int
	view npu.View // of the slot
}

// matrix is an operand in a run, its leading dimension as rows.
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
