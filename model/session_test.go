package model

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/npukit/npukit/model/chat"
	"github.com/npukit/npukit/model/internal/hostvalue"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

func userMessage(text string) []chat.Message { return []chat.Message{{Role: "user", Content: text}} }

// generate returns the ids of a whole generation.
func generate(t *testing.T, s *Session, ids []int32, opts *GenerateOptions) (got []int32) {
	t.Helper()
	for tok, err := range s.Generate(context.Background(), IDs(ids), opts) {
		if err != nil {
			t.Error(err)
			return
		}
		got = append(got, tok.ID)
	}
	return got
}

// The size of chunks does not change the text.
func TestChunksGiveTheSameText(t *testing.T) {
	prompt := make([]int32, 300)
	for i := range prompt {
		prompt[i] = int32((i*i + 3*i) % 256)
	}
	var want []int32
	for _, chunk := range []int{512, 1, 2, 64, 299, 300} {
		m := open(t, tiny("qwen3-qknorm"), "",
			&plan.Options{Chunk: chunk, Activations: dtype.F32, Cache: dtype.F32})
		s := m.NewSession()
		got := generate(t, s, prompt, &GenerateOptions{MaxTokens: 12, IgnoreEOS: true})
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("chunks of %d: %v, want %v", chunk, got, want)
		}
	}
}

// A session reuses its cache and agrees with a new session. Answers are reused too.
func TestPrefixReuse(t *testing.T) {
	m := open(t, tiny("llama-tied-rope-scaled"), "", nil)
	s := m.NewSession()
	defer s.Close()
	base := text(40, 3)
	few := m.dev.Info().FewRows
	said := generate(t, s, base, &GenerateOptions{MaxTokens: 5, IgnoreEOS: true})
	for i, tc := range []struct {
		ids    []int32
		cached int
		exact  bool
	}{
		{slices.Concat(base, text(30, 7)), 40, true},            // goes on
		{slices.Concat(base[:20], text(30, 5)), 20, true},       // diverges
		{slices.Concat(base[:20], text(30, 5)), 49 - few, true}, // again: the rest is a large pass
		{base[:3], 0, true}, // fewer than few are computed again
		{base, 0, true},     // they were in a small pass
		// the next message: the last generated token was not computed
		{slices.Concat(base, said, text(1, 9)), 44, false},
		{slices.Concat(base, said, text(1, 9)), min(40, 45-few), true}, // with ExactReuse
		{[]int32{77}, 0, true},
	} {
		var stats Stats
		opts := &GenerateOptions{MaxTokens: 5, IgnoreEOS: true, Stats: &stats, ExactReuse: i == 6}
		got := generate(t, s, tc.ids, opts)
		fresh := m.NewSession()
		want := generate(t, fresh, tc.ids, &GenerateOptions{MaxTokens: 5, IgnoreEOS: true})
		fresh.Close()
		if tc.exact && !slices.Equal(got, want) {
			t.Errorf("prompt %d: %v after others, %v in a fresh session", i, got, want)
		}
		if stats.CachedTokens != tc.cached {
			t.Errorf("prompt %d: %d tokens were taken from the cache, want %d", i,
				stats.CachedTokens, tc.cached)
		}
		if stats.PromptTokens != len(tc.ids) || stats.Tokens != 5 || stats.Reason != StopLength ||
			stats.Total < stats.TTFT ||
			stats.TTFT <= 0 {
			t.Errorf("prompt %d: stats %+v", i, stats)
		}
	}
}

// Concurrent sessions do not affect each other.
func TestSessionsAtOnce(t *testing.T) {
	m := open(t, tiny("qwen2-bias"), "", nil)
	prompts := [][]int32{{1, 2, 3}, {200, 100, 50, 25, 12, 6, 3}, {7}, {9, 8, 7, 6, 5, 4, 3, 2, 1, 0}}
	opts := &GenerateOptions{MaxTokens: 20, IgnoreEOS: true}
	var want [4][]int32
	for i, p := range prompts {
		s := m.NewSession()
		want[i] = generate(t, s, p, opts)
		s.Close()
	}
	var wg sync.WaitGroup
	for i, p := range prompts {
		wg.Go(func() {
			s := m.NewSession()
			defer s.Close()
			if got := generate(t, s, p, opts); !slices.Equal(got, want[i]) {
				t.Errorf("prompt %d: %v beside others, %v alone", i, got, want[i])
			}
		})
	}
	wg.Wait()
}

