// Command customprogram composes a program for the NPU by hand: a norm, a matrix product and a
// residual in one dispatch. The virtual XDNA 2 first refuses it, with the rule and sizes that fit.
// After the change it predicts the time and computes the program with the array's number formats.
//
//	go run ./examples/customprogram
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/npu/xdna2"
)

const rows, width = 512, 1024

// compose returns the program x + norm(x) W for 512 rows. The tile of the matrix product varies.
func compose(tile []int) *npu.Program {
	p := npu.NewProgram("norm_matmul_add")
	x := p.In("x", dtype.BF16, rows, width)
	weight := p.Const("norm", dtype.BF16, width)
	normed := p.Scratch("normed", dtype.BF16, rows, width)
	w := p.Const("w", dtype.BF16, width, width) // [in, out], as a GEMM on the array wants it
	product := p.Scratch("product", dtype.BF16, rows, width)
	y := p.Out("y", dtype.BF16, rows, width)

	p.Launch("norm", op.RMSNorm{Rows: rows, Width: width, Eps: 1e-5}, x, weight, normed)
	p.Map(npu.Mapping{Herd: []int{8, 1}})
	p.Launch("product", op.MatMul{M: rows, K: width, N: width}, normed, w, product)
	// tile: m, k in a mem tile, k in a core, n
	p.Map(npu.Mapping{Variant: "drain", Tile: tile, Herd: []int{8, 4}})
	p.Launch("residual", op.Add{Rows: rows, Width: width}, product, x, y)
	p.Map(npu.Mapping{Tile: []int{1024}, Herd: []int{8, 1}})
	return p
}

func main() {
	ctx := context.Background()
	dev, err := sim.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()

	// 64 x 128 FP32 accumulators, double-buffered operands and the output buffer exceed a core's
	// memory.
	_, err = dev.Load(ctx, compose([]int{64, 256, 32, 128}))
	var refused *xdna2.ResourceError
	if !errors.As(err, &refused) {
		log.Fatalf("the program should have been refused, got %v", err)
	}
	say("refused:\n%v\n\n", err)

	p := compose([]int{32, 256, 32, 128})
	exec, err := dev.Load(ctx, p)
	if err != nil {
		log.Fatal(err)
	}
	defer exec.Close()
	cost, err := xdna2.NewClock(xdna2.HostNpukit()).Program(p, op.Size{})
	if err != nil {
		log.Fatal(err)
	}
	say("fits: %d launches in one dispatch, predicted %.0f us on the array, bound by %s\n",
		len(cost.Launches), cost.Run, cost.Bound)
	for _, l := range cost.Launches {
		say("  %-10s %4.0f us, of which %.0f us to start\n", l.Name, l.Time, l.Start)
	}

	y, err := compute(ctx, dev, exec)
	if err != nil {
		log.Fatal(err)
	}
	say("\ncomputed with the array's numbers: y[0] begins with %.4f\n", y[:4])
}

// say prints, and exits if that fails.
func say(format string, args ...any) {
	if _, err := fmt.Printf(format, args...); err != nil {
		log.Fatal(err)
	}
}

// compute runs the program once. Host writes must be synced to the device, and results back.
func compute(ctx context.Context, dev npu.Device, exec npu.Executable) ([]float32, error) {
	p := exec.Program()
	run := npu.Run{Name: "once", Exec: exec, Args: make([]npu.Buffer, len(p.Args))}
	for i, a := range p.Args {
		switch a.Kind {
		case npu.Const:
			t, err := dev.Const(ctx, npu.Source{Layout: npu.T(a.Name), From: weights{}})
			if err != nil {
				return nil, err
			}
			defer t.Close()
			run.Args[i] = t
		case npu.In, npu.Out:
			b, err := dev.Alloc(ctx, a.Type.Bytes(rows*width))
			if err != nil {
				return nil, err
			}
			defer b.Close()
			run.Args[i] = b
		}
	}
	x := run.Args[0]
	fill(x.Bytes(), 0.01)
	if err := x.Sync(npu.ToDevice, 0, x.Len()); err != nil {
		return nil, err
	}
	if err := dev.Submit(ctx, []npu.Run{run}); err != nil {
		return nil, err
	}
	out := run.Args[len(run.Args)-1]
	if err := out.Sync(npu.FromDevice, 0, out.Len()); err != nil {
		return nil, err
	}
	y := make([]float32, rows*width)
	dtype.BF16ToF32(y, dtype.BFloat16s(out.Bytes()))
	return y, nil
}

// weights generates the constants by name.
type weights struct{}

func (weights) Tensor(name string) (npu.Tensor, error) {
	shape := []int{width, width}
	if name == "norm" {
		shape = shape[:1]
	}
	t := npu.Tensor{Type: dtype.BF16, Shape: shape,
		Data: make([]byte, dtype.BF16.Bytes((op.Size{}).Elements(shape)))}
	fill(t.Data, 0.001)
	return t, nil
}

// fill writes a pattern of small numbers.
func fill(b []byte, scale float32) {
	for i := range dtype.BFloat16s(b) {
		dtype.BFloat16s(b)[i] = dtype.FromFloat32(scale * float32(i%17-8))
	}
}
