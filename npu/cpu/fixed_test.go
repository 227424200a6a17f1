package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/oracle"
)

// Programs of the shapes and layouts that NPU artefacts have, small: fixed numbers of rows from
// position 0, BF16 everywhere, weights [k, n], flat
// outputs, arguments that nothing uses.

// gemvFFN is the second half of a decode layer: one row, a constant whose row 0 is scratch, gate
// and up interleaved row by row.
func gemvFFN() *npu.Program {
	const emb, q, hid = 96, 80, 168
	p := npu.NewProgram("o_gemv_ffn")
	wo, attn := p.Const("wo", bf, emb, q), p.In("attn", bf, q)
	proj, x := p.Scratch("dead2", bf, emb), p.In("x", bf, emb)
	p.Scratch("dead4", bf, emb)
	normed := p.Scratch("dead5", bf, emb)
	packed := p.Const("packed", bf, 2, emb).WithScratchRows(1)
	gateUp := p.Const("gate_up", bf, 2*hid, emb)
	gate, up, act := p.Scratch("dead8", bf, hid), p.Scratch("dead10", bf, hid), p.Scratch("swiglu", bf, hid)
	wdown, down := p.Const("wdown", bf, emb, hid), p.Scratch("dead13", bf, emb)
	y := p.Out("y", bf, emb)
	sum, norm := packed.Rows(0, 1), packed.Rows(1, 1)
	p.Launch("attn.o", op.MatMul{M: 1, K: q, N: emb, TransB: true}, attn, wo, proj)
	p.Launch("attn.residual", op.Add{Rows: 1, Width: emb}, proj, x, sum)
	p.Launch("ffn.norm", op.RMSNorm{Rows: 1, Width: emb, Eps: 1e-5}, sum, norm, normed)
	p.Launch("ffn.gate", op.MatMul{M: 1, K: emb, N: hid, TransB: true}, normed, gateUp.Every(0, 2), gate)
	p.Launch("ffn.up", op.MatMul{M: 1, K: emb, N: hid, TransB: true}, normed, gateUp.Every(1, 2), up)
	p.Launch("ffn.act", op.SiLUMul{Rows: 1, Width: hid}, gate, up, act)
	p.Launch("ffn.down", op.MatMul{M: 1, K: hid, N: emb, TransB: true}, act, wdown, down)
	p.Launch("ffn.residual", op.Add{Rows: 1, Width: emb}, down, sum, y)
	return p
}

// rmsQKVRope is the first half of a prefill layer: norm, products with padded columns, biases that
// drop the padding, norms of q and k, rotation with a
// table that repeats for every head. Outputs are flat. With emb = 1 row it is that of a decode layer.
func rmsQKVRope(rows int) *npu.Program {
	const emb, heads, kvHeads, hd, pad = 72, 3, 1, 32, 128
	p := npu.NewProgram("rms_qkv_bias_rope")
	x := p.In("x", bf, rows, emb)
	normed := p.Scratch("normed", bf, rows, emb)
	p.Launch("attn.norm", op.RMSNorm{Rows: rows, Width: emb, Eps: 1e-6}, x, p.Const("norm", bf, emb), normed)
	for _, s := range []struct {
		name  string
		heads int
	}{{"q", heads}, {"k", kvHeads}} {
		n := s.heads * hd
		wide := p.Scratch(s.name+" padded", bf, rows, pad)
		biased, headed := p.Scratch(s.name+" biased", bf, rows, n), p.Scratch(s.name+" normed", bf, rows, n)
		p.Launch("attn."+s.name, op.MatMul{M: rows, K: emb, N: pad}, normed, p.Const("w"+s.name, bf, emb, pad), wide)
		p.Launch("attn."+s.name+"_bias", op.Add{Rows: rows, Width: n, Broadcast: true}, wide.Cols(0, n),
			p.Const("b"+s.name, bf, n), biased)
		p.Launch("attn."+s.name+"_norm", op.RMSNorm{Rows: rows, Width: hd, Heads: s.heads, Eps: 1e-6}, biased,
			p.Const("n"+s.name, bf, hd), headed)
		table := p.In("table of "+s.name, bf, rows*s.heads*hd)
		p.Launch("attn."+s.name+"_rope", op.RoPE{Rows: rows, Heads: s.heads, HeadDim: hd, TableHeads: s.heads}, headed,
			table.As(rows, n),
			p.Out(s.name+" rotated", bf, rows*n).As(rows, n))
	}
	v := p.Out("v", bf, rows*kvHeads*hd)
	p.Launch("attn.v", op.MatMul{M: rows, K: emb, N: kvHeads * hd}, normed, p.Const("wv", bf, emb, kvHeads*hd),
		v.As(rows, kvHeads*hd))
	return p
}

