package ckptgen_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu/dtype"
)

func small(family string) ckptgen.Spec {
	return ckptgen.Spec{Family: family, Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 32, FFN: 96, Vocab: 100}
}

func TestEveryFamilyAndTypeOpens(t *testing.T) {
	for _, family := range []string{"llama", "qwen2", "qwen3"} {
		for _, typ := range []dtype.Type{dtype.BF16, dtype.F16, dtype.F32} {
			for _, shards := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s %v in %d", family, typ, shards), func(t *testing.T) {
					s := small(family)
					s.Type, s.Shards, s.Tie = typ, shards, shards == 1
					dir := t.TempDir()
					if err := ckptgen.Write(dir, s, 1); err != nil {
						t.Fatal(err)
					}
					c, err := checkpoint.Open(dir, nil)
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					if got := c.Config(); got.Family != family || got.DType != typ || got.TieEmbeddings != s.Tie ||
						got.HeadDim != 32 {
						t.Errorf("config is %+v", got)
					}
				})
			}
		}
	}
}

// Oracle and device must keep their numbers in range on these weights, so their spread matters.
func TestWeightsAreNormal(t *testing.T) {
	s := small("llama")
	s.Type, s.Vocab = dtype.F32, 1000
	dir := t.TempDir()
	if err := ckptgen.Write(dir, s, 1); err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w, err := c.Tensor("model.embed_tokens.weight")
	if err != nil {
		t.Fatal(err)
	}
	var sum, squares float64
	for _, v := range dtype.Float32s(w.Data) {
		sum += float64(v)
		squares += float64(v) * float64(v)
	}
	n := float64(w.Elements())
	// 64000 samples: the mean's own deviation is std/253, the deviation's half of that, so the
	// bounds are at 5 sigma.
	if mean, std := sum/n, math.Sqrt(squares/n); math.Abs(mean) > 0.02*std || math.Abs(std*8-1) > 0.015 {
		t.Errorf("mean %v, standard deviation %v, want 0 and 1/8", mean, std)
	}
}

func TestSeedDecides(t *testing.T) {
	read := func(seed uint64) []byte {
		dir := t.TempDir()
		if err := ckptgen.Write(dir, small("qwen3"), seed); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if !bytes.Equal(read(1), read(1)) {
		t.Error("equal seeds gave different files")
	}
	if bytes.Equal(read(1), read(2)) {
		t.Error("different seeds gave equal files")
	}
}
