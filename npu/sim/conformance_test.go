package sim_test

import (
	"cmp"
	"os"
	"slices"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/npu/xdna2"
)

// size orders rows by the amount of computation.
func size(r xdna2.Row) int {
	s := r.Shape
	return max(s.M*s.K*s.N, s.N, s.Rows*max(1, s.Keys)*max(1, s.Heads)*max(s.Width, s.HeadDim))
}

// The smallest published row of every kernel and variant loads with its own mapping and passes the
// NPU's element-wise gate against the oracle.
func TestPublishedGates(t *testing.T) {
	dev, err := sim.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	rows := slices.Clone(xdna2.PublishedRegistry().Rows())
	slices.SortStableFunc(rows, func(a, b xdna2.Row) int { return cmp.Compare(size(a), size(b)) })
	type variant struct {
		kernel  xdna2.Kernel
		variant string
		out     dtype.Type
	}
	done := map[variant]bool{}
	for _, r := range rows {
		v := variant{r.Kernel, r.Mapping.Variant, r.Out}
		if r.Status != xdna2.OK || r.Record != xdna2.Published || r.Program != "" || done[v] {
			continue
		}
		// published results below K = 2048 have elements near zero outside the bound
		if r.Kernel == xdna2.GEMM && r.Shape.K < 2048 {
			continue
		}
		// The LayerNorm kernel takes weight and bias in one argument, where the gate binds two.
		o := r.Op()
		// the oracle is slow
		if o == nil || r.Kernel == xdna2.LayerNorm || r.Kernel == xdna2.Attention && os.Getenv("NPUKIT_LONG") == "" {
			continue
		}
		done[v] = true
		opts := &gatetest.Options{Mapping: r.Mapping, Tolerances: gatetest.Published}
		if m, ok := o.(op.MatMul); ok && m.M > 1 {
			opts.Types = []dtype.Type{dtype.BF16, dtype.BF16, r.Out}
			switch r.Mapping.Variant {
			case "fused-cast":
				opts.Types[2] = dtype.F32 // the first of its two launches
			case "direct":
				opts.Tolerances = func(op.Op, dtype.Type) (gate.Tolerance, bool) {
					return gate.PublishedLow(), true
				}
			}
		}
		rep, err := gatetest.CheckKernel(t.Context(), dev, o, opts)
		if err != nil {
			t.Errorf("%s: %v", r.ID, err)
			continue
		}
		if !rep.OK() {
			t.Errorf("%s: %v", r.ID, rep)
		}
	}
	if len(done) < 11 {
		t.Errorf("%d kernels and variants, want at least 11", len(done))
	}
}

var _ npu.Hosted = (*sim.Device)(nil)
