package gatetest_test

import (
	"testing"
	"time"

	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/npu/cpu"
)

func TestEveryKernelVariantOfTheCPUConforms(t *testing.T) {
	refs := &gatetest.References{}
	for _, kernels := range []string{"go", "generic", "avx2", "avx512", "avx512bf16"} {
		d, err := cpu.Open(&cpu.Options{Threads: 2, Kernels: kernels})
		if err != nil {
			t.Logf("not here: %v", err)
			continue
		}
		start := time.Now()
		gatetest.Conformance(t, d, &gatetest.ConformanceOptions{References: refs})
		t.Logf("%s: %v", kernels, time.Since(start))
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
