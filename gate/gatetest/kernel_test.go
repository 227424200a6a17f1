package gatetest_test

import (
	"testing"

	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/op"
)

// open opens a software device of one thread.
func open(t testing.TB, kernels string) *cpu.Device {
	t.Helper()
	d, err := cpu.Open(&cpu.Options{Threads: 1, Kernels: kernels})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func TestKernelTakesThePublishedTolerances(t *testing.T) {
	gatetest.Kernel(t, open(t, ""), op.RMSNorm{Rows: 64, Width: 2048, Eps: 1e-5},
		&gatetest.Options{Tolerances: gatetest.Published})
}
