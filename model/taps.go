package model

import (
	"context"
	"fmt"

	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Tap receives the output of a launch as FP32. The name is that of the step and the launch, such as
// "layer.3.attn.q_rope"; the oracle uses the same names. The values are valid only during the call.
// An error ends the pass.
//
// The shape is that of the launch's output, outermost dimension first, usually [rows, width]. Rows
// are those of the pass, without padding: a chunk of a prompt or one token, and in the head the
// rows whose logits are wanted. Writes to the KV cache are not reported. A pass has the rows of one
// session, and its calls come in launch order, on the goroutine that uses the session. A tap must
// not use or close a session of the same model, which would deadlock.
type Tap func(name string, shape []int, values []float32) error

// tapped is a launch whose output the debug form exposes.
type tapped struct {
	npu.Tap
	arg npu.Arg
}

// tapsOf returns the launches that a debug form exposes.
func tapsOf(p *npu.Program) []tapped {
	var list []tapped
	for _, t := range p.Taps() {
		list = append(list, tapped{Tap: t, arg: p.Args[t.View.Arg]})
	}
	return list
}

// tapKey identifies an argument that is an output only in the debug form of a program.
type tapKey struct {
	exec npu.Executable
	arg  int
}

// tapBuffer returns the buffer for such an argument. All steps of a program share it, because they
// run one at a time.
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

// report passes the outputs of a step's launches to the tap.
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

// elementsOf returns a view of a buffer as FP32.
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
