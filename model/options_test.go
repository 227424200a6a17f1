package model

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/xdna2"
)

// A server distinguishes its caller's mistakes from its own faults by type. Each of these is an
// OptionError with the field and the value.
func TestOptionErrors(t *testing.T) {
	m := openChain(t, ckptgen.Chain{Control: chatML, Says: saysHi("<|im_end|>", ".")})
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	vocab := m.Checkpoint().Config().Vocab
	penalty := Sampling{RepetitionPenalty: 1000}
	generate := func(p Prompt, o GenerateOptions) func() error {
		return func() error {
			_, err := m.Complete(context.Background(), p, &o)
			return err
		}
	}
	open := func(o OpenOptions) func() error {
		return func() error {
			m, err := Open(context.Background(), dev, m.Checkpoint().Path(), &o)
			if err == nil {
				err = errors.Join(errors.New("it opens"), m.Close())
			}
			return err
		}
	}
	negative := -1
	for _, tc := range []struct {
		field string
		value any
		call  func() error
	}{
		{"GenerateOptions.MaxTokens", -1, generate(Text("x"), GenerateOptions{MaxTokens: -1})},
		{"GenerateOptions.TopTokens", -2, generate(Text("x"), GenerateOptions{TopTokens: -2})},
		{"GenerateOptions.StopIDs[1]", int32(vocab),
			generate(Text("x"), GenerateOptions{StopIDs: []int32{0, int32(vocab)}})},
		{"Sampling.Temperature", -0.5, generate(Text("x"), GenerateOptions{Sampling: &Sampling{Temperature: -0.5}})},
		{"Sampling.TopK", -1, generate(Text("x"), GenerateOptions{Sampling: &Sampling{TopK: -1}})},
		{"Sampling.TopP", 1.01, generate(Text("x"), GenerateOptions{Sampling: &Sampling{TopP: 1.01}})},
		{"Sampling.MinP", -0.1, generate(Text("x"), GenerateOptions{Sampling: &Sampling{MinP: -0.1}})},
		{"Sampling.RepetitionPenalty", 1000.0, generate(Text("x"), GenerateOptions{Sampling: &penalty})},
		{"Prompt.IDs[2]", int32(-1), generate(IDs([]int32{0, 1, -1}), GenerateOptions{})},
		{"Prompt.IDs[0]", int32(vocab), generate(IDs([]int32{int32(vocab)}), GenerateOptions{})},
		{"Prompt.Messages", "empty", generate(Messages(nil, nil), GenerateOptions{})},
		{"Prompt", "empty", generate(Text(""), GenerateOptions{})},
		{"OpenOptions.MaxContext", -1, open(OpenOptions{MaxContext: -1})},
		{"OpenOptions.PrefixBytes", -1, open(OpenOptions{PrefixBytes: &negative})},
		{"OpenOptions.PlanOptions", "set", open(OpenOptions{Plan: m.Plan(), PlanOptions: &plan.Options{}})},
		{"PlanOptions.SeqLen", 4096, open(OpenOptions{PlanOptions: &plan.Options{SeqLen: 4096}})},
		{"PlanOptions.MaxSeqLen", -1, open(OpenOptions{PlanOptions: &plan.Options{MaxSeqLen: -1}})},
		{"PlanOptions.Cache", dtype.I32, open(OpenOptions{PlanOptions: &plan.Options{Cache: dtype.I32}})},
		{"PlanOptions.Activations", dtype.F16, open(OpenOptions{PlanOptions: &plan.Options{Activations: dtype.F16}})},
		{"id", int32(vocab), func() error {
			s := m.NewSession()
			defer s.Close()
			_, err := s.Step(context.Background(), int32(vocab))
			return err
		}},
		{"ids[1]", int32(-7), func() error {
			s := m.NewSession()
			defer s.Close()
			return s.Score(context.Background(), []int32{1, -7}, nil)
		}},
		{"GenerateOptions.Stop[1]", "h<|im_end|>i",
			generate(Text("x"), GenerateOptions{Stop: []string{"h", "h<|im_end|>i"}})},
		{"dev", nil, func() error { _, err := Open(context.Background(), nil, "nowhere", nil); return err }},
		{"ck", nil, func() error { _, err := plan.New(nil, dev.Info(), nil); return err }},
	} {
		err := tc.call()
		var bad *OptionError
		if !errors.As(err, &bad) || bad.Field != tc.field || !reflect.DeepEqual(bad.Value, tc.value) ||
			bad.Want == "" {
			t.Errorf("%s of %v: %v", tc.field, tc.value, err)
			continue
		}
		value := fmt.Sprint(tc.value)
		if tc.value == nil {
			value = "nil"
		}
		want := "model: " + tc.field + " is " + value + ", want "
		if !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want a text that begins with %q", err, want)
		}
	}
}

