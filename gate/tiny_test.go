package gate_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/nlpodyssey/safetensors"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
)

// One small model of each supported family, in each number format of the CPU, passes the model gates against what Hugging Face's
// implementation computed in float64.
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
	for _, name := range []string{"llama-tied-rope-scaled", "llama-untied-sharded", "qwen2-bias", "qwen3-qknorm", "smollm-mha"} {
		t.Run(format+"/"+name, func(t *testing.T) {
			dir := filepath.Join(testenv.Root(), "testdata", "tiny-models", name)
			record, greedy := readGolden(t, dir)
			m, err := model.Open(context.Background(), dev, dir, &model.OpenOptions{PlanOptions: &model.PlanOptions{Activations: typ, Cache: typ}})
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
			g, err := gate.GreedyTokens(context.Background(), s, record.IDs, greedy, 0)
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

func readGolden(t *testing.T, dir string) (record gate.Recorded, greedy []int32) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	file, err := safetensors.Deserialize(data)
	if err != nil {
		t.Fatal(err)
	}
	ids := func(name string) (list []int32) {
		v, ok := file.Tensor(name)
		if !ok {
			t.Fatalf("%s: no %s", dir, name)
		}
		for _, id := range dtype.Int64s(v.Data()) {
			list = append(list, int32(id))
		}
		return list
	}
	logits, ok := file.Tensor("logits")
	if !ok {
		t.Fatalf("%s: no logits", dir)
	}
	return gate.Recorded{IDs: ids("input_ids"), Logits: dtype.Float32s(logits.Data())}, ids("greedy")
}
