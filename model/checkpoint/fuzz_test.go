package checkpoint

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/npu/dtype"
)

// For both formats, any bytes return an error, or a checkpoint whose tensors are inside the file
// and readable. Seeds are valid files; testdata/fuzz has interesting inputs.

func FuzzSafetensors(f *testing.F) {
	dir := f.TempDir()
	s := tiny("llama")
	s.Layers, s.Vocab, s.Hidden, s.FFN, s.Type = 1, 4, 4, 4, dtype.BF16
	if err := ckptgen.Write(dir, s, 1); err != nil {
		f.Fatal(err)
	}
	config, err := readConfig(filepath.Join(dir, "config.json"), new(warnings))
	if err != nil {
		f.Fatal(err)
	}
	seed, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, b []byte) {
		found, err := readSafetensors("model.safetensors", b)
		if err != nil {
			return
		}
		total := 0
		for _, s := range found {
			total += len(s.data)
			if s.typ.Valid() && s.typ.Bytes(Tensor{Shape: s.shape}.Elements()) != len(s.data) {
				t.Errorf("%s: %v of %v in %d bytes", s.name, s.shape, s.typ, len(s.data))
			}
		}
		if total > len(b) {
			t.Errorf("%d bytes of tensors in a file of %d", total, len(b))
		}
		used, err := match(config, found, "model.safetensors", "config.json")
		if err != nil {
			return
		}
		c := &Checkpoint{config: config, entries: map[string]*entry{}}
		loader{c}.adopt(used, func(string) int { return 0 })
		touch(t, c)
	})
}

func FuzzGGUF(f *testing.F) {
	for _, typ := range []dtype.Type{dtype.F32, dtype.Q4_0} {
		n := 4 // mutations should hit the head, so the data are few
		if typ.Quantized() {
			n = 32
		}
		s := ckptgen.Spec{Family: "llama", Layers: 1, Hidden: n, Heads: 1, KVHeads: 1, HeadDim: n, FFN: n, Vocab: 4,
			Type: dtype.F32, Tie: true}
		m, _ := newGGUFModel(f, s, typ)
		m = m.set("tokenizer.ggml.model", "gpt2").set("tokenizer.ggml.tokens",
			[]string{"a", "b", "c"}).set("tokenizer.ggml.merges", []string{"a b"}).
			set("tokenizer.ggml.token_type", []int32{1, 1, 1}).set("tokenizer.ggml.bos_token_id",
			uint32(1)).set("tokenizer.chat_template", "{{ x }}")
		m = m.add(ckptgen.Tensor{Name: "rope_freqs.weight", Type: dtype.F32, Shape: []int{n / 2},
			Data: dtype.AsBytes(slices.Repeat([]float32{1}, n/2))})
		b, err := os.ReadFile(m.write(f))
		if err != nil {
			f.Fatal(err)
		}
		open(f, m.write(f))
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := &Checkpoint{path: "fuzz.gguf", entries: map[string]*entry{}}
		if err := (loader{c}).openGGUF(b); err != nil {
			return
		}
		touch(t, c)
	})
}

// touch reads every tensor of a checkpoint and closes it.
func touch(t *testing.T, c *Checkpoint) {
	for _, want := range c.Tensors() {
		w, err := c.Tensor(want.Name)
		if err != nil {
			t.Fatal(err)
		}
		if err := dtype.Dequantize(make([]float32, w.Elements()), w.Type, w.Data); err != nil {
			t.Errorf("%s: %v", w.Name, err)
		}
	}
	c.Text()
	if _, err := c.NonFinite(t.Context()); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
