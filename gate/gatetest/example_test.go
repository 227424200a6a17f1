package gatetest_test

import (
	"context"
	"fmt"

	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/op"
)

// A correct kernel, and the same kernel on a device that doubles every result.
func ExampleCheckKernel() {
	ctx := context.Background()
	dev, err := cpu.Open(&cpu.Options{Threads: 1, Kernels: "go"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = dev.Close() }() // nothing of it is needed any more
	norm := op.RMSNorm{Rows: 64, Width: 2048, Eps: 1e-5}

	rep, err := gatetest.CheckKernel(ctx, dev, norm, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("as it is:", rep.OK(), rep.Metrics.Count, "elements")

	for _, a := range gatetest.Adversaries() {
		if a.Name != "twice" {
			continue
		}
		rep, err := gatetest.CheckKernel(ctx, a.Wrap(dev, nil), norm, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s: %v, correlation %.3f\n", a.Name, rep.OK(), rep.Metrics.Pearson)
		fmt.Println(rep.Reasons[0].Text)
	}
	// Output:
	// as it is: true 131072 elements
	// twice: false, correlation 1.000
	// mean relative L1 is 1, want at most 0.0028
}