func TestSameSeedSameText(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	run := func(seed uint64) []int32 {
		s := m.NewSession()
		defer s.Close()
		return generate(t, s, []int32{1, 2, 3}, &GenerateOptions{MaxTokens: 30, IgnoreEOS: true,
			Sampling: &Sampling{Temperature: 1, TopK: 50, TopP: 0.95, RepetitionPenalty: 1.1, Seed: seed}})
	}
	if a, b := run(11), run(11); !slices.Equal(a, b) {
		t.Errorf("seed 11 gave %v and %v", a, b)
	}
	if a, b := run(11), run(12); slices.Equal(a, b) {
		t.Error("two seeds gave the same text")
	}
}

func TestStopsAndEnds(t *testing.T) {
	m := open(t, tiny("llama-tied-rope-scaled"), "", nil)
	s := m.NewSession()
	defer s.Close()
	prompt := []int32{1, 2, 3}
	free := generate(t, s, prompt, &GenerateOptions{MaxTokens: 8, IgnoreEOS: true})
	var stats Stats
	got := generate(t, s, prompt,
		&GenerateOptions{MaxTokens: 8, IgnoreEOS: true, StopIDs: []int32{free[3]}, Stats: &stats})
	if end := slices.Index(free, free[3]); !slices.Equal(got, free[:end+1]) || stats.Reason != StopString {
		t.Errorf("stop id %d: %v (%s), want %v", free[3], got, stats.Reason, free[:end+1])
	}
	// Leaving the loop ends the generation, and the session can be used again.
	n := 0
	for range s.Generate(context.Background(), IDs(prompt),
		&GenerateOptions{MaxTokens: 8, IgnoreEOS: true, Stats: &stats}) {
		if n++; n == 2 {
			break
		}
	}
	if stats.Reason != StopBreak || stats.Tokens != 2 {
		t.Errorf("after leaving the loop: %+v", stats)
	}
	got = generate(t, s, prompt, &GenerateOptions{MaxTokens: 8, IgnoreEOS: true})
	if !slices.Equal(got, free) {
		t.Errorf("after leaving a loop: %v, want %v", got, free)
	}
	// Logprobs are those of the generated tokens.
	for tok, err := range s.Generate(context.Background(), IDs(prompt),
		&GenerateOptions{MaxTokens: 4, IgnoreEOS: true, TopTokens: 3}) {
		if err != nil || len(tok.Top) != 3 || tok.Top[0].ID != tok.ID ||
			tok.Top[0].Logprob != tok.Logprob ||
			tok.Logprob >= 0 {
			t.Errorf("greedy token %+v %v: want it first of three alternatives", tok, err)
		}
	}
}

func TestContextLimit(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", &plan.Options{SeqLen: 20})
	s := m.NewSession()
	defer s.Close()
	var stats Stats
	got := generate(t, s, make([]int32, 15), &GenerateOptions{IgnoreEOS: true, Stats: &stats})
	if len(got) != 5 || stats.Reason != StopContext {
		t.Errorf("15 tokens in a context of 20: %d more, reason %q; want 5, %q", len(got),
			stats.Reason, StopContext)
	}
	for _, err := range s.Generate(context.Background(), IDs(make([]int32, 20)), nil) {
		var c *ContextError
		if !errors.As(err, &c) || c.Prompt != 20 || c.Context != 20 ||
			!strings.Contains(err.Error(), "20 tokens, the context is 20") {
			t.Errorf("a prompt that fills the context: %v", err)
		}
	}
	if err := s.Score(context.Background(), make([]int32, 21), nil); err == nil {
		t.Error("21 tokens were scored in a context of 20")
	}
}

