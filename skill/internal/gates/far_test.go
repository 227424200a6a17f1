package gates

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/gate/gatetest"
	"github.com/npukit/npukit/internal/ckptgen"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/sim"
	"github.com/npukit/npukit/oracle"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/skilltest"
)

// forgetful is a device that takes every row from a position on for the first of a session, also
// when it writes the cache.
type forgetful struct {
	npu.Device
	from int
}

func (d forgetful) Submit(ctx context.Context, runs []npu.Run) error {
	runs = slices.Clone(runs)
	for i := range runs {
		runs[i].Segments = slices.Clone(runs[i].Segments)
		for j := range runs[i].Segments {
			if runs[i].Segments[j].Pos >= d.from {
				runs[i].Segments[j].Pos = 0
			}
		}
	}
	return d.Device.Submit(ctx, runs)
}

// far returns a bench with a session of 512 positions, and the verdict of its gate of far
// positions.
func far(t *testing.T, path string, dev npu.Device) (*Bench, Verdict) {
	t.Helper()
	e := newBench(t, path, dev, 512, 256)
	v, err := checkBlockFar(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	return e, v
}

// A device that is right in the positions that are scored, and forgets its past after them, passes
// the gates of the model. The gate of far positions fails, and so do the kernels alone.
func TestFarPositions(t *testing.T) {
	t.Parallel()
	ctx, path, dev := context.Background(), skilltest.Tiny("llama-untied-sharded"), skilltest.OpenCPU(t)
	if _, v := far(t, path, dev); !v.OK() {
		t.Errorf("the device itself: %v", v)
	}
	for name, wrong := range map[string]npu.Device{"all of it": forgetful{dev, 300},
		"its attention": gatetest.Forgetful(300).Wrap(dev, nil)} {
		e, v := far(t, path, wrong)
		if v.OK() {
			t.Errorf("%s forgets: %v", name, v)
		}
		for _, g := range []Gate{{Name: journal.GateLogits, Run: checkLogits},
			{Name: journal.GateBlock, Run: checkBlock}} {
			if v, err := g.Check(ctx, e); err != nil || !v.OK() {
				t.Errorf("%s forgets, and gate %s sees it: then the wrong device is too wrong for this test: %v, %v",
					name, g.Name, err, v)
			}
		}
		refused := false
		for _, g := range skilltest.Must(OfKernels(e)) {
			if strings.Contains(g.Name, "Attention") {
				v, err := g.Check(ctx, e)
				refused = refused || err == nil && !v.OK()
			}
		}
		if !refused {
			t.Errorf("%s forgets: its attention passes alone", name)
		}
	}
	if !testing.Short() {
		array, wrong := skilltest.ArrayModel(t), gatetest.Forgetful(300).Wrap(skilltest.OpenSim(t, sim.Options{}), nil)
		if _, v := far(t, array, wrong); v.OK() {
			t.Errorf("on the array: %v", v)
		}
	}
}

// A plan without the layers after the first is valid, with any merges.
func TestFirstLayer(t *testing.T) {
	for name, e := range map[string]*Bench{
		"cpu":   newBench(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), 40, 32),
		"array": newBench(t, skilltest.ArrayModel(t), skilltest.OpenSim(t, sim.Options{}), 96, 48),
	} {
		p := skilltest.Must(e.Plan())
		q := firstLayer(p)
		if err := q.Check(e.Models.Config, e.Models.Info); err != nil || len(q.Decode.Steps) >= len(p.Decode.Steps) {
			t.Errorf("%s: %d of %d steps are left, %v", name, len(q.Decode.Steps), len(p.Decode.Steps), err)
		}
	}
}

// The gates score the text through the model's tokenizer if it has one, and the golden file's ids
// otherwise. The report names the source.
func TestMaterialSaysWhatItIs(t *testing.T) {
	e := newBench(t, skilltest.Tiny("smollm-mha"), skilltest.OpenCPU(t), 40, 32)
	v, err := checkLogits(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	if line, _, _ := Describe(v); e.Golden == nil || !strings.HasSuffix(line, "over 32 positions, ids: "+
		e.text.Source) || !strings.Contains(v.String(), e.text.Source) {
		t.Errorf("%q, source %q", line, e.text.Source)
	}
}

// Layer 0 of a model with large embeddings fails if it does nothing: its contribution is judged.
func TestBlockLeftOut(t *testing.T) {
	dir := t.TempDir()
	spec := ckptgen.Spec{Family: "llama", Layers: 1, Hidden: 128, Heads: 4, KVHeads: 2, HeadDim: 32, FFN: 256,
		Vocab: 256, Context: 128}
	if err := ckptgen.Write(dir, spec, 7); err != nil {
		t.Fatal(err)
	}
	list := spec.Tensors(7)
	fill := list[0].Fill // of the embedding
	list[0].Fill = func(w io.Writer, n int) error {
		var b bytes.Buffer
		if err := fill(&b, n); err != nil {
			return err
		}
		h, x := make([]dtype.BFloat16, n), make([]float32, n)
		copy(dtype.AsBytes(h), b.Bytes())
		dtype.BF16ToF32(x, h)
		for i := range x {
			x[i] *= 200
		}
		dtype.F32ToBF16(h, x)
		_, err := w.Write(dtype.AsBytes(h))
		return err
	}
	if err := ckptgen.WriteSafetensors(filepath.Join(dir, "model.safetensors"), list); err != nil {
		t.Fatal(err)
	}
	m := skilltest.Must(oracle.Open(skilltest.Must(checkpoint.Open(dir, nil))))
	ids := make([]int32, 48)
	for i := range ids {
		ids[i] = int32(i * 5 % 256)
	}
	in, out, err := m.Block(context.Background(), ids, 0)
	if err != nil {
		t.Fatal(err)
	}
	e := newBench(t, dir, skilltest.OpenCPU(t), 96, 256)
	b := Thresholds().Formats["npu"].Block
	stored := func(x []float32) []float32 { // as BF16, rounded
		h, y := make([]dtype.BFloat16, len(x)), make([]float32, len(x))
		dtype.F32ToBF16(h, x)
		dtype.BF16ToF32(y, h)
		return y
	}
	if v, err := judgeBlock(e, "right", stored(out), in, out, b); err != nil || !v.OK() {
		t.Errorf("what is stored of the right answer: %v, %v", err, v)
	}
	if v, err := judgeBlock(e, "left out", in, in, out, b); err != nil || v.OK() {
		t.Errorf("a layer that does nothing: %v, %v", err, v)
	}
}
