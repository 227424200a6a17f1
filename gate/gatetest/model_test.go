package gatetest_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/oracle"
)

// The oracle is the reference for prefill and decode.
var (
	_ gate.Scorer  = (*oracle.State)(nil)
	_ gate.Stepper = (*oracle.State)(nil)
)

// tiny is the model of testdata/tiny-models with everything in it that adversaries get wrong:
// biases, seven query heads to a key-value head, three layers.
func tiny(t testing.TB, typ dtype.Type) gatetest.Model {
	t.Helper()
	dir := filepath.Join(testenv.Root(), "testdata", "tiny-models", "qwen2-bias")
	file, err := golden.Read(filepath.Join(dir, "golden.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	ck, err := checkpoint.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ck.Close(); err != nil {
			t.Error(err)
		}
	})
	ref, err := oracle.Open(ck)
	if err != nil {
		t.Fatal(err)
	}
	format := map[dtype.Type]string{dtype.BF16: "cpu-bf16", dtype.F32: "cpu-f32"}[typ]
	thresholds, ok := gate.FormatThresholds(format)
	if !ok {
		t.Fatalf("no thresholds for %s", format)
	}
	return gatetest.Model{
		Open: func(ctx context.Context, dev npu.Device) (gate.Scorer, func() error, error) {
			m, err := model.Open(ctx, dev, dir,
				&model.OpenOptions{PlanOptions: &plan.Options{Activations: typ, Cache: typ}})
			if err != nil {
				return nil, nil, err
			}
			s := m.NewSession()
			return s, func() error { return errors.Join(s.Close(), m.Close()) }, nil
		},
		Reference: ref.NewState(), IDs: file.Sequences[0].IDs, Thresholds: thresholds,
	}
}

// The model gates catch every adversary meant for them, in each number format of the software
// device, and pass the device itself.
func TestEveryAdversaryIsCaughtByTheModelGates(t *testing.T) {
	dev := open(t, "go")
	types := []dtype.Type{dtype.BF16, dtype.F32}
	if raced {
		t.Log("under the race detector: BF16 only")
		types = types[:1]
	}
	for _, typ := range types {
		t.Run(typ.String(), func(t *testing.T) {
			list, err := gatetest.CatchByModel(t.Context(), dev, tiny(t, typ))
			if err != nil {
				t.Error(err)
			}
			for _, c := range list {
				t.Logf("%s under %s: %v", c.Adversary.Name, c.Gate, c.Metrics())
			}
		})
	}
}
