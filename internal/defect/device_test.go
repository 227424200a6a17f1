package defect_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/defect"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Shape of the layer in these tests: every family's launches at once, and no dimension that is a
// multiple of a tile.
const (
	hidden, ffn, vocab      = 64, 168, 200
	heads, kvHeads, headDim = 4, 2, 16
	width, kvWidth          = heads * headDim, kvHeads * headDim
)

// bench is programs whose launches share nothing: each has inputs of its own, so that a wrong one
// does not make others wrong.
type bench struct {
	t    *testing.T
	dev  npu.Device
	runs []npu.Run
	outs map[string][]npu.Buffer // by tap name
	rng  *rand.Rand
}

func (b *bench) alloc(n int) npu.Buffer {
	buf, err := b.dev.Alloc(context.Background(), n)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := buf.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return buf
}

// tensor is a checkpoint of one tensor.
type tensor npu.Tensor

func (t tensor) Tensor(string) (npu.Tensor, error) { return npu.Tensor(t), nil }

// constant makes a weight of a buffer's content.
func (b *bench) constant(buf npu.Buffer, typ dtype.Type, shape []int) npu.Buffer {
	w, err := b.dev.Const(context.Background(), npu.Source{Layout: npu.T("w"), From: tensor{Type: typ, Shape: shape,
		Data: buf.Bytes()}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		if err := w.Close(); err != nil {
			b.t.Error(err)
		}
	})
	return w
}

// fill puts random values of unit size, or indices below n, into a buffer.
func (b *bench) fill(buf npu.Buffer, typ dtype.Type, n int) {
	data := buf.Bytes()
	switch typ {
	case dtype.I32:
		for i := range dtype.Int32s(data) {
			dtype.Int32s(data)[i] = int32(b.rng.IntN(n))
		}
	case dtype.F32:
		for i := range dtype.Float32s(data) {
			dtype.Float32s(data)[i] = float32(b.rng.NormFloat64())
		}
	case dtype.BF16:
		for i := range dtype.BFloat16s(data) {
			dtype.BFloat16s(data)[i] = dtype.FromFloat32(float32(b.rng.NormFloat64()))
		}
	}
}

// launch is one line of a program under test.
type launch struct {
	name string
	op   op.Op
}

// add loads a program with the launches and prepares a run of it.
func (b *bench) add(ctx context.Context, run string, typ dtype.Type, segments []npu.Segment, launches []launch) {
	p := npu.NewProgram("program")
	r := npu.Run{Name: run, Picks: 11}
	for _, s := range segments {
		r.Segments = append(r.Segments, npu.Segment{Rows: s.Rows, Pos: s.Pos})
	}
	size := op.Size{Rows: r.Size().Rows, Picks: r.Picks, Capacity: 64}
	for _, l := range launches {
		var refs []npu.Ref
		tap := run + "." + l.name
		for _, o := range l.op.Operands() {
			kind, t := npu.In, typ
			switch {
			case l.op.Kind() == "MatMul" && o.Name == "w":
				kind = npu.Const
			case o.Name == "cache" || o.Name == "kcache" || o.Name == "vcache":
				kind, t = npu.State, dtype.BF16
			case o.Write:
				kind = npu.Out
			case o.Types[0] == dtype.I32:
				t = dtype.I32
			}
			refs = append(refs, p.Arg(kind, l.name+" "+o.Name, t, o.Shape...))
			limit := vocab
			if o.Name == "index" {
				limit = size.Rows
			}
			if kind != npu.State {
				buf := b.alloc(t.Bytes(size.Elements(o.Shape)))
				b.fill(buf, t, limit)
				if kind == npu.Const {
					r.Args = append(r.Args, b.constant(buf, t, o.Shape))
					continue
				}
				r.Args = append(r.Args, buf)
				if o.Write {
					b.outs[tap] = append(b.outs[tap], buf)
				}
				continue
			}
			r.Args = append(r.Args, nil)
			for i := range r.Segments {
				buf := b.alloc(t.Bytes(size.Elements(o.Shape)))
				b.fill(buf, t, 0)
				r.Segments[i].State = append(r.Segments[i].State, buf)
				if o.Write {
					b.outs[tap] = append(b.outs[tap], buf)
				}
			}
		}
		p.Launch(l.name, l.op, refs...)
	}
	exec, err := b.dev.Load(ctx, p)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Exec = exec
	b.runs = append(b.runs, r)
}

