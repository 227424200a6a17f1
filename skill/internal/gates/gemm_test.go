package gates

import (
	"context"
	"math"
	"os"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
	"github.com/npukit/npukit/skill/internal/skilltest"
)

// shortGEMMs returns the products of many rows and short K in the plans of [arraySpecs], naive and
// tuned, with their mappings.
func shortGEMMs(t *testing.T, info npu.Info) []*Kernel {
	t.Helper()
	var list []*Kernel
	seen := map[string]bool{}
	for _, spec := range arraySpecs() {
		dir := t.TempDir()
		if err := ckptgen.Write(dir, spec, 7); err != nil {
			t.Fatal(err)
		}
		ck, err := checkpoint.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer ck.Close()
		for _, knobs := range []plan.Knobs{plan.NaiveKnobs(), plan.TunedKnobs()} {
			p, err := models.Plan(journal.Recipe{SeqLen: 96, Prefill: &knobs, Decode: &knobs}, ck, info)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range skilltest.Must(KernelsOf(p)) {
				if mm, ok := k.Op.(op.MatMul); ok && mm.M > 1 && mm.K <= shortK && k.on == plan.OnDevice &&
					k.Mapping.Fused == "" && !seen[k.hash] {
					seen[k.hash] = true
					list = append(list, k)
				}
			}
		}
	}
	return list
}

// The bound of products of short K is measured on the virtual array, over seeds: the share of
// elements outside it is at most that of the table. The log has the share without the root of
// 1024/K.
func TestShortGEMMsAreMeasured(t *testing.T) {
	t.Parallel()
	seeds, dev := uint64(2), skilltest.OpenSim(t, sim.Options{})
	if os.Getenv("NPUKIT_LONG") != "" {
		seeds = 32
	}
	type worst struct {
		runs         int
		most, summed float64 // shares of elements outside: the largest of a run, and the sum over runs
		plain        float64 // the largest without the root
	}
	found := map[int]*worst{} // by K
	for _, k := range shortGEMMs(t, dev.Info()) {
		mm := k.Op.(op.MatMul)
		w := found[mm.K]
		if w == nil {
			w = &worst{}
			found[mm.K] = w
		}
		_, opts, _ := (&Bench{Models: &models.Models{Device: dev, Info: dev.Info()}}).Options(k)
		for seed := range seeds {
			opts.Seed = seed + 1
			r, _, err := checkAlone(context.Background(), dev, k.Op, &opts)
			if err != nil {
				t.Fatalf("%s: %v", k.Text(), err)
			}
			if !r.OK() {
				t.Errorf("%s, seed %d: %v", k.Text(), seed, r)
			}
			w.runs++
			w.most = max(w.most, r.Metrics.Mismatches)
			w.summed += r.Metrics.Mismatches
			plain := opts
			plain.Tolerances = func(o op.Op, out dtype.Type) (gate.Tolerance, bool) {
				tol, ok := opts.Tolerances(o, out)
				tol.Atol /= math.Sqrt(shortK / float64(mm.K))
				return tol, ok
			}
			if r, _, err = checkAlone(context.Background(), dev, k.Op, &plain); err != nil {
				t.Fatal(err)
			}
			w.plain = max(w.plain, r.Metrics.Mismatches)
		}
	}
	if len(found) < 3 {
		t.Fatalf("only %d lengths of K were tried", len(found))
	}
	all := 0.0
	for k, w := range found {
		t.Logf("K %4d: %d runs, outside the bound at most %.3g of a run and %.3g of all; without the root "+
			"at most %.3g", k, w.runs, w.most, w.summed/float64(w.runs), w.plain)
		all = max(all, w.most)
	}
	if all > shortOutside {
		t.Errorf("%.3g of a product were outside the bound, the table says %.3g: measure again", all, shortOutside)
	}
}
