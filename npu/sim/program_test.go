package sim

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
)

// prefillFFN has the features of the published prefill programs: GEMM in each variant, a fused
// cast, row and column views, a constant used twice, and element-wise kernels between.
func prefillFFN() *npu.Program {
	const s, emb, hid = 72, 64, 96
	p := npu.NewProgram("ffn")
	x := p.In("x", dtype.BF16, s*emb)
	norm := p.Const("norm", dtype.BF16, emb)
	normed := p.Scratch("normed", dtype.BF16, s, emb)
	gateUp := p.Const("gate_up", dtype.BF16, emb, 2*hid)
	sums := p.Scratch("sums", dtype.F32, s, hid)
	gate := p.Scratch("gate", dtype.BF16, s, hid)
	up := p.Scratch("up", dtype.BF16, s, 2*hid) // the second half is unused
	act := p.Scratch("act", dtype.BF16, s, hid)
	down := p.Const("down", dtype.BF16, hid, emb)
	low := p.Scratch("low", dtype.BF16, s, emb)
	y := p.Out("y", dtype.BF16, s*emb)
	p.Launch("norm", op.RMSNorm{Rows: s, Width: emb, Eps: 1e-5}, x.As(s, emb), norm, normed)
	p.Launch("gate", op.MatMul{M: s, K: emb, N: hid}, normed, gateUp.Cols(0, hid), sums)
	p.Map(npu.Mapping{Variant: "fused-cast"})
	p.Launch("gate_cast", op.Cast{Rows: s, Width: hid}, sums, gate)
	p.Launch("up", op.MatMul{M: s, K: emb, N: hid}, normed, gateUp.Cols(hid, hid), up.Cols(0, hid))
	p.Map(npu.Mapping{Variant: "drain"})
	p.Launch("act", op.SiLUMul{Rows: s, Width: hid}, gate, up.Cols(0, hid), act)
	p.Launch("down", op.MatMul{M: s, K: hid, N: emb}, act, down, low)
	p.Map(npu.Mapping{Variant: "direct", Tile: []int{8, 64, 32, 32}})
	p.Launch("residual", op.Add{Rows: s, Width: emb}, low, x.As(s, emb), y.As(s, emb))
	return p
}

// decodeFFN has the shape of the artifact o_gemv_ffn: unused arguments, a constant whose first row
// is scratch, gate and up interleaved row by row, and three fused kernels.
func decodeFFN() *npu.Program {
	const emb, q, hid = 64, 96, 160
	p := npu.NewProgram("o_gemv_ffn")
	wo := p.Const("wo", dtype.BF16, emb, q)
	attn := p.In("attn", dtype.BF16, q)
	proj := p.Scratch("proj", dtype.BF16, emb)
	x := p.In("x", dtype.BF16, emb)
	p.Scratch("dead", dtype.BF16, emb)
	normed := p.Scratch("normed", dtype.BF16, emb)
	packed := p.Const("packed", dtype.BF16, 2, emb).WithScratchRows(1)
	gateUp := p.Const("gate_up", dtype.BF16, 2*hid, emb)
	gate := p.Scratch("gate", dtype.BF16, hid)
	up := p.Scratch("up", dtype.BF16, hid)
	act := p.Scratch("act", dtype.BF16, hid)
	wdown := p.Const("wdown", dtype.BF16, emb, hid)
	down := p.Scratch("down", dtype.BF16, emb)
	y := p.Out("y", dtype.BF16, emb)
	sum, norm := packed.Rows(0, 1), packed.Rows(1, 1)
	add := func(fused, name string, o op.Op, args ...npu.Ref) {
		p.Launch(name, o, args...)
		p.Map(npu.Mapping{Fused: fused})
	}
	add("cascade.o", "attn.o", op.MatMul{M: 1, K: q, N: emb, TransB: true}, attn, wo, proj)
	add("cascade.o", "attn.residual", op.Add{Rows: 1, Width: emb}, proj, x, sum)
	add("cascade.swiglu", "ffn.norm", op.RMSNorm{Rows: 1, Width: emb, Eps: 1e-5}, sum, norm, normed)
	add("cascade.swiglu", "ffn.gate", op.MatMul{M: 1, K: emb, N: hid, TransB: true}, normed,
		gateUp.Every(0, 2), gate)
	add("cascade.swiglu", "ffn.up", op.MatMul{M: 1, K: emb, N: hid, TransB: true}, normed,
		gateUp.Every(1, 2), up)
	add("cascade.swiglu", "ffn.act", op.SiLUMul{Rows: 1, Width: hid}, gate, up, act)
	add("cascade.down", "ffn.down", op.MatMul{M: 1, K: hid, N: emb, TransB: true}, act, wdown, down)
	add("cascade.down", "ffn.residual", op.Add{Rows: 1, Width: emb}, down, sum, y)
	return p
}

