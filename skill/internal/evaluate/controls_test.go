package evaluate

import (
	"context"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
	"github.com/npukit/npukit/skill/internal/skilltest"
	"github.com/npukit/npukit/skill/internal/subject"
)

// In decode, the launches after attention are one fused kernel if the model's shape allows it. Its
// parts pass alone, in mappings of their own, and the gate of the block covers the kernel.
func TestFusedKernels(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	spec := ckptgen.Spec{Family: "llama", Layers: 1, Hidden: 1024, Heads: 16, KVHeads: 8, HeadDim: 64, FFN: 2048,
		Vocab: 512, Context: 512, Tie: true}
	if err := ckptgen.Write(dir, spec, 7); err != nil {
		t.Fatal(err)
	}
	dev := skilltest.OpenSim(t, sim.Options{})
	o := skilltest.Must(subject.Open(dir, dev.Info(), 64, ""))
	defer o.Checkpoint.Close()
	m := models.New(o.Checkpoint, dev, t.Logf)
	defer m.Close()
	e := &gates.Bench{Reference: gates.NewReference(o.Oracle, nil, 32), Models: m, Recipe: journal.Naive(dev.Info(),
		64)}
	tuned := plan.TunedKnobs()
	e.Recipe.Decode = &tuned
	cheap, err := gates.Cheap(e)
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.Plan()
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := gates.KernelsOf(p)
	if err != nil {
		t.Fatal(err)
	}
	fused := map[string]bool{}
	for _, k := range kernels {
		if k.Mapping.Fused != "" {
			fused[journal.GateKernel+"/"+k.Name] = true
		}
	}
	block := false
	for _, g := range cheap {
		if block = block || g.Name == journal.GateBlock; !fused[g.Name] && g.Name != journal.GateBlock {
			continue
		}
		v, err := g.Check(context.Background(), e)
		if err != nil {
			t.Errorf("%s: %v", g.Name, err)
		} else if !v.OK() {
			t.Errorf("%v", v)
		}
	}
	if len(fused) == 0 || !block {
		t.Errorf("%d parts of fused kernels, and the block is asked: %v", len(fused), block)
	}

	// The controls of an evaluation work on such a plan too, with wrong devices that run op by op.
	v := &controls{&evaluation{bench: e, dev: dev, info: dev.Info()}}
	for _, c := range controlsOf(e) {
		refused := false
		for _, a := range c.adversaries {
			verdict, err := v.askOn(context.Background(), a.Wrap(apart{dev}, nil), c.gate)
			if err != nil {
				t.Errorf("gate %s, adversary %s: %v", c.gate.Name, a.Name, err)
			}
			if refused = err == nil && !verdict.OK(); refused {
				break
			}
		}
		if !refused {
			t.Errorf("gate %s refuses none of %d wrong devices", c.gate.Name, len(c.adversaries))
		}
	}
}
