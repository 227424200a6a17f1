package checkpoint

import (
	"bytes"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/npu/dtype"
)

// open opens a checkpoint that must open, and closes it when the test ends.
func equalConfig(a, b Config) bool { return reflect.DeepEqual(a, b) }

func open(tb testing.TB, path string) *Checkpoint {
	tb.Helper()
	c, err := Open(path, nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// The same trained model in both formats. An independent converter made the safetensors file from
// the original weights, so equal tensors prove the names, the shapes and the order of q and k rows.
func TestBothFormatsHoldTheSameModel(t *testing.T) {
	hf := open(t, testenv.Shared(t, "stories260k"))
	gguf := open(t, testenv.Shared(t, "stories260k/stories260K.gguf"))
	rearranged := 0
	for _, want := range hf.Tensors() {
		got, err := gguf.Tensor(want.Name)
		if err != nil {
			t.Error(err)
			continue
		}
		if got.Type != dtype.F32 || !slices.Equal(got.Shape, want.Shape) || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("%s differs", want.Name)
		}
		if !got.Mapped {
			rearranged++
			e := gguf.entries[want.Name]
			if bytes.Equal(e.stored.data, want.Data) {
				t.Errorf("%s is equal without being rearranged, so this test proves nothing", want.Name)
			}
		}
	}
	if rearranged != 2*5 {
		t.Errorf("%d tensors were rearranged, want q and k of 5 layers", rearranged)
	}
	a, b := *hf.Config(), *gguf.Config()
	// The GGUF file stores the embedding a second time as LM head, has another context length, and
	// another name.
	a.TieEmbeddings, a.Context, a.Name = b.TieEmbeddings, b.Context, b.Name
	if !equalConfig(a, b) {
		t.Errorf("configs differ:\n%+v\n%+v", a, b)
	}
	v := gguf.Text().Vocab
	if v == nil || v.Model != "llama" || len(v.Tokens) != 512 || v.BOS != 1 || v.EOS != 2 || !v.AddBOS {
		t.Errorf("vocabulary %+v", v)
	}
	if bos, eos := gguf.Text().BOS, gguf.Text().EOS; bos != "<s>" && eos != "</s>" {
		t.Errorf("special tokens %q %q", bos, eos)
	}
}

func TestTensorIsArrangedOnceForAll(t *testing.T) {
	c := open(t, testenv.Shared(t, "stories260k/stories260K.gguf"))
	var wg sync.WaitGroup
	got := make([]*byte, 8)
	for i := range got {
		wg.Go(func() {
			w, err := c.Tensor("model.layers.0.self_attn.q_proj.weight")
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = &w.Data[0]
		})
	}
	wg.Wait()
	for _, p := range got {
		if p != got[0] {
			t.Fatal("concurrent callers got different copies")
		}
	}
}