// rotation covers the ops before attention: moves, per-head norms, RoPE with one table per head,
// and LayerNorm and GELU, which no supported model uses.
func rotation() *npu.Program {
	const s, heads, hd = 40, 3, 32
	p := npu.NewProgram("rotation")
	x := p.In("x", dtype.BF16, s, 2*heads*hd)
	q := p.Scratch("q", dtype.BF16, s, heads*hd)
	p.Launch("slice", op.Slice{Rows: s, Width: 2 * heads * hd, From: heads * hd, N: heads * hd}, x, q)
	qn := p.Scratch("qn", dtype.BF16, s, heads*hd)
	p.Launch("qk_norm", op.RMSNorm{Rows: s, Width: hd, Heads: heads, Eps: 1e-6}, q,
		p.Const("w", dtype.BF16, hd), qn)
	qr := p.Scratch("qr", dtype.BF16, s, heads*hd)
	p.Launch("rope", op.RoPE{Rows: s, Heads: heads, HeadDim: hd, TableHeads: heads}, qn,
		p.In("table", dtype.BF16, s, heads*hd), qr)
	ln := p.Scratch("ln", dtype.BF16, s, heads*hd)
	lw, lb := p.Const("lw", dtype.BF16, heads*hd), p.Const("lb", dtype.BF16, heads*hd)
	p.Launch("ln", op.LayerNorm{Rows: s, Width: heads * hd, Eps: 1e-5}, qr, lw, lb, ln)
	g := p.Scratch("g", dtype.BF16, s, heads*hd)
	p.Launch("gelu", op.GELU{Rows: s, Width: heads * hd, Tanh: true}, ln, g)
	b := p.Scratch("b", dtype.BF16, s, heads*hd)
	p.Launch("bias", op.Add{Rows: s, Width: heads * hd, Broadcast: true}, g,
		p.Const("bias_w", dtype.BF16, heads*hd), b)
	a := p.Scratch("a", dtype.BF16, s, heads*hd)
	p.Launch("attention", op.Attention{Rows: s, Heads: heads, KVHeads: heads, HeadDim: hd}, b, g, ln, a)
	p.Map(npu.Mapping{Variant: "flash", Tile: []int{32, 16, 4, 1}})
	y := p.Out("y", dtype.BF16, heads, s, hd)
	p.Launch("permute", op.Permute{Shape: []int{s, heads, hd}, Perm: []int{1, 0, 2}}, a.As(s, heads, hd), y)
	return p
}

// inPlace updates activations in place between two products that read them.
func inPlace() *npu.Program {
	const s, n = 24, 48
	p := npu.NewProgram("in place")
	x, w := p.In("x", dtype.BF16, s, n), p.Const("w", dtype.BF16, n, n)
	h := p.Scratch("h", dtype.BF16, s, n)
	p.Launch("copy", op.Add{Rows: s, Width: n}, x, x, h)
	before := p.Out("before", dtype.BF16, s, n)
	p.Launch("before", op.MatMul{M: s, K: n, N: n}, h, w, before)
	p.Launch("change", op.Add{Rows: s, Width: n}, h, before, h)
	p.Launch("after", op.MatMul{M: s, K: n, N: n}, h, w, p.Out("after", dtype.BF16, s, n))
	return p
}

// fill returns one buffer per argument: random values for arguments that the program reads, zeros
// for the others. It works with any device.
func fill(t testing.TB, d npu.Device, p *npu.Program) []npu.Buffer {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 7))
	var list []npu.Buffer
	for _, a := range p.Args {
		n := (op.Size{}).Elements(a.Shape)
		b, err := d.Alloc(t.Context(), a.Type.Bytes(n))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		if a.Kind == npu.In || a.Kind == npu.Const {
			m := normal(r, 1, n, 0.3)
			copy(b.Bytes(), dtype.AsBytes(m.bf))
			if err := b.Sync(npu.ToDevice, 0, b.Len()); err != nil {
				t.Fatal(err)
			}
		}
		list = append(list, b)
	}
	return list
}

