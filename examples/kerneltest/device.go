package kerneltest

import (
	"context"
	"errors"
	"fmt"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Device runs programs of two launches, RMSNorm and MatMul of its result, in FP32 with the fused
// kernel.
type Device struct {
	// Kernel is the function that runs; the test replaces it by broken ones.
	Kernel func(dst, x, weight, w []float32, k, n int, eps float64)
}

// Info returns a device that takes any number of rows.
func (d *Device) Info() npu.Info {
	return npu.Info{Name: "a fused kernel in Go", Kind: "example", AnyRows: true,
		InPlace: []dtype.Type{dtype.F32}}
}

// executable is a program with the kernel's parameters.
type executable struct {
	program   *npu.Program
	norm      op.RMSNorm
	mul       op.MatMul
	arguments [4]int // indices of x, norm's weight, matrix and result
}

func (e *executable) Program() *npu.Program { return e.program }
func (e *executable) Close() error          { return nil }

// Load accepts the only program that the kernel computes, and returns an error for every other.
func (d *Device) Load(_ context.Context, p *npu.Program) (npu.Executable, error) {
	if err := p.Err(); err != nil {
		return nil, err
	}
	if len(p.Launches) != 2 {
		return nil, fmt.Errorf("kerneltest: program %s has %d launches, want RMSNorm and MatMul", p.Name,
			len(p.Launches))
	}
	first, second := p.Launches[0], p.Launches[1]
	norm, ok := first.Op.(op.RMSNorm)
	mul, isMul := second.Op.(op.MatMul)
	if !ok || !isMul || !mul.TransB || norm.Heads > 1 || second.Args[0].Arg != first.Args[2].Arg {
		return nil, fmt.Errorf("kerneltest: program %s is not RMSNorm of whole rows and MatMul with "+
			"TransB of its result", p.Name)
	}
	e := &executable{program: p, norm: norm, mul: mul,
		arguments: [4]int{first.Args[0].Arg, first.Args[1].Arg, second.Args[1].Arg, second.Args[2].Arg}}
	for _, i := range e.arguments {
		if p.Args[i].Type != dtype.F32 {
			return nil, fmt.Errorf("kerneltest: program %s: argument %s is %s, want F32", p.Name,
				p.Args[i].Name, p.Args[i].Type)
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

// buffer is memory shared by host and device, so Sync does nothing.
type buffer []byte

func (b buffer) Len() int                             { return len(b) }
func (b buffer) Bytes() []byte                        { return b }
func (b buffer) Sync(_ npu.Direction, _, _ int) error { return nil }
func (b buffer) Close() error                         { return nil }

// Alloc returns a zeroed buffer.
func (d *Device) Alloc(_ context.Context, bytes int) (npu.Buffer, error) {
	return buffer(make([]byte, bytes)), nil
}

// Const returns an error: this device does not read checkpoints.
func (d *Device) Const(context.Context, npu.Source) (npu.Buffer, error) {
	return nil, fmt.Errorf("kerneltest: no Const: put weights into buffers of Alloc")
}

// Close does nothing.
func (d *Device) Close() error { return nil }
