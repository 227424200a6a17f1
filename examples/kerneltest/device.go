package kerneltest

import (
	"context"
	"errors"
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Device runs programs of two launches, RMSNorm and then MatMul of its result, in FP32, with the fused kernel.
type Device struct {
	// Kernel is what runs; the test breaks it to see whether the gate notices.
	Kernel func(dst, x, weight, w []float32, k, n int, eps float64)
}

// Info says that any number of rows will do.
func (d *Device) Info() npu.Info {
	return npu.Info{Name: "a fused kernel in Go", Kind: "example", AnyRows: true, InPlace: []dtype.Type{dtype.F32}}
}

// executable is a program together with what the kernel needs to know of it.
type executable struct {
	program   *npu.Program
	norm      op.RMSNorm
	mul       op.MatMul
	arguments [4]int // indices of x, norm's weight, matrix and result
}

func (e *executable) Program() *npu.Program { return e.program }
func (e *executable) Close() error          { return nil }

// Load takes the one form of program that the kernel computes. Saying what it cannot do is a device's duty: nothing falls back in silence.
func (d *Device) Load(_ context.Context, p *npu.Program) (npu.Executable, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	if len(p.Launches) != 2 {
		return nil, fmt.Errorf("kerneltest: program %s has %d launches, want RMSNorm and MatMul", p.Name, len(p.Launches))
	}
	first, second := p.Launches[0], p.Launches[1]
	norm, ok := first.Op.(op.RMSNorm)
	mul, isMul := second.Op.(op.MatMul)
	if !ok || !isMul || !mul.TransB || norm.Heads > 1 || second.Args[0].Arg != first.Args[2].Arg {
		return nil, fmt.Errorf("kerneltest: program %s is not RMSNorm of whole rows and MatMul with TransB of its result", p.Name)
	}
	e := &executable{program: p, norm: norm, mul: mul, arguments: [4]int{first.Args[0].Arg, first.Args[1].Arg, second.Args[1].Arg, second.Args[2].Arg}}
	for _, i := range e.arguments {
		if p.Args[i].Type != dtype.F32 {
			return nil, fmt.Errorf("kerneltest: program %s: argument %s is %s, want F32", p.Name, p.Args[i].Name, p.Args[i].Type)
		}
	}
	return e, nil
}

// Submit calls the kernel for each run.
func (d *Device) Submit(ctx context.Context, runs []npu.Run) error {
	for _, r := range runs {
		if err := errors.Join(ctx.Err(), r.Check()); err != nil {
			return err
		}
		e := r.Exec.(*executable)
		var a [4][]float32
		for i, arg := range e.arguments {
			a[i] = dtype.Float32s(r.Args[arg].Bytes())
		}
		rows := r.Size().Resolve(e.norm.Rows)
		d.Kernel(a[3], a[0][:rows*e.mul.K], a[1], a[2], e.mul.K, e.mul.N, e.norm.Eps)
	}
	return nil
}

// buffer is memory that host and device share, so that nothing needs to be synced.
type buffer []byte

func (b buffer) Len() int                             { return len(b) }
func (b buffer) Bytes() []byte                        { return b }
func (b buffer) Sync(_ npu.Direction, _, _ int) error { return nil }
func (b buffer) Close() error                         { return nil }

// Alloc makes a zeroed buffer.
func (d *Device) Alloc(_ context.Context, bytes int) (npu.Buffer, error) {
	return buffer(make([]byte, bytes)), nil
}

// Const refuses: this device has no use for checkpoints.
func (d *Device) Const(context.Context, npu.Source) (npu.Buffer, error) {
	return nil, fmt.Errorf("kerneltest: weights come in buffers of Alloc here")
}

// Close has nothing to give up.
func (d *Device) Close() error { return nil }
