package xdna

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/xrt"
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

// npuPlan plans a checkpoint for the NPU, with one prefill pass of so many rows.
func npuPlan(t *testing.T, dir string, rows int) *model.Plan {
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

// onCPU opens a model on a software device.
func onCPU(t *testing.T, dir string, plan *model.Plan) *model.Model {
	t.Helper()
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, dev) })
	return openModel(t, dev, dir, plan)
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

// What a plan for the NPU says on the device, through prefill, padding, decode and the changes between them, it says on cpu, to the bit:
// the array computes with cpu's kernels here, so that every difference is a wrong byte in a buffer.
func TestModelsOnTheDeviceEqualCPU(t *testing.T) {
	for name, spec := range specs() {
		dir := t.TempDir()
		if err := ckptgen.Write(dir, spec, 7); err != nil {
			t.Fatal(err)
		}
		plan := npuPlan(t, dir, rows)
		want := begin(t, onCPU(t, dir, plan), prompt(rows+9, 5))
		want.say(t, 12)
		for how, open := range modelOpeners() {
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

// Two chats in turn, on more programs than contexts, say what each says alone.
func TestInterleavedChats(t *testing.T) {
	dir := t.TempDir()
	if err := ckptgen.Write(dir, specs()["qwen2-wide"], 7); err != nil {
		t.Fatal(err)
	}
	plan := npuPlan(t, dir, rows)
	software := onCPU(t, dir, plan)
	f := &fake{}
	m := openModel(t, f.open(t, each(onDevice(plan)...), Options{Contexts: 5}), dir, plan)
	a, b := begin(t, m, prompt(20, 1)), begin(t, m, prompt(3, 2))
	for range 3 {
		a.say(t, 2)
		b.say(t, 1)
	}
	b.say(t, 3)
	for i, got := range []*speech{a, b} {
		want := begin(t, software, prompt([]int{20, 3}[i], i+1))
		want.say(t, 6)
		if !slices.Equal(got.ids, want.ids) {
			t.Errorf("chat %d said %v, alone on cpu %v", i, got.ids, want.ids)
		}
	}
	if f.most > 5 {
		t.Errorf("%d contexts at once", f.most)
	}
}

// Two chats at once, each prompting again and again, say what each says alone, and change the loaded programs no more often than one after the other would: those
// that wait for the same phase go through it before the other phase's programs are loaded.
func TestChatsAtOnceShareAPhase(t *testing.T) {
	dir := t.TempDir()
	if err := ckptgen.Write(dir, specs()["qwen2-wide"], 7); err != nil {
		t.Fatal(err)
	}
	plan := npuPlan(t, dir, rows)
	plan.Prefill[0].Cost, plan.Decode.Cost = 0, 0 // without prices every prompt is prefilled
	const turns, tokens = 3, 6
	chat := func(m *model.Model, seed int) (said []int32, err error) {
		s := m.NewSession()
		defer s.Close()
		for turn := range turns {
			opts := &model.GenerateOptions{MaxTokens: tokens, IgnoreEOS: true, Sampling: &model.Sampling{}}
			for tok, err := range s.Generate(context.Background(), model.IDs(prompt(9+turn, seed+turn)), opts) {
				if err != nil {
					return nil, err
				}
				said = append(said, tok.ID)
			}
		}
		return said, nil
	}
	// As many contexts as either phase has programs, and fewer than both have.
	contexts, all := 0, len(onDevice(plan))
	for _, steps := range [][]model.Step{plan.Prefill[0].Steps, slices.Concat(plan.Decode.Steps, plan.Decode.Head)} {
		used := map[string]bool{}
		for _, s := range steps {
			if s.On == model.OnDevice {
				used[s.Program] = true
			}
		}
		contexts = max(contexts, len(used))
	}
	if contexts >= all {
		t.Fatalf("%d contexts hold all %d programs", contexts, all)
	}
	var opened [2]int
	var said [2][2][]int32
	for at, atOnce := range []bool{false, true} {
		f := &fake{}
		m := openModel(t, f.open(t, each(onDevice(plan)...), Options{Contexts: contexts}), dir, plan)
		var wg sync.WaitGroup
		for i := range 2 {
			talk := func() {
				var err error
				if said[at][i], err = chat(m, 100*i); err != nil {
					t.Error(err)
				}
			}
			if atOnce {
				wg.Go(talk)
			} else {
				talk()
			}
		}
		wg.Wait()
		opened[at] = f.opened
	}
	t.Logf("%d programs, %d contexts: %d opened one after the other, %d at once", all, contexts, opened[0], opened[1])
	for i := range 2 {
		if !slices.Equal(said[0][i], said[1][i]) || len(said[0][i]) != turns*tokens {
			t.Errorf("chat %d says %v beside the other, %v alone", i, said[1][i], said[0][i])
		}
	}
	if opened[1] > opened[0] {
		t.Errorf("%d contexts opened at once, %d one after the other", opened[1], opened[0])
	}
}

// A context that is lost for good, a timeout and a cancelled step lose nothing that a session holds: the same step again goes on as if
// nothing had been.
func TestFailuresLoseNoTokens(t *testing.T) {
	dir := t.TempDir()
	if err := ckptgen.Write(dir, specs()["qwen3-head-first"], 7); err != nil {
		t.Fatal(err)
	}
	plan := npuPlan(t, dir, rows)
	want := begin(t, onCPU(t, dir, plan), prompt(10, 1))
	want.say(t, 4)
	for name, tc := range map[string]struct {
		fail  []error
		delay time.Duration
		want  error
	}{
		"lost":      {fail: []error{xrt.ErrAborted, xrt.ErrAborted}, want: npu.ErrDeviceLost},
		"timeout":   {fail: []error{xrt.ErrTimeout}, want: npu.ErrTimeout},
		"cancelled": {delay: 300 * time.Millisecond, want: context.DeadlineExceeded},
	} {
		f := &fake{fail: map[int]error{}, delay: map[int]time.Duration{}}
		m := openModel(t, f.open(t, each(onDevice(plan)...), Options{}), dir, plan)
		got := begin(t, m, prompt(10, 1))
		got.say(t, 2)
		next := len(f.started) + 3 // in the middle of the next step
		for i, err := range tc.fail {
			f.fail[next+i] = err
		}
		f.delay[next] = tc.delay
		last := got.logits[len(got.logits)-1]
		id := int32(slices.Index(last, slices.Max(last)))
		ctx, cancel := context.WithCancel(context.Background())
		if tc.delay > 0 {
			ctx, cancel = context.WithTimeout(context.Background(), tc.delay/2)
		}
		if _, err := got.s.Step(ctx, id); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", name, err, tc.want)
		}
		cancel()
		got.say(t, 2)
		if !slices.Equal(got.ids, want.ids) {
			t.Errorf("%s: the session said %v, on cpu %v", name, got.ids, want.ids)
		}
	}
}
