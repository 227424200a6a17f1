package gate_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
)

// One small model of each supported family, in each number format of the CPU, passes the model
// gates against the outputs of Hugging Face's implementation in float64.
func TestTinyModelsAreWithinTheThresholdsOfTheirFormat(t *testing.T) {
	dev, err := cpu.Open(&cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, typ := range []dtype.Type{dtype.BF16, dtype.F32} {
		tinyModels(t, dev, typ)
	}
}

func tinyModels(t *testing.T, dev npu.Device, typ dtype.Type) {
	format := map[dtype.Type]string{dtype.BF16: "cpu-bf16", dtype.F32: "cpu-f32"}[typ]
	tol, ok := gate.FormatThresholds(format)
	if !ok {
		t.Fatalf("no thresholds for %s", format)
	}
	for _, name := range []string{"llama-tied-rope-scaled", "llama-untied-sharded", "qwen2-bias",
		"qwen3-qknorm", "smollm-mha"} {
		t.Run(format+"/"+name, func(t *testing.T) {
			dir := filepath.Join(testenv.Root(), "testdata", "tiny-models", name)
			file, err := golden.Read(filepath.Join(dir, "golden.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			want := file.Sequences[0]
			record, ok := want.Record()
			if !ok || want.Greedy == nil {
				t.Fatalf("%s: no logits or no greedy tokens", dir)
			}
			m, err := model.Open(context.Background(), dev, dir,
				&model.OpenOptions{PlanOptions: &plan.Options{Activations: typ, Cache: typ}})
			if err != nil {
				t.Fatal(err)
			}
			s := m.NewSession()
			defer func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if err := m.Close(); err != nil {
					t.Error(err)
				}
			}()
			r, err := gate.Teacher(context.Background(), s, record, record.IDs, tol)
			if err != nil {
				t.Fatal(err)
			}
			r.Name = name
			t.Logf("%v", r)
			if !r.OK() {
				t.Error(r.Err())
			}
			g, err := gate.GreedyTokens(context.Background(), s, record.IDs, want.Greedy, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%v", g)
			if !g.OK() {
				t.Error(g.Err())
			}
		})
	}
}
