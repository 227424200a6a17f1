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
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/xrt"
)

// rows is the sequence length of the plans: the shortest that the tile sizes divide.
const rows = 64

// specs returns small models, one for each kind of plan.
func specs() map[string]ckptgen.Spec {
	spec := func(family string, hidden, heads, kv, hd, ffn int) ckptgen.Spec {
		return ckptgen.Spec{Family: family, Layers: 2, Hidden: hidden, Heads: heads, KVHeads: kv,
			HeadDim: hd, FFN: ffn, Vocab: 600, Context: 256, Tie: true}
	}
	return map[string]ckptgen.Spec{
		// o_ffn and o_gemv_ffn, with a constant's scratch row and unused arguments
		"llama-merged":     spec("llama", 1024, 16, 8, 64, 1024),
		"llama-split":      spec("llama", 512, 6, 2, 128, 768),
		"qwen2-padded":     spec("qwen2", 448, 7, 1, 64, 512),
		"qwen2-wide":       spec("qwen2", 256, 6, 1, 128, 5376), // most programs in prefill
		"qwen3-head-first": spec("qwen3", 256, 4, 2, 128, 512),
	}
}

// npuPlan plans a checkpoint for the NPU with a prefill pass of the given number of rows.
func npuPlan(t *testing.T, dir string, rows int) *plan.Plan {
	t.Helper()
	ck, err := checkpoint.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	p, err := plan.NewNPU(ck.Config(), &plan.NPUOptions{Lengths: []int{rows}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// onDevice returns the programs of a plan that run on the NPU.
func onDevice(p *plan.Plan) (programs []*npu.Program) {
	for _, pass := range p.Passes() {
		for _, s := range slices.Concat(pass.Steps, pass.Head) {
			if program := p.Program(s.Program); s.On == plan.OnDevice && !slices.Contains(programs, program) {
				programs = append(programs, program)
			}
		}
	}
	return programs
}

func openModel(t *testing.T, dev npu.Device, dir string, p *plan.Plan) *model.Model {
	t.Helper()
	m, err := model.Open(context.Background(), dev, dir, &model.OpenOptions{Plan: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, m) })
	return m
}

// onCPU opens a model on a software device.
func onCPU(t *testing.T, dir string, p *plan.Plan) *model.Model {
	t.Helper()
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeIt(t, dev) })
	return openModel(t, dev, dir, p)
}

// conversation is a session with greedy decoding, its token IDs and the logits of each step.
type conversation struct {
	s      *model.Session
	ids    []int32
	logits [][]float32
}

