package model

import (
	"context"
	"fmt"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Tap sees what a launch has computed, brought to FP32. The name is that of the step with the launch's behind it, "layer.3.attn.q_rope": the oracle's taps have the
// same names. In a pass of fixed rows the padding is left out. The values are valid during the call only; an error ends the pass.
//
// Shape is that of the launch's output, outermost first, as a rule [rows, width]: the rows are those of the pass, a chunk of a prompt or one token, and in the head
// those whose logits are wanted. What goes into a cache is not shown. Each pass has the rows of one session, and its calls come in the order of its launches, on the
// goroutine that uses the session; those of another session's pass come before or behind them. A tap that uses a session of the same model, or closes
// it, waits for itself.
type Tap func(name string, shape []int, values []float32) error

// tapped is a launch whose output a debug load makes readable.
type tapped struct {
	npu.Tap
	arg npu.Arg
}

// tapsOf lists what can be read of a debug form.
func tapsOf(p *npu.Program) []tapped {
	var list []tapped
	for _, t := range p.Taps() {
		list = append(list, tapped{Tap: t, arg: p.Args[t.View.Arg]})
	}
	return list
}

// tapKey is an argument that only the debug form of a program has as an output.
type tapKey struct {
	exec npu.Executable
	arg  int
}

// tapBuffer is the buffer for such an argument. All steps of a program share it: they run one at a time.
func (e *executor) tapBuffer(ctx context.Context, s *boundStep, arg, bytes int) (npu.Buffer, error) {
	key := tapKey{s.exec, arg}
	buf := e.tapBuffers[key]
	if buf != nil && buf.Len() >= bytes {
		return buf, nil
	}
	dev := e.dev
	if s.On == plan.OnHost {
		dev = e.host
	}
	grown, err := dev.Alloc(ctx, bytes)
	if err == nil && buf != nil {
		err = buf.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("model: step %s: buffer for a tap: %w", s.Name, err)
	}
	e.tapBuffers[key] = grown
	return grown, nil
}

// report gives the outputs of a step's launches to the tap.
func (e *executor) report(s *boundStep, r npu.Run, size op.Size, rows int) error {
	program := s.exec.Program()
	for _, t := range s.taps {
		buf := r.Args[t.View.Arg]
		if s.On == plan.OnDevice {
			if err := buf.Sync(npu.FromDevice, 0, buf.Len()); err != nil {
				return fmt.Errorf("model: step %s: tap %s: %w", s.Name, t.Launch, err)
			}
		}
		shape, stride := program.Shape(t.View)
		shape = append([]int(nil), shape...)
		for i := range shape {
			shape[i] = size.Resolve(shape[i])
		}
		if len(shape) > 1 && rows > 0 && shape[0] == rows {
			shape[0] = size.Rows
		}
		values, err := elementsOf(t.arg.Type, buf.Bytes(), t.View.Offset, shape, stride)
		if err != nil {
			return fmt.Errorf("model: step %s: tap %s: %w", s.Name, t.Launch, err)
		}
		if err := e.tap(s.Name+"."+t.Launch, shape, values); err != nil {
			return err
		}
	}
	return nil
}

// elementsOf reads a view of a buffer as FP32.
func elementsOf(t dtype.Type, data []byte, offset int, shape []int, stride int) ([]float32, error) {
	width, rows := 1, 1
	if len(shape) > 1 {
		rows = shape[0]
		shape = shape[1:]
	}
	for _, d := range shape {
		width *= d
	}
	values := make([]float32, rows*width)
	for r := range rows {
		from := t.Bytes(offset + r*stride)
		if err := dtype.Dequantize(values[r*width:][:width], t, data[from:from+t.Bytes(width)]); err != nil {
			return nil, err
		}
	}
	return values, nil
}
