package gate_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/oracle"
)

// A real model of 30 layers passes the model gates against the oracle on a text in each number
// format of the CPU. With -v the test prints its reports, the source of FormatThresholds' numbers.
func TestSmolLM2IsWithinTheThresholdsOfItsFormat(t *testing.T) {
	path := testenv.DemoModel(t)
	ctx := context.Background()
	file, err := golden.Read(filepath.Join(testenv.Root(), "testdata", "smollm2-135m", "golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	ids := file.Sequences[len(file.Sequences)-1].IDs // the text
	if os.Getenv("NPUKIT_LONG") == "" {
		ids = ids[:256]
	}
	ck, err := checkpoint.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, ck.Close) })
	ref, err := oracle.Open(ck)
	if err != nil {
		t.Fatal(err)
	}
	// The oracle is slow, so its logits serve both formats.
	record := gate.Recorded{IDs: ids}
	if err := ref.NewState().Score(ctx, ids, func(_ int, logits []float32) error {
		record.Logits = append(record.Logits, logits...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, dev.Close) })
	for format, typ := range map[string]dtype.Type{"cpu-bf16": dtype.BF16, "cpu-f32": dtype.F32} {
		t.Run(format, func(t *testing.T) {
			tol, ok := gate.FormatThresholds(format)
			if !ok {
				t.Fatalf("no thresholds for %s", format)
			}
			m, err := model.Open(ctx, dev, path,
				&model.OpenOptions{PlanOptions: &plan.Options{Activations: typ, Cache: typ}})
			if err != nil {
				t.Fatal(err)
			}
			defer closing(t, m.Close)
			s := m.NewSession()
			defer closing(t, s.Close)
			r, err := gate.Teacher(ctx, s, record, ids, tol)
			if err != nil {
				t.Fatal(err)
			}
			r.Name = "SmolLM2-135M-Instruct Q4_1, " + format + " against the oracle"
			t.Logf("%v  all positions agree in %.2f %%, mean relative L1 of logits %.3g", r,
				100*float64(r.AgreedAll)/float64(r.Judged), r.MeanRelL1)
			if !r.OK() {
				t.Error(r.Err())
			}
			g, err := gate.Greedy(ctx, s, ref.NewState(), ids[:40], 16, 0)
			if err != nil || !g.OK() || !g.Stepped {
				t.Errorf("%v, %v", g, err)
			}
			d, err := gate.Determinism(ctx, s, ids[:70], ids[100:133])
			if err != nil || !d.OK() {
				t.Errorf("%v, %v", d, err)
			}
		})
	}
}

// closing reports errors of Close.
func closing(t *testing.T, end func() error) {
	t.Helper()
	if err := end(); err != nil {
		t.Error(err)
	}
}

// Sessions and oracle states are scorers and steppers.
var (
	_ gate.Stepper = (*model.Session)(nil)
	_ gate.Stepper = (*oracle.State)(nil)
)
