package plan

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/npukit/npukit/internal/testenv"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu/cpu"
)

// FuzzPlan parses hostile plans. Each is refused, or survives a round trip through JSON and can be
// checked against a model and a device. Nothing panics.
func FuzzPlan(f *testing.F) {
	ck, err := checkpoint.Open(filepath.Join(testenv.Root(), "testdata", "tiny-models", "smollm-mha"), nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { ck.Close() })
	dev, err := cpu.Open(&cpu.Options{Threads: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { dev.Close() })
	info := dev.Info()
	p, err := New(ck, info, &Options{SeqLen: 16, Chunk: 8})
	if err != nil {
		f.Fatal(err)
	}
	whole, err := json.Marshal(p)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	p.Prefill[0].Steps, p.Decode.Steps = p.Prefill[0].Steps[:2], p.Decode.Steps[:2]
	short, err := json.Marshal(p)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(short)
	f.Add([]byte("{}"))
	f.Add([]byte(`{"version": 2, "seq_len": 16, "chunk": 8, "activations": "BF16", "cache": "F16", ` +
		`"prefill": [{}], "programs": [null]}`))
	config := ck.Config()
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parse(data)
		if err != nil {
			return
		}
		first, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("a plan that was read cannot be written: %v", err)
		}
		q, err := parse(first)
		if err != nil {
			t.Fatalf("a plan that was written cannot be read: %v", err)
		}
		second, err := json.Marshal(q)
		if err != nil || !bytes.Equal(first, second) {
			t.Fatalf("written again it is another plan: %v\n%s\n%s", err, first, second)
		}
		if err := p.Check(config, info); err == nil && p.Model.Vocab != config.Vocab {
			t.Errorf("a plan for a vocabulary of %d is taken for one of %d", p.Model.Vocab, config.Vocab)
		}
	})
}
