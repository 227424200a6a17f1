package gate_test

import (
	"context"
	"fmt"
	"log"
	"path/filepath"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/oracle"
)

// Which op is wrong? A device shows every output while it reads a few ids, and the oracle follows
// it op by op. Here one output is spoiled on its way into the recording, in place of a bug.
func ExampleDiagnose() {
	ctx := context.Background()
	dev, err := cpu.Open(&cpu.Options{Threads: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	rec, _ := gate.NewRecording("cpu-bf16")
	tap := func(name string, shape []int, values []float32) error {
		if name == "layer.1.attn.q_rope" {
			for i := range values {
				values[i] = -values[i]
			}
		}
		return rec.Tap(name, shape, values)
	}
	m, err := model.Open(ctx, dev, filepath.Join(testenv.Root(), "testdata", "tiny-models",
		"smollm-mha"), &model.OpenOptions{Tap: tap})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	s := m.NewSession()
	defer s.Close()
	ids := []int32{3, 1, 4, 1, 5, 9, 2, 6}
	if err := s.Score(ctx, ids, func(int, []float32) error { return nil }); err != nil {
		log.Fatal(err)
	}
	ref, err := oracle.Open(m.Checkpoint())
	if err != nil {
		log.Fatal(err)
	}
	trace, err := rec.Trace(func(tap gate.TapFunc) error {
		return ref.Forward(ctx, ref.NewState(), ids, &oracle.ForwardOptions{Tap: tap}, nil)
	})
	if err != nil {
		log.Fatal(err)
	}
	first := gate.Diagnose(trace).Findings[0]
	fmt.Println(first.Tap)
	for _, where := range first.Where {
		fmt.Println(where)
	}
	// Output:
	// layer.1.attn.q_rope
	// layers: 1 alone of 2
	// positions: all
	// scale: everything is -1 times what it should be
}
