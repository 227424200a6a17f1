package model

import (
	"context"
	"testing"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/npu/sim"
)

// A prompt has the same logits whatever was in the buffers before it. On the array neighbouring rows of V share an exponent, so that this holds only if the padding of a
// pass is always the same.
func TestPaddingDoesNotDependOnThePromptBefore(t *testing.T) {
	dir := t.TempDir()
	spec := ckptgen.Spec{Family: "llama", Layers: 2, Hidden: 256, Heads: 4, KVHeads: 2, HeadDim: 64, FFN: 512, Vocab: 600, Context: 512, Tie: true}
	if err := ckptgen.Write(dir, spec, 1); err != nil {
		t.Fatal(err)
	}
	dev, err := sim.Open(&sim.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	m, err := Open(context.Background(), dev, dir, &OpenOptions{PlanOptions: &PlanOptions{Chunk: 64}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	s := m.NewSession()
	defer s.Close()
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