// Arguments that must not be nil cause errors that name them.
func TestNilArguments(t *testing.T) {
	m := open(t, tiny("smollm-mha"), "", nil)
	p := m.Plan()
	for name, call := range map[string]func() error{
		"NewPlan":                   func() error { _, err := plan.New(nil, npu.Info{}, nil); return err },
		"NewNPUPlan":                func() error { _, err := plan.NewNPU(nil, nil); return err },
		"Plan.Check":                func() error { return p.Check(nil, npu.Info{}) },
		"Plan.CheckNPU of no model": func() error { return p.CheckNPU(nil, xdna2.NPU2()) },
		"Plan.CheckNPU on no array": func() error { return p.CheckNPU(m.Checkpoint().Config(), nil) },
		"Plan.CheckContexts":        func() error { return p.CheckContexts(nil) },
		"WriteTrace":                func() error { return new(plan.Estimate).WriteTrace(nil) },
		"Plan.Estimate":             func() error { _, err := p.Estimate(nil); return err },
	} {
		if err := call(); !errors.As(err, new(*OptionError)) ||
			!strings.Contains(err.Error(), " is nil, want a") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := plan.Diff(nil, p); len(got) == 0 || len(plan.Diff(nil, nil)) != 0 {
		t.Errorf("a plan and none differ by %v", got)
	}
	if got := EndTokens(nil, nil); got != nil {
		t.Errorf("end tokens of nothing: %v", got)
	}
	if bos, eos := SpecialTexts(nil, nil); bos+eos != "" {
		t.Errorf("special texts of nothing: %q, %q", bos, eos)
	}
}

// The JSON that a server sends has times in seconds and the command's names, and survives a round
// trip.
func TestJSON(t *testing.T) {
	c := Completion{
		Text: "hi", Tokens: []int32{5, 6, 2},
		Logprobs: []Token{
			{ID: 5, Text: "h", Logprob: -0.5, Top: []Alternative{{ID: 5, Logprob: -0.5}}},
			{ID: 6, Text: "i"},
		},
		Stats: Stats{
			PromptTokens: 9,
			CachedTokens: 4,
			SharedTokens: 2,
			Tokens:       3,
			Reason:       StopEOS,
			Seed:         1<<53 - 1,
			TTFT:         1500 * time.Millisecond,
			Total:        2 * time.Second,
		},
	}
	got, err := json.Marshal(c)
	const want = `{"text":"hi","tokens":[5,6,2],` +
		`"logprobs":[{"id":5,"text":"h","logprob":-0.5,"top":[{"id":5,"logprob":-0.5}]},{"id":6,"text":"i"}],` +
		`"stats":{"prompt_tokens":9,"cached_tokens":4,"shared_tokens":2,"generated_tokens":3,` +
		`"stop_reason":"eos","seed":9007199254740991,` +
		`"ttft_s":1.5,"total_s":2,"tokens_per_s":4}}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want\n%s", got, err, want)
	}
	var back Completion
	if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, c) {
		t.Errorf("it reads back as %+v, %v", back, err)
	}
	if err := json.Unmarshal([]byte(`{"stats": {"ttft_s": "1"}}`), &back); err == nil {
		t.Error("a string was read as seconds")
	}
	if got, err := json.Marshal(EndToken{2, "<|im_end|>", []string{"config.json"}}); err != nil ||
		string(got) != `{"id":2,"text":"\u003c|im_end|\u003e","origins":["config.json"]}` {
		t.Errorf("%s, %v", got, err)
	}
}

// cancelsAt is a device that cancels a context in its n-th pass.
type cancelsAt struct {
	npu.Device
	n      int
	cancel context.CancelFunc
}

func (d *cancelsAt) Submit(ctx context.Context, runs []npu.Run) error {
	if d.n--; d.n == 0 {
		d.cancel()
	}
	return d.Device.Submit(ctx, runs)
}

// A cancelled answer has the tokens generated before.
func TestCompleteCancelled(t *testing.T) {
	dir := t.TempDir()
	if err := (ckptgen.Chain{Says: [][]string{{"a", "b", "a"}}}).Write(dir); err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	m, err := Open(t.Context(), &cancelsAt{dev, 6, cancel}, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	got, err := m.Complete(ctx, Text("a"), &GenerateOptions{Sampling: &Sampling{}})
	if !errors.Is(err, context.Canceled) || got.Stats.Reason != StopError ||
		got.Stats.Tokens != len(got.Tokens) ||
		got.Text != "babab" && got.Text != "bababa" {
		t.Errorf("%+v, %v, want 5 or 6 tokens and the context's error", got, err)
	}
}

// Complete returns the tokens that the iterator yields.
func TestComplete(t *testing.T) {
	m := openChain(t, ckptgen.Chain{Control: chatML, Says: [][]string{{"x", "h", "i", "<|im_end|>"}}})
	s := m.NewSession()
	t.Cleanup(func() { s.Close() })
	var stats Stats
	got, err := s.Complete(t.Context(), Text("x"),
		&GenerateOptions{Sampling: &Sampling{}, TopTokens: 1, Stats: &stats})
	if err != nil || got.Text != "hi" || len(got.Tokens) != 3 || len(got.Logprobs) != 3 ||
		got.Logprobs[1].Text != "i" ||
		got.Logprobs[1].Top[0].ID != got.Tokens[1] || stats != got.Stats || stats.Reason != StopEOS ||
		stats.Tokens != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = s.Complete(t.Context(), Text("x"), nil); err != nil || got.Text != "hi" ||
		got.Logprobs != nil {
		t.Errorf("without options: %+v, %v", got, err)
	}
	for range s.Generate(t.Context(), Text("x"), nil) {
		got, err := s.Complete(t.Context(), Text("x"), nil)
		if !errors.Is(err, ErrBusy) || got == nil || got.Stats.Reason != StopError || got.Tokens == nil {
			t.Errorf("a busy session: %+v, %v", got, err)
		}
		break
	}
}
