package sim_test

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

// sum returns a program that adds n elements in tiles of the given size.
func sum(n, tile int) *npu.Program {
	p := npu.NewProgram("sum")
	x, z := p.In("x", dtype.BF16, n), p.In("z", dtype.BF16, n)
	p.Launch("add", op.Add{Rows: 1, Width: n}, x, z, p.Out("y", dtype.BF16, n))
	p.Map(npu.Mapping{Tile: []int{tile}, Herd: []int{8, 1}})
	return p
}

// A rejected program's error names the rule that it breaks and what would fit. A program that fits
// computes the array's numerics: the sum of two BF16 numbers is rounded down, not to nearest.
func Example() {
	const n = 65536
	ctx := context.Background()
	dev, err := sim.Open(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()

	_, err = dev.Load(ctx, sum(n, 8192))
	var refused *xdna2.ResourceError
	if errors.As(err, &refused) {
		fmt.Println("refused:", refused.Rule, refused.Unit, "wanted of", refused.Available)
	}
	exec, err := dev.Load(ctx, sum(n, 4096))
	if err != nil {
		log.Fatal(err)
	}
	var args [3]npu.Buffer
	for i := range args {
		if args[i], err = dev.Alloc(ctx, dtype.BF16.Bytes(n)); err != nil {
			log.Fatal(err)
		}
	}
	x, z, y := args[0], args[1], args[2]
	dtype.BFloat16s(x.Bytes())[0] = dtype.FromFloat32(-1)
	dtype.BFloat16s(z.Bytes())[0] = dtype.FromFloat32(-0.001)
	for _, b := range []npu.Buffer{x, z} {
		if err := b.Sync(npu.ToDevice, 0, b.Len()); err != nil {
			log.Fatal(err)
		}
	}
	if err := dev.Submit(ctx, []npu.Run{{Exec: exec, Args: args[:]}}); err != nil {
		log.Fatal(err)
	}
	fmt.Println("before the sync:", dtype.BFloat16s(y.Bytes())[0].Float32())
	if err := y.Sync(npu.FromDevice, 0, y.Len()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("after it:", dtype.BFloat16s(y.Bytes())[0].Float32())
	fmt.Println("predicted time is counted:", dev.Clock() > 0)
	// Output:
	// refused: R-L1-1 bytes wanted of 65536
	// before the sync: 0
	// after it: -1.0078125
	// predicted time is counted: true
}