func begin(t *testing.T, m *model.Model, prompt []int32) *conversation {
	t.Helper()
	sp := &conversation{s: m.NewSession()}
	t.Cleanup(func() { closeIt(t, sp.s) })
	if err := sp.s.Score(context.Background(), prompt, func(_ int, logits []float32) error {
		sp.logits = append(sp.logits, slices.Clone(logits))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return sp
}

// generate appends n token IDs.
func (sp *conversation) generate(t *testing.T, n int) {
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

// The device generates the same IDs and logits as npu/cpu, to the bit, through prefill, padding,
// decode and the transitions between them. The test arrays compute with cpu kernels, so any
// difference is a wrong byte in a buffer.
func TestModelsEqualCPU(t *testing.T) {
	for name, spec := range specs() {
		dir := t.TempDir()
		if err := ckptgen.Write(dir, spec, 7); err != nil {
			t.Fatal(err)
		}
		p := npuPlan(t, dir, rows)
		want := begin(t, onCPU(t, dir, p), prompt(rows+9, 5))
		want.generate(t, 12)
		for how, open := range modelOpeners() {
			t.Run(name+"/"+how, func(t *testing.T) {
				// fewer than the plan has programs
				d := open(t, each(onDevice(p)...), Options{Contexts: 4})
				got := begin(t, openModel(t, d, dir, p), prompt(rows+9, 5))
				got.generate(t, 12)
				if !slices.Equal(got.ids, want.ids) {
					t.Errorf("ids %v, on cpu %v", got.ids, want.ids)
				}
				for i := range want.logits {
					if !slices.Equal(got.logits[i], want.logits[i]) {
						t.Fatalf("logits of position %d differ", i)
					}
				}
			})
		}
	}
}

// Two alternating chats, with more programs than contexts, generate the same as each alone.
func TestInterleavedChats(t *testing.T) {
	dir := t.TempDir()
	if err := ckptgen.Write(dir, specs()["qwen2-wide"], 7); err != nil {
		t.Fatal(err)
	}
	p := npuPlan(t, dir, rows)
	software := onCPU(t, dir, p)
	f := &fake{}
	m := openModel(t, f.open(t, each(onDevice(p)...), Options{Contexts: 5}), dir, p)
	a, b := begin(t, m, prompt(20, 1)), begin(t, m, prompt(3, 2))
	for range 3 {
		a.generate(t, 2)
		b.generate(t, 1)
	}
	b.generate(t, 3)
	for i, got := range []*conversation{a, b} {
		want := begin(t, software, prompt([]int{20, 3}[i], i+1))
		want.generate(t, 6)
		if !slices.Equal(got.ids, want.ids) {
			t.Errorf("chat %d: %v, alone on cpu %v", i, got.ids, want.ids)
		}
	}
	if f.most > 5 {
		t.Errorf("%d contexts at once", f.most)
	}
}

// Two concurrent chats generate the same as each alone and open no more contexts than one after the
// other, because requests that wait for the same phase share it.
func TestConcurrentChats(t *testing.T) {
	dir := t.TempDir()
	if err := ckptgen.Write(dir, specs()["qwen2-wide"], 7); err != nil {
		t.Fatal(err)
	}
	p := npuPlan(t, dir, rows)
	p.Prefill[0].Cost, p.Decode.Cost = 0, 0 // without costs every prompt is prefilled
	const turns, tokens = 3, 6
	chat := func(m *model.Model, seed int) (ids []int32, err error) {
		s := m.NewSession()
		defer s.Close()
		for turn := range turns {
			opts := &model.GenerateOptions{MaxTokens: tokens, IgnoreEOS: true, Sampling: &model.Sampling{}}
			for tok, err := range s.Generate(context.Background(),
				model.IDs(prompt(9+turn, seed+turn)), opts) {
				if err != nil {
					return nil, err
				}
				ids = append(ids, tok.ID)
			}
		}
		return ids, nil
	}
	// As many contexts as either phase has programs, but fewer than both have.
	contexts, all := 0, len(onDevice(p))
	for _, steps := range [][]plan.Step{p.Prefill[0].Steps,
		slices.Concat(p.Decode.Steps, p.Decode.Head)} {
		used := map[string]bool{}
		for _, s := range steps {
			if s.On == plan.OnDevice {
				used[s.Program] = true
			}
		}
		contexts = max(contexts, len(used))
	}
	if contexts >= all {
		t.Fatalf("%d contexts hold all %d programs", contexts, all)
	}
	var opened [2]int
	var ids [2][2][]int32
	for at, atOnce := range []bool{false, true} {
		f := &fake{}
		m := openModel(t, f.open(t, each(onDevice(p)...), Options{Contexts: contexts}), dir, p)
		var wg sync.WaitGroup
		for i := range 2 {
			talk := func() {
				var err error
				if ids[at][i], err = chat(m, 100*i); err != nil {
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
	t.Logf("%d programs, %d contexts: %d opened one after the other, %d concurrently", all, contexts,
		opened[0], opened[1])
	for i := range 2 {
		if !slices.Equal(ids[0][i], ids[1][i]) || len(ids[0][i]) != turns*tokens {
			t.Errorf("chat %d: %v concurrently, %v alone", i, ids[1][i], ids[0][i])
		}
	}
	if opened[1] > opened[0] {
		t.Errorf("%d contexts opened concurrently, %d one after the other", opened[1], opened[0])
	}
}

// A lost context, a timeout and a canceled step lose no session state: repeating the step continues
// the generation.
func TestFailuresLoseNoTokens(t *testing.T) {
	dir := t.TempDir()
	if err := ckptgen.Write(dir, specs()["qwen3-head-first"], 7); err != nil {
		t.Fatal(err)
	}
	p := npuPlan(t, dir, rows)
	want := begin(t, onCPU(t, dir, p), prompt(10, 1))
	want.generate(t, 4)
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
		m := openModel(t, f.open(t, each(onDevice(p)...), Options{}), dir, p)
		got := begin(t, m, prompt(10, 1))
		got.generate(t, 2)
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
		got.generate(t, 2)
		if !slices.Equal(got.ids, want.ids) {
			t.Errorf("%s: %v, on cpu %v", name, got.ids, want.ids)
		}
	}
}
