package xdna

import (
	"context"
	"slices"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
)

// rows is the sequence length of the plans: the shortest that tiles divide.
const rows = 64

// specs are small models, one for each way in which plans differ.
func specs() map[string]ckptgen.Spec {
	spec := func(family string, hidden, heads, kv, hd, ffn int) ckptgen.Spec {
		return ckptgen.Spec{Family: family, Layers: 2, Hidden: hidden, Heads: heads, KVHeads: kv, HeadDim: hd, FFN: ffn, Vocab: 600, Context: 256, Tie: true}
	}
	return map[string]ckptgen.Spec{
		"llama-merged":     spec("llama", 1024, 16, 8, 64, 1024), // o_ffn and o_gemv_ffn, with a constant's scratch row and dead arguments
		"llama-split":      spec("llama", 512, 6, 2, 128, 768),
		"qwen2-padded":     spec("qwen2", 448, 7, 1, 64, 512),
		"qwen2-wide":       spec("qwen2", 256, 6, 1, 128, 5376), // most programs in prefill
		"qwen3-head-first": spec("qwen3", 256, 4, 2, 128, 512),
	}
}

// npuPlan plans a checkpoint for the NPU.
func npuPlan(t *testing.T, dir string) *model.Plan {
	t.Helper()
	ck, err := checkpoint.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	plan, err := model.NewNPUPlan(ck.Config(), &model.NPUOptions{Lengths: []int{rows}})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// onDevice are the programs of a plan that the NPU runs.
func onDevice(plan *model.Plan) (programs []*npu.Program) {
	for _, pass := range append(slices.Clone(plan.Prefill), plan.Decode) {
		for _, s := range slices.Concat(pass.Steps, pass.Head) {
			if p := plan.Program(s.Program); s.On == model.OnDevice && !slices.Contains(programs, p) {
				programs = append(programs, p)
			}
		}
	}
	return programs
}

func openModel(t *testing.T, dev npu.Device, dir string, plan *model.Plan) *model.Model {
	t.Helper()
	m, err := model.Open(context.Background(), dev, dir, &model.OpenOptions{Plan: plan})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, m) })
	return m
}

// speech is a session that speaks greedily, and all logits that it went by.
type speech struct {
	s      *model.Session
	ids    []int32
	logits [][]float32
}

func begin(t *testing.T, m *model.Model, prompt []int32) *speech {
	t.Helper()
	sp := &speech{s: m.NewSession()}
	t.Cleanup(func() { closeIt(t, sp.s) })
	if err := sp.s.Score(context.Background(), prompt, func(_ int, logits []float32) error {
		sp.logits = append(sp.logits, slices.Clone(logits))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return sp
}

// say continues by n ids.
func (sp *speech) say(t *testing.T, n int) {
	t.Helper()
	for range n {
		last := sp.logits[len(sp.logits)-1]
		id := int32(slices.Index(last, slices.Max(last)))
		sp.ids = append(sp.ids, id)
		logits, err := sp.s.Step(context.Background(), id)
		if err != nil {
			t.Fatal(err)
		}
		sp.logits = append(sp.logits, slices.Clone(logits))
	}
}

func prompt(n, seed int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i*i*7 + 13*i + seed) % 600)
	}
	return ids
}

// What a plan for the NPU says on the device, through prefill, padding, decode and the changes between them, it says on cpu, to the bit: the array computes with cpu's
// kernels here, so that every difference is a wrong byte in a buffer.
func TestModelsOnTheDeviceEqualCPU(t *testing.T) {
	for name, spec := range specs() {
		dir := t.TempDir()
		if err := ckptgen.Write(dir, spec, 7); err != nil {
			t.Fatal(err)
		}
		plan := npuPlan(t, dir)
		software, err := cpu.Open(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer software.Close()
		want := begin(t, openModel(t, software, dir, plan), prompt(rows+9, 5))
		want.say(t, 12)
		for how, open := range openers() {
			t.Run(name+"/"+how, func(t *testing.T) {
				d := open(t, each(onDevice(plan)...), Options{Contexts: 4}) // fewer than the plan has programs
				got := begin(t, openModel(t, d, dir, plan), prompt(rows+9, 5))
				got.say(t, 12)
				if !slices.Equal(got.ids, want.ids) {
					t.Errorf("ids %v, on cpu %v", got.ids, want.ids)
				}
				for i := range want.logits {
					if !slices.Equal(got.logits[i], want.logits[i]) {
						t.Fatalf("logits of position %d are other bits", i)
					}
				}
			})
		}
	}
}
