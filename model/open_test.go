package model

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
)

// cancelling is a device that cancels a context after a number of weights.
type cancelling struct {
	npu.Device
	weights int
	cancel  context.CancelFunc
}

func (d *cancelling) Const(ctx context.Context, src npu.Source) (npu.Buffer, error) {
	if d.weights--; d.weights == 0 {
		d.cancel()
	}
	return d.Device.Const(ctx, src)
}

// Open can be cancelled at any weight. It then returns the context's error and frees all memory, so
// the model can be opened afterwards.
func TestOpenCancelled(t *testing.T) {
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, weights := range []int{1, 2, 10} {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		m, err := Open(ctx, &cancelling{dev, weights, cancel}, tiny("qwen3-qknorm"), nil)
		if m != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled at weight %d: %v, %v, want context.Canceled", weights, m, err)
		}
	}
	m, err := Open(context.Background(), dev, tiny("qwen3-qknorm"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// Invalid options are refused before anything is opened, with the valid values.
func TestOpenRefuses(t *testing.T) {
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	negative := -1
	for want, open := range map[string]func() (*Model, error){
		"dev is nil, want a device": func() (*Model, error) {
			return Open(context.Background(), nil, "nowhere", nil)
		},
		"PrefixBytes is -1, want 0 (keep no": func() (*Model, error) {
			return Open(context.Background(), dev, "nowhere", &OpenOptions{PrefixBytes: &negative})
		},
	} {
		if m, err := open(); m != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A plan that failed its evaluation is opened only with FailedPlan.
func TestOpenFailedPlan(t *testing.T) {
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	p := open(t, tiny("smollm-mha"), "", nil).Plan()
	failed := *p
	failed.Status = plan.Failed
	if m, err := Open(context.Background(), dev, tiny("smollm-mha"), &OpenOptions{Plan: &failed}); m != nil ||
		!errors.Is(err, plan.ErrFailed) {
		t.Errorf("%v, %v, want ErrFailed", m, err)
	}
	m, err := Open(context.Background(), dev, tiny("smollm-mha"),
		&OpenOptions{Plan: &failed, FailedPlan: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// A checkpoint may declare a context that fits into no memory. It opens with the default limit, and
// with a longer one only if asked. A prompt beyond the limit is refused before anything is
// computed.
func TestMaxContext(t *testing.T) {
	dir := t.TempDir()
	c := ckptgen.Chain{Control: chatML, Says: saysHi("<|im_end|>", "."), Context: 484_000_000}
	if err := c.Write(dir); err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	p := open(t, dir, "", &plan.Options{SeqLen: 100}).Plan()
	for _, tc := range []struct {
		name string
		opts OpenOptions
		want int
	}{
		{"the default", OpenOptions{}, plan.DefaultMaxContext},
		{"less", OpenOptions{MaxContext: 1000}, 1000},
		{"more", OpenOptions{MaxContext: 1_000_000}, 1_000_000},
		{"more than a plan has", OpenOptions{MaxContext: 1 << 40}, 1 << 24},
		{"SeqLen", OpenOptions{PlanOptions: &plan.Options{SeqLen: 200_000}}, 200_000},
		{"both", OpenOptions{MaxContext: 10, PlanOptions: &plan.Options{SeqLen: 20}}, 10},
		{"a plan", OpenOptions{Plan: p}, 100},
		{"a plan and less", OpenOptions{Plan: p, MaxContext: 50}, 50},
		{"a plan and more", OpenOptions{Plan: p, MaxContext: 200}, 100},
	} {
		m, err := Open(context.Background(), dev, dir, &tc.opts)
		if err != nil {
			t.Fatal(err)
		}
		declared := m.Checkpoint().Config().Context
		if got := m.Context(); got != tc.want || declared != 484_000_000 {
			t.Errorf("%s: the context is %d of %d, want %d", tc.name, got, declared, tc.want)
		}
		var long *ContextError
		got, err := m.Complete(context.Background(), IDs(make([]int32, tc.want)), nil)
		if !errors.As(err, &long) || long.Prompt != tc.want || long.Context != tc.want ||
			len(got.Tokens) > 0 ||
			!strings.Contains(err.Error(),
				"OpenOptions.MaxContext, --ctx): the model declares 484000000 positions") {
			t.Errorf("%s: a prompt that fills the context: %v", tc.name, err)
		}
		if tc.want <= 100 {
			got, err = m.Complete(context.Background(), IDs(make([]int32, tc.want-2)),
				&GenerateOptions{IgnoreEOS: true})
			if err != nil || len(got.Tokens) != 2 || got.Stats.Reason != StopContext {
				t.Errorf("%s: %d tokens (%s, %v), want 2 up to the context's end", tc.name,
					len(got.Tokens), got.Stats.Reason, err)
			}
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	_, err = Open(context.Background(), dev, dir,
		&OpenOptions{PlanOptions: &plan.Options{SeqLen: 1<<24 + 1}})
	if err == nil || !strings.HasPrefix(err.Error(), "plan: ") ||
		!strings.Contains(err.Error(), "seq_len is 16777217") {
		t.Errorf("more than a plan has: %v", err)
	}
}

// A hostile file declares 484 million positions, and its template turns "hi" into a million tokens.
func TestHugePrompt(t *testing.T) {
	m := open(t, testenv.Shared(t, "reports/slow-context484M-template-1Mtokens.gguf"), "", nil)
	var long *ContextError
	started := time.Now()
	_, err := m.Complete(context.Background(), Messages(userMessage("hi"), nil),
		&GenerateOptions{MaxTokens: 1})
	if !errors.As(err, &long) || long.Prompt < 1_000_000 || long.Context != plan.DefaultMaxContext {
		t.Errorf("%v, want a ContextError of a million tokens", err)
	}
	t.Logf("refused after %v", time.Since(started))
}

// Options that conflict with a plan, and types that no plan supports, are refused with the names of
// their fields.
func TestOpenRefusesOptions(t *testing.T) {
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	p := open(t, tiny("smollm-mha"), "", nil).Plan()
	for want, opts := range map[string]*OpenOptions{
		"PlanOptions is set, want nil next to a Plan":           {Plan: p, PlanOptions: &plan.Options{SeqLen: 16}},
		"PlanOptions.Activations is F16, want BF16 or F32":      {PlanOptions: &plan.Options{Activations: dtype.F16}},
		"PlanOptions.Cache is I64, want BF16, F16 or F32":       {PlanOptions: &plan.Options{Cache: dtype.I64}},
		"PlanOptions.Activations is Type(77), want BF16 or F32": {PlanOptions: &plan.Options{Activations: 77}},
	} {
		m, err := Open(context.Background(), dev, tiny("smollm-mha"), opts)
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %q", err, want)
		}
	}
}

// Open releases the memory of tensors that the device has copied. The checkpoint still returns
// those tensors as stored, rearranged ones too. TestStories covers floats that the device uses in
// place.
func TestOpenKeepsTensors(t *testing.T) {
	path := testenv.DemoModel(t)
	m := open(t, path, "", nil)
	fresh, err := checkpoint.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer fresh.Close()
	rearranged := 0
	for _, listed := range fresh.Tensors() {
		want, err := fresh.Tensor(listed.Name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.Checkpoint().Tensor(listed.Name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got.Data, want.Data) {
			t.Errorf("%s differs from the file's", listed.Name)
		}
		if !got.Mapped {
			rearranged++
		}
	}
	if rearranged == 0 {
		t.Error("no tensor is rearranged, so this proves little")
	}
}
