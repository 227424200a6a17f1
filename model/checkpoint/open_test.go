package checkpoint

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"unsafe"

	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/npu/dtype"
)

// sparse writes a checkpoint of Llama-3.2-1B's shape whose 2.5 GB of weights are a hole in the
// file: it takes no disk space and reads as zeros.
func sparse(tb testing.TB) (dir string) {
	tb.Helper()
	dir = tb.TempDir()
	spec := ckptgen.Llama1B()
	small := spec
	small.Vocab, small.Hidden, small.FFN, small.Heads, small.KVHeads, small.HeadDim = 4, 4, 4, 1, 1, 2
	if err := ckptgen.Write(dir, small, 1); err != nil {
		tb.Fatal(err)
	}
	config(fields{"vocab_size": spec.Vocab, "hidden_size": spec.Hidden, "intermediate_size": spec.FFN,
		"num_attention_heads": spec.Heads,
		"num_key_value_heads": spec.KVHeads, "head_dim": spec.HeadDim})(tb, dir)
	all, size := spec.Tensors(1), int64(0)
	for i := range all {
		all[i].Fill = func(io.Writer, int) error { return nil }
		size += int64(Tensor{Type: dtype.BF16, Shape: all[i].Shape}.Bytes())
	}
	file := filepath.Join(dir, "model.safetensors")
	if err := ckptgen.WriteSafetensors(file, all); err != nil {
		tb.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.Truncate(file, info.Size()+size); err != nil {
		tb.Skipf("no sparse files here: %v", err)
	}
	return dir
}

// resident returns the resident memory of this process in bytes.
func resident(tb testing.TB) int {
	tb.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		tb.Skipf("needs Linux: %v", err)
	}
	pages, err := strconv.Atoi(string(bytes.Fields(b)[1]))
	if err != nil {
		tb.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// Opening neither reads nor copies weights: 2.5 GB take a few megabytes.
func TestOpenTouchesNoWeights(t *testing.T) {
	dir := sparse(t)
	runtime.GC()
	before := resident(t)
	c := open(t, dir)
	for _, want := range c.Tensors() {
		if w := must(c.Tensor(want.Name)); !w.Mapped || len(w.Data) != w.Bytes() {
			t.Errorf("%s is not mapped whole", w.Name)
		}
	}
	if c.Size() != 2471628800 || c.Parameters() != 1235814400 {
		t.Errorf("%d bytes, %d parameters", c.Size(), c.Parameters())
	}
	if grown := resident(t) - before; grown > 64<<20 {
		t.Errorf("opening took %d MB of memory", grown>>20)
	}
}

// Release frees the memory of a tensor, not of its neighbors, and the tensor reads as before.
func TestRelease(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems take pages back by themselves")
	}
	c := open(t, sparse(t))
	up, down := must(c.Tensor("model.layers.3.mlp.up_proj.weight")),
		must(c.Tensor("model.layers.3.mlp.down_proj.weight"))
	read := func(w Tensor) (sum int) {
		for i := 0; i < len(w.Data); i += 512 {
			sum += int(w.Data[i])
		}
		return sum
	}
	if read(up)+read(down) != 0 {
		t.Error("the weights of a hole are not zeros")
	}
	before := resident(t)
	c.Release(up.Name)
	if freed := before - resident(t); freed < up.Bytes()*9/10 || freed > up.Bytes()*11/10 {
		t.Errorf("%d bytes are free, the tensor has %d", freed, up.Bytes())
	}
	if read(up) != 0 {
		t.Error("the weights of a hole are not zeros")
	}
	c.Release("a tensor of another model")
	release(up.Data[1:100]) // less than a page
}

// Release frees a rearranged tensor too. Tensor then restores it at the same address.
func TestReleaseOfRearrangedTensor(t *testing.T) {
	const name = "model.layers.0.self_attn.q_proj.weight"
	s := ckptgen.Spec{Family: "llama", Layers: 1, Hidden: 1024, Heads: 16, KVHeads: 4, HeadDim: 64, FFN: 256,
		Vocab: 32, Type: dtype.F32}
	m, _ := newGGUFModel(t, s, dtype.Q8_0)
	c := open(t, m.write(t))
	w := must(c.Tensor(name))
	if w.Mapped {
		t.Fatal("it lies as it is in the file, so this test proves nothing")
	}
	want := bytes.Clone(w.Data)
	before := resident(t)
	c.Release(name)
	if freed := before - resident(t); runtime.GOOS == "linux" && freed < w.Bytes()*8/10 {
		t.Errorf("%d bytes are free, the tensor has %d", freed, w.Bytes())
	}
	again := must(c.Tensor(name))
	if unsafe.SliceData(again.Data) != unsafe.SliceData(w.Data) {
		t.Error("it is at another address")
	}
	if !bytes.Equal(again.Data, want) {
		t.Error("its elements are others")
	}
}

func BenchmarkOpenLlama1B(b *testing.B) {
	dir := sparse(b)
	for b.Loop() {
		c, err := Open(dir, nil)
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// A real GGUF file, written by llama.cpp. The model's page documents its contents.
func TestDemoModel(t *testing.T) {
	c := open(t, testenv.DemoModel(t))
	want := Config{
		Family: "llama", Name: c.Config().Name, Layers: 30, Hidden: 576, Heads: 9, KVHeads: 3, HeadDim: 64, FFN: 1536,
		Vocab: 49152, Context: 8192,
		NormEps: 1e-5, RoPE: RoPE{Theta: 100000}, TieEmbeddings: true, DType: dtype.Q4_1, BOS: []int{1}, EOS: []int{2},
	}
	if got := *c.Config(); !equalConfig(got, want) {
		t.Errorf("%+v, want\n%+v", got, want)
	}
	v := c.Text().Vocab
	if v == nil || v.Model != "gpt2" ||
		v.Pre != "smollm" || len(v.Tokens) != 49152 || len(v.Merges) != 48900 || v.AddBOS {
		t.Errorf("vocabulary %+v", v)
	}
	if bos, eos := c.Text().BOS, c.Text().EOS; bos != "<|im_start|>" || eos != "<|im_end|>" {
		t.Errorf("special tokens %q, %q", bos, eos)
	}
	if c.Parameters() != 134515008 {
		t.Errorf("%d parameters", c.Parameters())
	}
	if n := len(must(c.Tensor("model.layers.29.self_attn.q_proj.weight")).Data); n != 576*576/32*20 {
		t.Errorf("q_proj has %d bytes", n)
	}
}
