package gate_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
)

// A real model in BF16 on the CPU, against the same weights with FP32 activations and cache, is within the thresholds of its format. With -v the
// test prints the reports, from which the thresholds of cpu-bf16 were set.
func TestSmolLM2IsWithinTheThresholdsOfItsFormat(t *testing.T) {
	path := testenv.DemoModel(t)
	data, err := os.ReadFile(filepath.Join(testenv.Root(), "testdata", "smollm2-135m", "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Text struct {
			IDs []int32 `json:"input_ids"`
		}
		Prompts []struct {
			IDs []int32 `json:"input_ids"`
		}
	}
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatal(err)
	}
	ids := golden.Text.IDs
	if testing.Short() {
		ids = ids[:256]
	}
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	session := func(typ dtype.Type) *model.Session {
		m, err := model.Open(context.Background(), dev, path, &model.OpenOptions{PlanOptions: &model.PlanOptions{Activations: typ, Cache: typ}})
		if err != nil {
			t.Fatal(err)
		}
		s := m.NewSession()
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	bf, f32 := session(dtype.BF16), session(dtype.F32)
	tol, ok := gate.FormatThresholds("cpu-bf16")
	if !ok {
		t.Fatal("no thresholds for cpu-bf16")
	}
	r, err := gate.Teacher(context.Background(), bf, f32, ids, tol)
	if err != nil {
		t.Fatal(err)
	}
	r.Name = "SmolLM2-135M-Instruct Q4_1, cpu BF16 against cpu FP32"
	t.Logf("%v  all positions agree in %.2f %%, mean relative L1 of logits %.3g", r, 100*float64(r.AgreedAll)/float64(r.Positions), r.MeanRelL1)
	if !r.OK() {
		t.Error(r.Err())
	}
	// Without a Stepper the cost of generation is quadratic: a few tokens are enough here.
	g, err := gate.Greedy(context.Background(), bf, f32, ids[:40], 4, 0)
	if err != nil || !g.OK() {
		t.Errorf("%v, %v", g, err)
	}
	d, err := gate.Determinism(context.Background(), bf, ids[:70], ids[100:133])
	if err != nil || !d.OK() {
		t.Errorf("%v, %v", d, err)
	}
}
