package skill

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/sim"
)

// Decode behind attention is one fused kernel where the model's shape allows it. Its parts pass alone, in mappings of their own, and the block judges the whole.
func TestFusedKernels(t *testing.T) {
	t.Parallel()
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
	tuned := plan.TunedKnobs()
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

	// An evaluator shows on such a plan too that its gates fail wrong devices, which compute op by op.
	v := &evaluation{env: e, d: d, info: d.info}
	for _, c := range controls(false, e.recipe.SeqLen) {
		refused := false
		for _, a := range c.adversaries {
			verdict, err := v.askOn(context.Background(), a.Wrap(apart{d.dev}, nil), c.gate)
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

// A session takes the cheapest way to the next token, and that can be to prefill all tokens again. The block is looked at step by step all the same, or the decode pass of a plan of
// which only prefill has been tuned would be judged by nobody.
func TestStepsOfTheBlockAreDecoded(t *testing.T) {
	_, e := ready(t)
	p := must(e.Plan())
	p.Decode.Cost = 1 // s, and a thousand times as much as a prompt
	for i := range p.Prefill {
		p.Prefill[i].Cost = 1e-3
	}
	again := 0
	err := e.tapped(context.Background(), func(name string, shape []int, _ []float32) error {
		if name == blockOutput && shape[0] > 1 {
			again++
		}
		return nil
	}, func(s *model.Session) error {
		for id := range int32(4) {
			if _, err := s.Step(context.Background(), id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || again < 2 {
		t.Fatalf("%d steps were prefilled, %v: this plan shows nothing", again, err)
	}
	rec, ids, err := e.record(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(rec.output), len(ids)*e.Config().Hidden; got != want {
		t.Errorf("the block's output has %d elements, want %d", got, want)
	}
	i := slices.IndexFunc(rec.trace.Taps, func(tap gate.Tap) bool { return tap.Name == blockOutput })
	if i < 0 || rec.trace.Taps[i].Own == nil || rec.trace.Taps[i].Own.Steps != len(ids)-blockSteps {
		t.Errorf("steps are not decoded: %+v", rec.trace.Taps[max(i, 0)].Own)
	}
}

// real is an array that is not virtual, as its kind says.
type real struct{ npu.Device }

func (r real) Host() npu.Device { return npu.HostOf(r.Device) }
func (r real) Info() npu.Info {
	i := r.Device.Info()
	i.Kind = "xdna"
	return i
}

// Kernels of a real array are timed, and their rows in the registry say so; those of a virtual one never have a time.
func TestRowsOfARealArray(t *testing.T) {
	t.Parallel()
	path := npuTiny(t)
	for _, virtual := range []bool{true, false} {
		dev := openSim(t, sim.Options{})
		if !virtual {
			dev = real{dev}
		}
		opts := quick(t)
		opts.plain, opts.Observe = true, nil
		d := deployment(t, path, dev, opts)
		for _, p := range []Phase{Reference, KernelValidation} {
			if _, err := d.Phase(p).Run(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		rows := 0
		for _, k := range d.State().Kernels {
			if k.Row == nil {
				continue
			}
			rows++
			if k.Predicted == 0 || k.Measured > 0 == virtual || k.Row.Latency > 0 == virtual || strings.Contains(k.Row.Note, "virtual array") != virtual {
				t.Errorf("virtual: %v: %s is predicted at %g us, measured at %g, its row has %g: %s", virtual, k.Key, k.Predicted, k.Measured, k.Row.Latency, k.Row.Note)
			}
		}
		if rows == 0 {
			t.Errorf("virtual: %v: no rows", virtual)
		}
	}
}