// layer is every launch of a decoder layer, of all families together.
func layer() []launch {
	project := func(n int) op.Op { return op.MatMul{M: op.Rows, K: hidden, N: n, TransB: true} }
	write := op.KVWrite{Rows: op.Rows, KVHeads: kvHeads, HeadDim: headDim}
	norm := op.RMSNorm{Rows: op.Rows, Width: hidden, Eps: 1e-2}
	return []launch{
		{"attn.norm", norm},
		{"attn.q", project(width)}, {"attn.k", project(kvWidth)}, {"attn.v", project(kvWidth)},
		{"attn.q_bias", op.Add{Rows: op.Rows, Width: width, Broadcast: true}},
		{"attn.k_bias", op.Add{Rows: op.Rows, Width: kvWidth, Broadcast: true}},
		{"attn.v_bias", op.Add{Rows: op.Rows, Width: kvWidth, Broadcast: true}},
		{"attn.q_norm", op.RMSNorm{Rows: op.Rows, Width: headDim, Heads: heads, Eps: 1e-2}},
		{"attn.k_norm", op.RMSNorm{Rows: op.Rows, Width: headDim, Heads: kvHeads, Eps: 1e-2}},
		{"attn.q_rope", op.RoPE{Rows: op.Rows, Heads: heads, HeadDim: headDim}},
		{"attn.k_rope", op.RoPE{Rows: op.Rows, Heads: kvHeads, HeadDim: headDim}},
		{"attn.k_write", write}, {"attn.v_write", write},
		{"attn.core", op.Attention{Rows: op.Rows, Heads: heads, KVHeads: kvHeads, HeadDim: headDim, Cached: true}},
		{"attn.o", op.MatMul{M: op.Rows, K: width, N: hidden, TransB: true}},
		{"attn.residual", op.Add{Rows: op.Rows, Width: hidden}},
		{"ffn.norm", norm}, {"ffn.gate", project(ffn)}, {"ffn.up", project(ffn)},
		{"ffn.act", op.SiLUMul{Rows: op.Rows, Width: ffn}},
		{"ffn.down", op.MatMul{M: op.Rows, K: ffn, N: hidden, TransB: true}},
		{"ffn.residual", op.Add{Rows: op.Rows, Width: hidden}},
	}
}

// fixed is the launches that programs of fixed shapes have in other forms.
func fixed(headFirst bool, split int) []launch {
	const rows = 37
	return []launch{
		{"attn.q", op.MatMul{M: rows, K: hidden, N: width}}, {"attn.k", op.MatMul{M: rows, K: hidden, N: kvWidth}},
		{"attn.v", op.MatMul{M: rows, K: hidden, N: kvWidth}},
		{"attn.q_rope", op.RoPE{Rows: rows, Heads: heads, HeadDim: headDim, TableHeads: heads}},
		{"attn.k_rope", op.RoPE{Rows: rows, Heads: kvHeads, HeadDim: headDim, TableHeads: kvHeads}},
		{"attn.core", op.Attention{Rows: rows, Heads: heads, KVHeads: kvHeads, HeadDim: headDim, HeadFirst: headFirst,
			Split: split}},
		{"attn.o", op.MatMul{M: rows, K: width, N: hidden}},
		{"ffn.down", op.MatMul{M: rows, K: ffn, N: hidden}},
	}
}

// outputs runs a forward pass whose launches share nothing, all of it at once or run by run, and
// returns the output of each launch by tap name.
func outputs(t *testing.T, dev npu.Device, ctx context.Context, typ dtype.Type, apart bool) map[string][]byte {
	b := &bench{t: t, dev: dev, outs: map[string][]npu.Buffer{}, rng: rand.New(rand.NewPCG(1, 2))}
	sessions := []npu.Segment{{Rows: 37}, {Rows: 3, Pos: 33}, {Rows: 1, Pos: 47}}
	b.add(ctx, "embed", typ, sessions, []launch{{"embed", op.Embed{Rows: op.Rows, Vocab: vocab, Width: hidden}}})
	for l := range 2 {
		b.add(ctx, fmt.Sprintf("layer.%d", l), typ, sessions, layer())
	}
	b.runs[2].Exec = b.runs[1].Exec // layers share a program
	b.add(ctx, "head", typ, sessions, []launch{
		{"pick", op.Pick{Picks: op.Picks, Rows: op.Rows, Width: hidden}},
		{"norm", op.RMSNorm{Rows: op.Picks, Width: hidden, Eps: 1e-2}},
		{"lm_head", op.MatMul{M: op.Picks, K: hidden, N: vocab, TransB: true}},
	})
	b.add(ctx, "layer.2", typ, nil, fixed(false, 0))
	b.add(ctx, "layer.3", typ, nil, fixed(true, 0))
	b.add(ctx, "layer.4", typ, nil, fixed(true, 2))
	step := len(b.runs)
	if apart {
		step = 1
	}
	for runs := range slices.Chunk(b.runs, step) {
		if err := dev.Submit(ctx, runs); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string][]byte{}
	for tap, bufs := range b.outs {
		for _, buf := range bufs {
			all[tap] = append(all[tap], buf.Bytes()...)
		}
	}
	return all
}

