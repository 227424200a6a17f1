package gatetest_test

import (
	"testing"

	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// The kernel gate catches every adversary meant for it by the expected metric, with the tolerances
// of the software device and with the published ones, and passes the device itself.
func TestEveryAdversaryIsCaughtByTheKernelGate(t *testing.T) {
	dev := open(t, "go")
	for name, opts := range map[string]*gatetest.Options{
		"BF16":            {},
		"FP32":            {Activations: dtype.F32, Weights: dtype.F32, Cache: dtype.F32},
		"BF16, published": {Tolerances: gatetest.Published},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := gatetest.CatchByKernels(t.Context(), dev, opts)
			if err != nil {
				t.Error(err)
			}
			for _, c := range list {
				t.Logf("%s on %s: %v", c.Adversary.Name, c.On, c.Metrics())
			}
		})
	}
}

// Forgetful is right before its position and caught after it.
func TestForgetful(t *testing.T) {
	const from = 300
	a, dev := gatetest.Forgetful(from), open(t, "go")
	near := gatetest.Probe{Op: op.Attention{Rows: op.Rows, Heads: 4, KVHeads: 2, HeadDim: 64,
		Cached: true}, Segments: []gatetest.Segment{{Rows: 4, Pos: from - 4}}}
	for i, p := range append(a.Probes, near) {
		r, err := gatetest.CheckKernel(t.Context(), a.Wrap(dev, nil), p.Op,
			&gatetest.Options{Segments: p.Segments})
		if err != nil {
			t.Fatal(err)
		}
		if right := i == len(a.Probes); r.OK() != right {
			t.Errorf("at %v: %v", p.Segments, r)
		}
	}
}