// oFFN is the second half of a prefill layer: products as FP32 that are then cast, sums and activations in BF16.
func oFFN(rows int) *npu.Program {
	const emb, q, hid = 64, 96, 160
	p := npu.NewProgram("o_ffn")
	product := func(name string, x npu.Ref, k, n int, wide bool) npu.Ref {
		w, y := p.Const("w "+name, bf, k, n), p.Scratch(name, bf, rows, n)
		if !wide {
			p.Launch(name, op.MatMul{M: rows, K: k, N: n}, x, w, y)
			return y
		}
		exact := p.Scratch(name+" exact", f32, rows, n)
		p.Launch(name, op.MatMul{M: rows, K: k, N: n}, x, w, exact)
		p.Launch(name+" cast", op.Cast{Rows: rows, Width: n}, exact, y)
		return y
	}
	x, sum, normed := p.In("x", bf, rows, emb), p.Scratch("sum", bf, rows, emb), p.Scratch("normed", bf, rows, emb)
	add := op.Add{Rows: rows, Width: emb}
	p.Launch("attn.residual", add, product("attn.o", p.In("attn", bf, rows, q), q, emb, true), x, sum)
	p.Launch("ffn.norm", op.RMSNorm{Rows: rows, Width: emb, Eps: 1e-5}, sum, p.Const("norm", bf, emb), normed)
	gate, up := product("ffn.gate", normed, emb, hid, false), product("ffn.up", normed, emb, hid, true)
	act := p.Scratch("act", bf, rows, hid)
	p.Launch("ffn.act", op.SiLUMul{Rows: rows, Width: hid}, gate, up, act)
	p.Launch("ffn.residual", add, product("ffn.down", act, hid, emb, true), sum, p.Out("y", bf, rows*emb).As(rows, emb))
	return p
}

// seqFirst is attention over the rows themselves, as they come from the projections.
func seqFirst(rows int) *npu.Program {
	o := op.Attention{Rows: rows, Heads: 6, KVHeads: 2, HeadDim: 16}
	p := npu.NewProgram("attention")
	q, k, v := p.In("q", bf, rows*96), p.In("k", bf, rows*32), p.In("v", bf, rows*32)
	p.Launch("attn.core", o, q.As(rows, 96), k.As(rows, 32), v.As(rows, 32), p.Out("y", bf, rows*96).As(rows, 96))
	return p
}

// headFirst is attention in the layout of the kernel for large heads: transposed before and after,
// values and results in two halves.
func headFirst(rows int) *npu.Program {
	const heads, kvHeads, hd, half = 4, 2, 32, 16
	p := npu.NewProgram("attention_head_first")
	turn := func(name string, x npu.Ref, a, b, c int, y npu.Ref) {
		p.Launch(name, op.Permute{Shape: []int{a, b, c}, Perm: []int{1, 0, 2}}, x, y)
	}
	q, k, v := p.In("q", bf, rows, heads*hd), p.In("k", bf, rows, kvHeads*hd), p.In("v", bf, rows, kvHeads*hd)
	q2, k2, v2 := p.Scratch("q2", bf, heads, rows, hd), p.Scratch("k2", bf, kvHeads, rows, hd),
		p.Scratch("v2", bf, 2*kvHeads, rows, half)
	y2 := p.Scratch("y2", bf, 2*heads, rows, half)
	turn("q turned", q.As(rows, heads, hd), rows, heads, hd, q2)
	turn("k turned", k.As(rows, kvHeads, hd), rows, kvHeads, hd, k2)
	turn("v turned", v.As(rows, 2*kvHeads, half), rows, 2*kvHeads, half, v2)
	p.Launch("attn.core", op.Attention{Rows: rows, Heads: heads, KVHeads: kvHeads, HeadDim: hd, HeadFirst: true,
		Split: 2}, q2, k2, v2, y2)
	turn("back", y2, 2*heads, rows, half, p.Out("y", bf, rows, 2*heads, half))
	return p
}

// headParts is an LM head cut into pieces, whose logits are put together; of these a range is cut out.
func headParts(rows int) *npu.Program {
	const emb, part, last = 48, 96, 40
	p := npu.NewProgram("lm_head")
	x := p.In("x", bf, rows, emb)
	parts := []npu.Ref{p.Scratch("y0", bf, rows, part), p.Scratch("y1", bf, rows, part),
		p.Scratch("y2", bf, rows, last)}
	for i, y := range parts {
		n := []int{part, part, last}[i]
		p.Launch(fmt.Sprintf("part %d", i), op.MatMul{M: rows, K: emb, N: n, TransB: true}, x,
			p.Const(fmt.Sprintf("w%d", i), bf, n, emb), y)
	}
	all := p.Scratch("all", bf, rows, 2*part+last)
	p.Launch("together", op.Concat{Rows: rows, Widths: []int{part, part, last}}, parts[0], parts[1], parts[2], all)
	p.Launch("cut", op.Slice{Rows: rows, Width: 2*part + last, From: 50, N: 100}, all, p.Out("y", bf, rows, 100))
	return p
}