// engines runs f on a device with each set of kernels that this machine can execute.
func engines(t *testing.T, f func(t *testing.T, dev npu.Device)) {
	list := cpu.KernelNames()
	if raced {
		t.Log("under the race detector: kernels go and generic, FP32 only")
		list = list[:2]
	}
	for _, kernels := range list {
		t.Run(kernels, func(t *testing.T) {
			dev, err := cpu.Open(&cpu.Options{Threads: 2, Kernels: kernels})
			if err != nil {
				t.Skip(err)
			}
			defer dev.Close()
			f(t, defect.Wrap(dev))
		})
	}
}

// Each defect changes the results of the launches that it names, and not a bit of any other's.
func TestDefectsChangeWhatTheyName(t *testing.T) {
	engines(t, func(t *testing.T, dev npu.Device) {
		types := []dtype.Type{dtype.F32, dtype.BF16}
		if raced {
			types = types[:1]
		}
		for _, typ := range types {
			right := outputs(t, dev, context.Background(), typ, false)
			for _, d := range defect.All() {
				if d.Precise && typ != dtype.F32 {
					continue
				}
				wrong := outputs(t, dev, defect.With(context.Background(), d), typ, false)
				for tap, want := range right {
					switch same := bytes.Equal(wrong[tap], want); {
					case d.In(tap) && same:
						t.Errorf("%s, %v: %s is what it was", d.Name, typ, tap)
					case !d.In(tap) && !same:
						t.Errorf("%s, %v: %s changes too", d.Name, typ, tap)
					}
					if !strings.HasSuffix(tap, "_write") && !finite(t, wrong[tap], typ) {
						t.Errorf("%s, %v: %s is not finite", d.Name, typ, tap)
					}
				}
			}
		}
	})
}

func finite(t *testing.T, b []byte, typ dtype.Type) bool {
	return !slices.ContainsFunc(values(t, b, typ), func(v float32) bool {
		return math.IsNaN(float64(v)) ||
			math.IsInf(float64(v), 0)
	})
}

func values(t *testing.T, b []byte, typ dtype.Type) []float32 {
	_, size := typ.Block()
	x := make([]float32, len(b)/size)
	if err := dtype.Dequantize(x, typ, b); err != nil {
		t.Fatal(err)
	}
	return x
}

// But for the one thing that is wrong in each, the kernels that replace the device's are right.
func TestReplacedKernelsAreRightButForTheDefect(t *testing.T) {
	dev, err := cpu.Open(&cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	want := outputs(t, defect.Wrap(dev), context.Background(), dtype.F32, false)
	for _, d := range defect.Right() {
		got := outputs(t, defect.Wrap(dev), defect.With(context.Background(), d), dtype.F32, false)
		sits := 0
		for tap := range want {
			if d.In(tap) {
				sits++
			}
			if strings.HasSuffix(tap, "_write") {
				if !bytes.Equal(got[tap], want[tap]) {
					t.Errorf("%s: the cache of %s differs", d.Name, tap)
				}
				continue
			}
			x, y := values(t, got[tap], dtype.F32), values(t, want[tap], dtype.F32)
			for i := range y {
				if math.Abs(float64(x[i]-y[i])) > 2e-5*(1+math.Abs(float64(y[i]))) {
					t.Fatalf("%s: element %d of %s is %g, want %g", d.Name, i, tap, x[i], y[i])
				}
			}
		}
		if sits == 0 {
			t.Errorf("%s replaces nothing", d.Name)
		}
	}
}

// The kinds of ops that defects name are those of the launches that they sit in.
func TestDefectsSitInTheOpThatTheyName(t *testing.T) {
	kinds := map[string]string{"embed.embed": "Embed", "head.pick": "Pick", "head.norm": "RMSNorm",
		"head.lm_head": "MatMul"}
	for l := range 2 {
		for _, x := range layer() {
			kinds[fmt.Sprintf("layer.%d.%s", l, x.name)] = x.op.Kind()
		}
	}
	for _, d := range defect.All() {
		found := 0
		for tap, kind := range kinds {
			if d.In(tap) {
				found++
				if kind != d.Op {
					t.Errorf("%s sits in %s, which is a %s, not a %s", d.Name, tap, kind, d.Op)
				}
			}
		}
		if found == 0 {
			t.Errorf("%s sits in no launch of a model", d.Name)
		}
	}
}

// The effect of a defect depends on its launches' operands alone: not on what else is in the dispatch,
// for a debug load has one run in each.
func TestDefectsRepeatToTheBit(t *testing.T) {
	dev, err := cpu.Open(&cpu.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	for _, d := range defect.All() {
		ctx := defect.With(context.Background(), d)
		first := outputs(t, defect.Wrap(dev), ctx, dtype.F32, false)
		for tap, b := range outputs(t, defect.Wrap(dev), ctx, dtype.F32, true) {
			if !bytes.Equal(first[tap], b) {
				t.Errorf("%s: %s differs when runs are submitted one by one", d.Name, tap)
			}
		}
	}
}