func TestBadPrompts(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	for want, p := range map[string]Prompt{
		"Prompt.IDs[1] is 999999":  IDs([]int32{1, 999999}),
		"Prompt.IDs[0] is -1":      IDs([]int32{-1}),
		"no tokenizer.json":        Text("hello"),
		"Prompt.Messages is empty": Messages(nil, nil),
		"no usable chat template":  Messages(userMessage("hello"), nil),
	} {
		n := 0
		for _, err := range m.Generate(context.Background(), p, nil) {
			if n++; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one about %q", err, want)
			}
		}
		if n != 1 {
			t.Errorf("%q: yielded %d times, want the error once", want, n)
		}
	}
	for want, opts := range map[string]*GenerateOptions{
		"MaxTokens is -1":  {MaxTokens: -1},
		"StopIDs[1] is -1": {StopIDs: []int32{0, -1}},
		"TopTokens is -5":  {Logprobs: true, TopTokens: -5},
	} {
		for _, err := range m.Generate(context.Background(), IDs([]int32{1}), opts) {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want one about %q", err, want)
			}
		}
	}
	for tok, err := range m.Generate(context.Background(), IDs([]int32{1}),
		&GenerateOptions{MaxTokens: 1, TopTokens: 1 << 40}) {
		if err != nil || len(tok.Top) != m.Checkpoint().Config().Vocab {
			t.Errorf("more alternatives than tokens: %d, %v", len(tok.Top), err)
		}
	}
	for _, err := range m.Generate(context.Background(), IDs([]int32{1}),
		&GenerateOptions{Sampling: &Sampling{TopP: 2}}) {
		if err == nil || !strings.Contains(err.Error(), "Sampling.TopP is 2") {
			t.Errorf("error %v, want one about top-p", err)
		}
	}
}

func TestCancel(t *testing.T) {
	m := open(t, tiny("qwen2-bias"), "", &plan.Options{Chunk: 64})
	s := m.NewSession()
	defer s.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range s.Generate(ctx, IDs([]int32{1}), nil) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: %v", err)
		}
	}
	prompt := make([]int32, m.Context()-100)
	ctx, cancel = context.WithCancel(context.Background())
	var at time.Time
	time.AfterFunc(5*time.Millisecond, func() { at = time.Now(); cancel() })
	for _, err := range s.Generate(ctx, IDs(prompt), &GenerateOptions{IgnoreEOS: true}) {
		if err == nil {
			continue
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled on the way: %v", err)
		}
	}
	// the contract is 100 ms; a loaded test machine may take longer
	if late := time.Since(at); late > 2*time.Second {
		t.Errorf("cancelled after %v", late)
	}
	fresh := m.NewSession()
	defer fresh.Close()
	opts := &GenerateOptions{MaxTokens: 5, IgnoreEOS: true}
	ids := []int32{4, 5, 6}
	got, want := generate(t, s, ids, opts), generate(t, fresh, ids, opts)
	if !slices.Equal(got, want) {
		t.Errorf("after a cancelled generation: %v, want %v", got, want)
	}
}