// Every launch of a program of fixed shape matches the oracle on every engine.
func TestFixedProgramsEqualOracle(t *testing.T) {
	programs := []*npu.Program{gemvFFN()}
	for _, rows := range []int{1, 5, 67} {
		programs = append(programs, rmsQKVRope(rows), oFFN(rows), seqFirst(rows), headFirst(rows), headParts(rows))
	}
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		for _, p := range programs {
			if err := p.Err(); err != nil {
				t.Fatal(err)
			}
			t.Run(fmt.Sprintf("%s %v", p.Name, p.Args[0].Shape), func(t *testing.T) { follow(t, d, p) })
		}
	})
}

// follow runs opened(p) and compares every launch with the oracle, which reads the device's own
// results of earlier launches. The shape of p must be fixed.
func follow(t *testing.T, d *Device, p *npu.Program) {
	p = opened(p)
	rng := rand.New(rand.NewPCG(9, 9))
	var args []npu.Buffer
	values := make([][]float64, len(p.Args)) // of each argument so far
	for i, a := range p.Args {
		n := (op.Size{}).Elements(a.Shape)
		values[i] = make([]float64, n)
		var buf npu.Buffer
		switch a.Kind {
		case npu.In, npu.Const:
			values[i] = random(rng, n)
			data := make([]byte, a.Type.Bytes(n))
			encode(data, a.Type, values[i])
			poison(data[:a.Type.Bytes(a.ScratchRows*n/a.Shape[0])])
			if a.Kind == npu.Const {
				buf = constant(t, d, "w", tensors{"w": {Type: a.Type, Shape: a.Shape, Data: data}})
				break
			}
			buf = alloc(t, d, len(data))
			copy(buf.Bytes(), data)
		case npu.Out:
			buf = alloc(t, d, a.Type.Bytes(n))
			poison(buf.Bytes())
		}
		args = append(args, buf)
	}
	if err := d.Submit(context.Background(), []npu.Run{{Exec: loaded(t, d, p), Args: args}}); err != nil {
		t.Fatal(err)
	}
	for _, l := range p.Launches {
		var in []any
		for i, o := range l.Op.Operands() {
			if o.Read {
				var x []float32
				for _, v := range seen(p, l.Args[i], values) {
					x = append(x, float32(*v))
				}
				in = append(in, x)
			}
		}
		want, err := oracle.Compute(context.Background(), l.Op, op.Size{}, in...)
		if err != nil {
			t.Fatalf("%s: %v", l.Name, err)
		}
		to := l.Args[len(l.Args)-1]
		a := p.Args[to.Arg]
		if a.Kind == npu.Const { // scratch rows, which only later launches can read
			rounded := make([]float64, len(want))
			for i, v := range want {
				rounded[i] = float64(v)
			}
			encode(make([]byte, a.Type.Bytes(len(want))), a.Type, rounded)
			for i, v := range seen(p, to, values) {
				*v = rounded[i]
			}
			continue
		}
		values[to.Arg] = decode(t, args[to.Arg].Bytes(), a.Type, len(values[to.Arg]))
		near(t, l.Name, seen(p, to, values), want, a.Type)
	}
}

// seen are the elements of a view, in the order of its rows.
func seen(p *npu.Program, v npu.View, values [][]float64) []*float64 {
	shape, stride := p.Shape(v)
	n := (op.Size{}).Elements(shape)
	width := n
	if len(shape) > 1 {
		width = n / shape[0]
	}
	var list []*float64
	for i := range n {
		list = append(list, &values[v.Arg][v.Offset+i/width*stride+i%width])
	}
	return list
}

// near fails unless got is want but for the rounding of its type and of sums in FP32, which are
// measured by the size of the results.
func near(t *testing.T, name string, got []*float64, want []float32, typ dtype.Type) {
	t.Helper()
	square := 0.0
	for _, v := range want {
		square += float64(v) * float64(v) / float64(len(want))
	}
	for i, w := range want {
		off := math.Abs(*got[i] - float64(w))
		if bound := 2e-5*math.Sqrt(square) + (rounding(typ)+0x1p-20)*math.Abs(float64(w)); !(off <= bound) {
			t.Fatalf("%s: element %d of %d is %g, the oracle has %g (off by %g)", name, i, len(want), *got[i], w, off)
		}
	}
}
