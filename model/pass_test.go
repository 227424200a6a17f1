package model

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/sim"
)

// The logits of a prompt do not depend on earlier contents of the buffers. On the array neighboring
// rows of V share an exponent, so this requires that the padding of a pass is always the same.
func TestPaddingDoesNotDependOnThePromptBefore(t *testing.T) {
	s := virtualSession(t)
	var a, b []int32
	for i := range int32(35) {
		a, b = append(a, 7+11*i), append(b, 500-13*i)
	}
	r, err := gate.Determinism(context.Background(), s, a, b[:20])
	if err != nil {
		t.Fatal(err)
	}
	if !r.OK() {
		t.Error(r)
	}
}

// The same holds after a pass that was cancelled between the host's writes and the device's first
// program.
func TestPaddingAfterACancelledPass(t *testing.T) {
	var long, short []int32
	for i := range int32(60) {
		long = append(long, 7+9*i)
	}
	for i := range int32(20) {
		short = append(short, 3+17*i)
	}
	score := func(ctx context.Context, s *Session, ids []int32) (all []float32, err error) {
		err = s.Score(ctx, ids, func(_ int, logits []float32) error {
			all = append(all, logits...)
			return nil
		})
		return all, err
	}
	want, err := score(context.Background(), virtualSession(t), short)
	if err != nil {
		t.Fatal(err)
	}
	s := virtualSession(t)
	if _, err := score(context.Background(), s, long); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	steps := 0
	ctx = npu.WithTracer(ctx, func(span npu.Span) {
		if span.Category == "host" {
			if steps++; steps == 2 { // inputs are prepared, the embedding is done
				cancel()
			}
		}
	})
	if _, err := score(ctx, s, short[:10]); !errors.Is(err, context.Canceled) {
		t.Fatalf("the pass was not cancelled: %v", err)
	}
	got, err := score(context.Background(), s, short)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Error("a cancelled pass leaves an older prompt's rows on the device")
	}
}

// virtualSession returns a session of a small random model on the virtual NPU, with prefill
// programs of 64 rows.
func virtualSession(t *testing.T) *Session {
	t.Helper()
	dev, err := sim.Open(&sim.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(context.Background(), dev, virtualModel(t),
		&OpenOptions{PlanOptions: &plan.Options{Chunk: 64}})
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewSession()
	t.Cleanup(func() {
		s.Close()
		m.Close()
		dev.Close()
	})
	return s
}

// virtualModel writes a small random model that NPU programs can run.
func virtualModel(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	spec := ckptgen.Spec{
		Family:  "llama",
		Layers:  2,
		Hidden:  256,
		Heads:   4,
		KVHeads: 2,
		HeadDim: 64,
		FFN:     512,
		Vocab:   600,
		Context: 512,
		Tie:     true,
	}
	if err := ckptgen.Write(dir, spec, 1); err != nil {
		t.Fatal(err)
	}
	return dir
}