// execute runs a program and syncs everything that it wrote to the host.
func execute(t testing.TB, d npu.Device, p *npu.Program, args []npu.Buffer) {
	t.Helper()
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	load := d.Load
	if s, ok := d.(*Device); ok {
		// These shapes are too small for the array.
		load = func(ctx context.Context, p *npu.Program) (npu.Executable, error) { return s.place(ctx, p) }
	}
	e, err := load(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if err := d.Submit(t.Context(), []npu.Run{{Name: "test", Exec: e, Args: args}}); err != nil {
		t.Fatal(err)
	}
	for i, a := range p.Args {
		if a.Kind != npu.In {
			if err := args[i].Sync(npu.FromDevice, 0, args[i].Len()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Whole programs match the software device within the array's accuracy, in every output and
// intermediate value.
func TestPrograms(t *testing.T) {
	host, err := cpu.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	d := open(t, nil)
	for _, p := range []*npu.Program{prefillFFN(), decodeFFN(), rotation(), inPlace()} {
		t.Run(p.Name, func(t *testing.T) {
			p := p.Debug()
			got, want := fill(t, d, p), fill(t, host, p)
			execute(t, d, p, got)
			execute(t, host, p, want)
			for i, a := range p.Args {
				if a.Kind == npu.Const && !bytes.Equal(got[i].Bytes(), want[i].Bytes()) {
					t.Errorf("constant %s was changed", a.Name)
				}
			}
			for _, tap := range p.Taps() {
				a := p.Args[tap.View.Arg]
				var dev deviation
				if a.Type == dtype.F32 {
					for i, w := range dtype.Float32s(want[tap.View.Arg].Bytes()) {
						dev.add(dtype.Float32s(got[tap.View.Arg].Bytes())[i], w)
					}
				} else {
					for i, w := range dtype.BFloat16s(want[tap.View.Arg].Bytes()) {
						dev.add(dtype.BFloat16s(got[tap.View.Arg].Bytes())[i].Float32(), w.Float32())
					}
				}
				// Errors of single kernels are up to 5 % and accumulate along a program.
				if e := dev.meanRelL1(); !(e < 0.08) {
					t.Errorf("%s: mean relative L1 against npu/cpu %.3g", tap.Launch, e)
				}
			}
		})
	}
}

// Leading dimensions of 1 in arguments and views change nothing.
func TestLeadingOnes(t *testing.T) {
	d := open(t, nil)
	for _, p := range []*npu.Program{prefillFFN(), decodeFFN(), rotation(), inPlace()} {
		one := &npu.Program{Name: p.Name, Args: slices.Clone(p.Args)}
		for i := range one.Args {
			if a := &one.Args[i]; a.ScratchRows == 0 {
				a.Shape = append([]int{1}, a.Shape...)
			}
		}
		for _, l := range p.Launches {
			l.Args = slices.Clone(l.Args)
			for i := range l.Args {
				if v := &l.Args[i]; v.Shape != nil && v.Stride == 0 {
					v.Shape = append([]int{1}, v.Shape...)
				}
			}
			one.Launches = append(one.Launches, l)
		}
		want, got := fill(t, d, p), fill(t, d, one)
		execute(t, d, p, want)
		execute(t, d, one, got)
		for i, a := range p.Args {
			if !bytes.Equal(want[i].Bytes(), got[i].Bytes()) {
				t.Errorf("%s: %s differs", p.Name, a.Name)
			}
		}
	}
}

// Each launch as a program of its own computes the same bits as the whole program. Programs with
// fused kernels are excluded, because those keep more bits between ops.
func TestUnmerged(t *testing.T) {
	d := open(t, nil)
	for _, p := range []*npu.Program{prefillFFN(), rotation()} {
		p := p.Debug()
		merged, single := fill(t, d, p), fill(t, d, p)
		execute(t, d, p, merged)
		for i, l := range p.Launches {
			q := &npu.Program{Name: fmt.Sprintf("%s.%d", p.Name, i),
				Args: append([]npu.Arg(nil), p.Args...), Launches: []npu.Launch{l}}
			for j := range q.Args {
				if q.Args[j].Kind != npu.Const {
					q.Args[j].Kind = npu.In
				}
			}
			q.Args[l.Args[len(l.Args)-1].Arg].Kind = npu.Scratch
			execute(t, d, q, single)
		}
		for i, a := range p.Args {
			if !bytes.Equal(merged[i].Bytes(), single[i].Bytes()) {
				t.Errorf("%s: %s differs", p.Name, a.Name)
			}
		}
	}
}

// Results do not depend on the number of threads.
func TestThreads(t *testing.T) {
	one, three := open(t, &Options{Threads: 1}), open(t, &Options{Threads: 3})
	for _, p := range []*npu.Program{prefillFFN(), decodeFFN(), rotation()} {
		a, b := fill(t, one, p), fill(t, three, p)
		execute(t, one, p, a)
		execute(t, three, p, b)
		if last := len(a) - 1; !bytes.Equal(a[last].Bytes(), b[last].Bytes()) {
			t.Errorf("%s: one thread and three differ", p.Name)
		}
	}
}

// A fused kernel does not round the product before the residual is added.
func TestCascadeRounds(t *testing.T) {
	const k, n = 256, 64
	program := func(fused string) *npu.Program {
		p := npu.NewProgram("o")
		proj := p.Scratch("proj", dtype.BF16, n)
		x, a, w := p.In("x", dtype.BF16, n), p.In("a", dtype.BF16, k), p.Const("w", dtype.BF16, n, k)
		p.Launch("product", op.MatMul{M: 1, K: k, N: n, TransB: true}, a, w, proj)
		p.Map(npu.Mapping{Fused: fused})
		p.Launch("sum", op.Add{Rows: 1, Width: n}, x, proj, p.Out("y", dtype.BF16, n))
		p.Map(npu.Mapping{Fused: fused})
		return p
	}
	d := open(t, nil)
	wrong := map[string]int{}
	for _, fused := range []string{"", "cascade"} {
		p := program(fused)
		args := fill(t, d, p)
		execute(t, d, p, args)
		x, a := dtype.BFloat16s(args[1].Bytes()), dtype.BFloat16s(args[2].Bytes())
		w, y := dtype.BFloat16s(args[3].Bytes()), dtype.BFloat16s(args[4].Bytes())
		for i := range n {
			var total fp32Sum
			total.add(float64(x[i].Float32()))
			for j := range k {
				total.add(float64(a[j].Float32()) * float64(w[i*k+j].Float32()))
			}
			if !total.allows(y[i].Float32(), true) {
				wrong[fused]++
			}
		}
	}
	if wrong["cascade"] > 0 || wrong[""] < n/8 {
		t.Errorf("%v of %d outputs are not an FP32 sum rounded to nearest: "+
			"want none in the fused kernel, and at least an eighth outside it", wrong, n)
	}
}

// Attention with head-first operands and split values computes the same bits as with row-major
// operands.
func TestAttentionLayouts(t *testing.T) {
	const s, heads, kv, hd, split = 80, 4, 2, 64, 2
	d := open(t, nil)
	r := rand.New(rand.NewPCG(1, 1))
	q, k, v := normal(r, s, heads*hd, 1), normal(r, s, kv*hd, 1), normal(r, s, kv*hd, 1)
	attention := func(o op.Attention, q, k, v matrix) matrix {
		p := npu.NewProgram("attention")
		operands := o.Operands()
		var refs []npu.Ref
		for _, x := range operands[:3] {
			refs = append(refs, p.In(x.Name, dtype.BF16, x.Shape...))
		}
		p.Launch("attention", o, append(refs, p.Out("y", dtype.BF16, operands[3].Shape...))...)
		p.Map(npu.Mapping{Variant: "flash", Tile: []int{64, 32, 4, 2}})
		y := empty(s, heads*hd)
		run(t, d, p, &y, alloc(t, d, &q), alloc(t, d, &k), alloc(t, d, &v), alloc(t, d, &y))
		return y
	}
	byHeads := func(m matrix, heads, parts int, back bool) matrix {
		out := empty(m.rows, m.width)
		width := hd / parts
		for r := range s {
			for h := range heads {
				for p := range parts {
					a, b := r*m.width+h*hd+p*width, ((h*parts+p)*s+r)*width
					if back {
						copy(out.bf[a:a+width], m.bf[b:])
					} else {
						copy(out.bf[b:b+width], m.bf[a:])
					}
				}
			}
		}
		return out
	}
	o := op.Attention{Rows: s, Heads: heads, KVHeads: kv, HeadDim: hd}
	want := attention(o, q, k, v)
	o.HeadFirst, o.Split = true, split
	got := byHeads(attention(o, byHeads(q, heads, 1, false), byHeads(k, kv, 1, false),
		byHeads(v, kv, split, false)), heads, split, true)
	for i := range want.bf {
		if got.bf[i] != want.bf[i] {
			t.Fatalf("element %d: %v by heads, %v by rows", i, got.bf[i].Float32(), want.bf[i].Float32())
		}
	}
}

// A NaN in the inputs reaches the outputs that depend on it, and no others.
func TestNaN(t *testing.T) {
	const s, hd = 40, 32
	d := open(t, nil)
	r := rand.New(rand.NewPCG(1, 1))
	q, k, v, y := normal(r, s, hd, 1), normal(r, s, hd, 1), normal(r, s, hd, 1), empty(s, hd)
	k.bf[20*hd+3] = 0xffc0 // the sign that this machine's arithmetic produces
	flashOn(t, d, xdna2.Shape{Rows: s, Keys: s, Heads: 1, KVHeads: 1, HeadDim: hd, Causal: true},
		16, &q, &k, &v, &y)
	for i := range s {
		if nan := math.IsNaN(y.at(i, 0)); nan != (i >= 20) {
			t.Errorf("row %d is %g, key 20 is NaN", i, y.at(i, 0))
		}
	}
}
