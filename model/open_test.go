package model

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
)

// cancelling is a device on which a context ends after so many weights.
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

// Opening can be cancelled anywhere: it gives the context's error and frees what it had, so that the model opens afterwards.
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

// What nobody can have meant is refused before anything is opened, with what would be right.
func TestOpenRefuses(t *testing.T) {
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	negative := -1
	for want, open := range map[string]func() (*Model, error){
		"Open needs a device": func() (*Model, error) { return Open(context.Background(), nil, "nowhere", nil) },
		"PrefixBytes is -1; 0 keeps no": func() (*Model, error) {
			return Open(context.Background(), dev, "nowhere", &OpenOptions{PrefixBytes: &negative})
		},
	} {
		if m, err := open(); m != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A plan that has failed its evaluation is opened only by who says that he knows.
func TestOpenFailedPlan(t *testing.T) {
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	plan := open(t, tiny("smollm-mha"), "", nil).Plan()
	failed := *plan
	failed.Status = PlanFailed
	if m, err := Open(context.Background(), dev, tiny("smollm-mha"), &OpenOptions{Plan: &failed}); m != nil || !errors.Is(err, ErrPlanFailed) {
		t.Errorf("%v, %v, want ErrPlanFailed", m, err)
	}
	m, err := Open(context.Background(), dev, tiny("smollm-mha"), &OpenOptions{Plan: &failed, FailedPlan: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// A checkpoint may name a context beyond what any plan has: it opens with as much as there is. Who asks for more is told.
func TestOpenHugeContext(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(tiny("smollm-mha"))); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.json")
	data, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	data = regexp.MustCompile(`"max_position_embeddings": *\d+`).ReplaceAll(data, []byte(`"max_position_embeddings": 33554432`))
	if err := os.WriteFile(config, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if m := open(t, dir, "", nil); m.Context() != maxPositions || m.Checkpoint().Config().Context != 33554432 {
		t.Errorf("the context is %d, that of the checkpoint %d", m.Context(), m.Checkpoint().Config().Context)
	}
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	_, err = Open(context.Background(), dev, dir, &OpenOptions{PlanOptions: &PlanOptions{SeqLen: maxPositions + 1}})
	if err == nil || !strings.HasPrefix(err.Error(), "model: planning ") || !strings.Contains(err.Error(), "seq_len is 16777217") {
		t.Errorf("more than a plan has: %v", err)
	}
}

// Choices that a plan has made already, and types that no plan has, are refused by the names of their fields.
func TestOpenRefusesOptions(t *testing.T) {
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	plan := open(t, tiny("smollm-mha"), "", nil).Plan()
	for want, opts := range map[string]*OpenOptions{
		"has a Plan and PlanOptions":                            {Plan: plan, PlanOptions: &PlanOptions{SeqLen: 16}},
		"PlanOptions.Activations is F16, want BF16 or F32":      {PlanOptions: &PlanOptions{Activations: dtype.F16}},
		"PlanOptions.Cache is I64, want BF16, F16 or F32":       {PlanOptions: &PlanOptions{Cache: dtype.I64}},
		"PlanOptions.Activations is Type(77), want BF16 or F32": {PlanOptions: &PlanOptions{Activations: 77}},
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
