package gates

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/oracle"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
	"github.com/npukit/npukit/skill/internal/skilltest"
)

// newBench returns a bench of a checkpoint on a device, with the plan that deployments begin with.
func newBench(t *testing.T, path string, dev npu.Device, seqLen, positions int) *Bench {
	t.Helper()
	ck, err := checkpoint.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	ref, err := oracle.Open(ck)
	if err != nil {
		t.Fatal(err)
	}
	var file *golden.File // of a folder; a GGUF file has none here
	if name := filepath.Join(path, "golden.safetensors"); exists(name) {
		if file, err = golden.Read(name); err != nil {
			t.Fatal(err)
		}
	}
	m := models.New(ck, dev, t.Logf)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Bench{Reference: NewReference(ref, file, positions), Models: m, Recipe: journal.Naive(dev.Info(), seqLen)}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A session chooses the cheapest pass for the next token, which can be to prefill all tokens again.
// The recording of the block decodes its steps all the same, so that the decode pass is tested.
func TestStepsOfTheBlockAreDecoded(t *testing.T) {
	e := newBench(t, skilltest.ArrayModel(t), skilltest.OpenSim(t, sim.Options{}), 96, 48)
	p := skilltest.Must(e.Plan())
	p.Decode.Cost = 1 // s, and a thousand times as much as a prompt
	for i := range p.Prefill {
		p.Prefill[i].Cost = 1e-3
	}
	again := 0
	err := e.Tapped(context.Background(), func(name string, shape []int, _ []float32) error {
		if name == blockOutput && shape[0] > 1 {
			again++
		}
		return nil
	}, func(s *model.Session) error {
		for id := range int32(4) {
			if _, err := s.Step(context.Background(), id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || again < 2 {
		t.Fatalf("%d steps were prefilled, %v: this plan shows nothing", again, err)
	}
	rec, ids, err := e.Record(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := len(rec.output), len(ids)*e.Models.Config.Hidden; got != want {
		t.Errorf("the block's output has %d elements, want %d", got, want)
	}
	i := slices.IndexFunc(rec.Trace.Taps, func(tap gate.Tap) bool { return tap.Name == blockOutput })
	if i < 0 || rec.Trace.Taps[i].Own == nil || rec.Trace.Taps[i].Own.Steps != len(ids)-blockSteps {
		t.Errorf("steps are not decoded: %+v", rec.Trace.Taps[max(i, 0)].Own)
	}
}
