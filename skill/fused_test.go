package skill

import (
	"context"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu/sim"
)

// Decode behind attention is one fused kernel where the model's shape allows it. Its parts pass alone, in mappings of their own, and the block judges the whole.
func TestFusedKernels(t *testing.T) {
	dir := t.TempDir()
	spec := ckptgen.Spec{Family: "llama", Layers: 1, Hidden: 1024, Heads: 16, KVHeads: 8, HeadDim: 64, FFN: 2048, Vocab: 512, Context: 512, Tie: true}
	if err := ckptgen.Write(dir, spec, 7); err != nil {
		t.Fatal(err)
	}
	opts := small(t)
	opts.SeqLen = 64
	d := deployment(t, dir, openSim(t, sim.Options{}), opts)
	if _, err := d.Phase(Reference).Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	e, err := d.env(Decode)
	if err != nil {
		t.Fatal(err)
	}
	e.recipe = e.recipe.clone()
	tuned := model.TunedKnobs()
	e.recipe.Decode = &tuned
	gates, err := e.cheapGates()
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.Plan()
	if err != nil {
		t.Fatal(err)
	}
	kernels, err := kernelsOf(p)
	if err != nil {
		t.Fatal(err)
	}
	fused := map[string]bool{}
	for _, k := range kernels {
		if k.mapping.Fused != "" {
			fused[GateKernel+"/"+k.name] = true
		}
	}
	block := false
	for _, g := range gates {
		if block = block || g.Name == GateBlock; !fused[g.Name] && g.Name != GateBlock {
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
}