func TestUseAfterClose(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	s := m.NewSession()
	generate(t, s, []int32{1}, &GenerateOptions{MaxTokens: 2})
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	for _, err := range s.Generate(context.Background(), IDs([]int32{1, 2}), nil) {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("generating after Close: %v, want ErrClosed", err)
		}
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A closed session returns ErrClosed. It must not allocate a new cache, which nothing would close.
func TestSessionUsedAfterClose(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	ctx := context.Background()
	s := m.NewSession()
	generate(t, s, []int32{1}, &GenerateOptions{MaxTokens: 2})
	for range 2 {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Step(ctx, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("Step: %v, want ErrClosed", err)
	}
	if err := s.Score(ctx, []int32{1}, func(int, []float32) error { return nil }); !errors.Is(err,
		ErrClosed) {
		t.Errorf("Score: %v, want ErrClosed", err)
	}
	if err := s.Forget(); !errors.Is(err, ErrClosed) {
		t.Errorf("Forget: %v, want ErrClosed", err)
	}
	for _, err := range s.Generate(ctx, IDs([]int32{1, 2}), &GenerateOptions{MaxTokens: 1}) {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("Generate: %v, want ErrClosed", err)
		}
	}
}

// Step and Score beyond the context return the same type of error as a prompt that is too long.
// Score without emit fills the session.
func TestStepAndScoreBeyondTheContext(t *testing.T) {
	ctx := context.Background()
	m := open(t, tiny("smollm-mha"), "", &plan.Options{SeqLen: 8})
	s := m.NewSession()
	defer s.Close()
	var full *ContextError
	if err := s.Score(ctx, make([]int32, 9), nil); !errors.As(err, &full) || full.Prompt != 9 ||
		full.Context != 8 {
		t.Errorf("9 ids: %v, want a ContextError", err)
	}
	if err := s.Score(ctx, make([]int32, 7), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Step(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Step(ctx, 1); !errors.As(err, &full) || full.Prompt != 9 || full.Context != 8 {
		t.Errorf("a ninth id: %v, want a ContextError", err)
	}
}

// Stop strings are an error without a tokenizer, because tokens then have no text.
func TestStopStringsNeedText(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	stats := Stats{}
	for _, err := range m.Generate(context.Background(), IDs([]int32{1}),
		&GenerateOptions{MaxTokens: 2, Stop: []string{"end"}, Stats: &stats}) {
		if !errors.Is(err, ErrNoTokenizer) {
			t.Errorf("a stop string: %v, want ErrNoTokenizer", err)
		}
	}
	if stats.Reason != StopError {
		t.Errorf("it ended by %q", stats.Reason)
	}
}

func TestSessionIsBusy(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	s := m.NewSession()
	for range s.Generate(context.Background(), IDs([]int32{1}), &GenerateOptions{MaxTokens: 1}) {
		for _, err := range s.Generate(context.Background(), IDs([]int32{1}), nil) {
			if !errors.Is(err, ErrBusy) {
				t.Errorf("a second generation: %v, want ErrBusy", err)
			}
		}
		if err := s.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("closing: %v, want ErrBusy", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A tracer gets every launch, run and host span of a pass.
func TestTrace(t *testing.T) {
	m := open(t, tiny("llama-tied-rope-scaled"), "", nil)
	var mu sync.Mutex
	seen := map[string]map[string]bool{}
	ctx := npu.WithTracer(context.Background(), func(s npu.Span) {
		mu.Lock()
		defer mu.Unlock()
		if seen[s.Category] == nil {
			seen[s.Category] = map[string]bool{}
		}
		seen[s.Category][s.Name] = true
		if s.Duration < 0 || s.Start.IsZero() {
			t.Errorf("span %+v", s)
		}
	})
	for _, err := range m.Generate(ctx, IDs([]int32{1, 2, 3}), &GenerateOptions{MaxTokens: 2, IgnoreEOS: true}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for category, names := range map[string][]string{
		"op":      {"embed.embed", "layer.0.attn.q_rope", "layer.1.ffn.down+ffn.residual", "head.lm_head"},
		"program": {"embed", "layer.0", "layer.1", "head"},
		"host":    {"tokenize", "prepare", "sample"},
	} {
		for _, name := range names {
			if !seen[category][name] {
				t.Errorf("no span %q of category %q; there are %v", name, category, seen[category])
			}
		}
	}
}

// Logits do not depend on the number of threads, for given kernels.
func TestThreadsGiveTheSameLogits(t *testing.T) {
	var want []float32
	kernels := ""
	for _, threads := range []int{1, 2, 3} {
		dev, err := cpu.Open(&cpu.Options{Threads: threads, Kernels: kernels})
		if err != nil {
			t.Fatal(err)
		}
		kernels = dev.Kernels()
		m, err := Open(context.Background(), dev, tiny("qwen2-bias"), nil)
		if err != nil {
			t.Fatal(err)
		}
		s := m.NewSession()
		var got []float32
		err = s.Score(
			context.Background(),
			[]int32{1, 5, 9, 200, 3, 77, 8},
			func(_ int, logits []float32) error {
				got = append(got, logits...)
				return nil
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d threads give other logits than one", threads)
		}
		if err := errors.Join(s.Close(), m.Close(), dev.Close()); err != nil {
			t.Error(err)
		}
	}
}

// A plan is untrusted input: an invalid one is an error before anything runs.
func TestHostilePlans(t *testing.T) {
	m := open(t, tiny("qwen3-qknorm"), "", nil)
	for name, tc := range map[string]struct {
		spoil func(p *plan.Plan)
		want  string
	}{
		"picks without a dimension": {func(p *plan.Plan) {
			planValue(p, hostvalue.Picks).Shape = []int{0}
		}, "is malformed"},
		"picks of fixed number": {func(p *plan.Plan) {
			planValue(p, hostvalue.Picks).Shape = []int{1}
		}, "must be I32 [picks]"},
		"rope in BF16": {func(p *plan.Plan) {
			planValue(p, "rope").Type = dtype.BF16
		}, "must be F32 [rows 32]"},
		"rope too narrow": {func(p *plan.Plan) {
			planValue(p, "rope").Shape[1] = 16
		}, "must be F32 [rows 32]"},
		"a value out of range": {func(p *plan.Plan) {
			planValue(p, "x.0").Shape[1] = 1 << 60
		}, "is malformed"},
		"two open dimensions": {func(p *plan.Plan) {
			planValue(p, "x.0").Shape = []int{op.Rows, op.Rows}
		}, "is malformed"},
		"no such program": {func(p *plan.Plan) {
			p.Prefill[0].Steps[0].Program = "nothing"
		}, "unknown program"},
		"a context beyond the model's": {func(p *plan.Plan) { p.SeqLen = 1 << 20 }, "a context of 2048"},
		"positions out of range":       {func(p *plan.Plan) { p.Chunk = 1 << 40 }, "must be 1 to"},
		"another weight": {func(p *plan.Plan) {
			swap(p, "model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.o_proj.weight")
		}, "the checkpoint's"},
		"a weight turned": {func(p *plan.Plan) {
			swap(p, "model.layers.1.mlp.up_proj.weight", "transpose(model.layers.1.mlp.up_proj.weight)")
		}, "the checkpoint's"},
		"a terabyte": {func(p *plan.Plan) {
			swap(p, "model.norm.weight", "transpose(pad(model.norm.weight, 1048576, 1048576))")
		}, "out of range"},
		"another cache type": {func(p *plan.Plan) { p.Cache = dtype.F32 }, "kcache"},
		"state beside picks": {func(p *plan.Plan) {
			head := p.Program("head")
			head.State("extra", p.Cache, p.Model.KVHeads, op.Capacity, p.Model.HeadDim)
			last := &p.Prefill[0].Head[0]
			last.Args = append(last.Args, plan.Binding{State: "k.0"})
		}, "only steps before the head"},
	} {
		data, err := json.Marshal(m.Plan())
		if err != nil {
			t.Fatal(err)
		}
		var p plan.Plan
		if err := json.Unmarshal(data, &p); err != nil {
			t.Fatal(err)
		}
		tc.spoil(&p)
		got, err := Open(context.Background(), m.dev, tiny("qwen3-qknorm"), &OpenOptions{Plan: &p})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one about %q", name, err, tc.want)
		}
		if err == nil {
			got.Close()
		}
	}
}

func planValue(p *plan.Plan, name string) *plan.Value {
	return &p.Values[slices.IndexFunc(p.Values, func(v plan.Value) bool { return v.Name == name })]
}

// swap replaces the layout of a weight.
func swap(p *plan.Plan, from, to string) {
	layout, err := npu.ParseLayout(to)
	if err != nil {
		panic(err)
	}
	for _, pass := range p.Passes() {
		for _, s := range slices.Concat(pass.Steps, pass.Head) {
			for j, b := range s.Args {
				if b.Const != nil && b.Const.String() == from {
					s.Args[j].Const = &layout
				}
			}
		}
	}
}

// A callback of Score may use other sessions.
func TestScoreLetsOthersPass(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	a, b := m.NewSession(), m.NewSession()
	defer a.Close()
	defer b.Close()
	n := 0
	err := a.Score(context.Background(), []int32{1, 2, 3}, func(int, []float32) error {
		n += len(generate(t, b, []int32{5}, &GenerateOptions{MaxTokens: 2, IgnoreEOS: true}))
		return nil
	})
	if err != nil || n != 6 {
		t.Errorf("%d tokens generated meanwhile, %v; want 6", n, err)
	}
}

// After a prompt the cache has room for the first tokens of the answer, which would otherwise copy
// it.
func TestCacheHasRoomForAnAnswer(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	for _, tc := range []struct{ prompt, most, room int }{
		{100, 20, 256}, // a new cache's size
		{300, 20, 320},
		{300, 0, 556}, // of an answer without a limit 256 positions, or a quarter of the prompt,
		{1200, 0, 1500},
		{1700, 0, 2048}, // as far as the context goes
		{2040, 8, 2048},
	} {
		s := m.NewSession()
		ids, first, tokens := make([]int32, tc.prompt), 0, 0
		for _, err := range s.Generate(context.Background(), IDs(ids),
			&GenerateOptions{MaxTokens: tc.most, IgnoreEOS: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if first == 0 {
				first = s.seq.cache.capacity
			}
			if tokens++; tokens == 30 {
				break
			}
		}
		if s.seq.cache.capacity != first || first != tc.room {
			t.Errorf(
				"a prompt of %d and %d tokens at most: room for %d positions "+
					"at the first token and %d at the last, want %d",
				tc.prompt, tc.most, first, s.seq.cache.capacity, tc.room)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
