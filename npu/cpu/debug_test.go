package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// opened returns a copy of p whose scratch arguments are outputs, so that tests can read
// intermediate results. Scratch arguments that no launch writes stay scratch.
func opened(p *npu.Program) *npu.Program {
	q := *p
	q.Args = slices.Clone(p.Args)
	for _, l := range p.Launches {
		for i, o := range l.Op.Operands() {
			if a := &q.Args[l.Args[i].Arg]; o.Write && a.Kind == npu.Scratch {
				a.Kind = npu.Out
			}
		}
	}
	return &q
}

// decoder is a decoder layer as a planner makes it: every value between launches in a scratch argument of its own.
func decoder(act, weight, cache dtype.Type, bias, norm bool) *npu.Program {
	const hidden, heads, kvHeads, hd, ffn = 72, 6, 2, 16, 200
	p := npu.NewProgram("layer")
	x, angles := p.In("x", f32, op.Rows, hidden), p.In("angles", f32, op.Rows, hd)
	kc, vc := p.State("kcache", cache, kvHeads, op.Capacity, hd), p.State("vcache", cache, kvHeads, op.Capacity, hd)
	rms := func(name string, x npu.Ref) npu.Ref {
		y := p.Scratch(name, act, op.Rows, hidden)
		p.Launch(name, op.RMSNorm{Rows: op.Rows, Width: hidden, Eps: 1e-5}, x, p.Const(name+".weight", weight, hidden),
			y)
		return y
	}
	linear := func(name string, a npu.Ref, k, n int) npu.Ref {
		y := p.Scratch(name, f32, op.Rows, n)
		p.Launch(name, op.MatMul{M: op.Rows, K: k, N: n, TransB: true}, a, p.Const(name+".weight", weight, n, k), y)
		return y
	}
	h := rms("attn.norm", x)
	project := func(name string, heads int, rotate bool) npu.Ref {
		y := linear(name, h, hidden, heads*hd)
		then := func(step string, o op.Op, more ...npu.Ref) {
			z := p.Scratch(name+step, f32, op.Rows, heads*hd)
			p.Launch(name+step, o, append(append([]npu.Ref{y}, more...), z)...)
			y = z
		}
		if bias {
			then("_bias", op.Add{Rows: op.Rows, Width: heads * hd, Broadcast: true},
				p.Const(name+".bias", weight, heads*hd))
		}
		if norm && rotate {
			then("_norm", op.RMSNorm{Rows: op.Rows, Width: hd, Heads: heads, Eps: 1e-6},
				p.Const(name+"_norm.weight", weight, hd))
		}
		if rotate {
			then("_rope", op.RoPE{Rows: op.Rows, Heads: heads, HeadDim: hd}, angles)
		}
		return y
	}
	q, k, v := project("attn.q", heads, true), project("attn.k", kvHeads, true), project("attn.v", kvHeads, false)
	write := op.KVWrite{Rows: op.Rows, KVHeads: kvHeads, HeadDim: hd}
	p.Launch("attn.k_write", write, k, kc)
	p.Launch("attn.v_write", write, v, vc)
	attn := p.Scratch("attn", act, op.Rows, heads*hd)
	p.Launch("attn.core", op.Attention{Rows: op.Rows, Heads: heads, KVHeads: kvHeads, HeadDim: hd, Cached: true}, q, kc,
		vc, attn)
	add := op.Add{Rows: op.Rows, Width: hidden}
	x1 := p.Scratch("x1", f32, op.Rows, hidden)
	p.Launch("attn.residual", add, linear("attn.o", attn, heads*hd, hidden), x, x1)
	h = rms("ffn.norm", x1)
	gate, up := linear("ffn.gate", h, hidden, ffn), linear("ffn.up", h, hidden, ffn)
	mul := p.Scratch("ffn.act", act, op.Rows, ffn)
	p.Launch("ffn.act", op.SiLUMul{Rows: op.Rows, Width: ffn}, gate, up, mul)
	p.Launch("ffn.residual", add, linear("ffn.down", mul, ffn, hidden), x1, p.Out("y", f32, op.Rows, hidden))
	return p
}

// stack runs p as two layers, in one pass of n rows for each n in rows. It returns the output of
// every pass and the final KV caches.
func stack(t *testing.T, d *Device, p *npu.Program, rows []int) []byte {
	t.Helper()
	const capacity = 64
	rng := rand.New(rand.NewPCG(3, 3))
	e := loaded(t, d, p)
	most := slices.Max(rows)
	var layers [2]npu.Run
	var x [2]npu.Buffer
	for i := range x {
		x[i] = alloc(t, d, 4*72*most)
	}
	angles := alloc(t, d, 4*16*most)
	encode(angles.Bytes(), f32, random(rng, 16*most))
	for l := range layers {
		r := &layers[l]
		r.Name, r.Exec = fmt.Sprintf("layer.%d", l), e
		var state []npu.Buffer
		for _, a := range p.Args {
			n := (op.Size{Rows: most, Capacity: capacity}).Elements(a.Shape)
			var buf npu.Buffer
			switch {
			case a.Name == "x":
				buf = x[l]
			case a.Name == "y":
				buf = x[1-l]
			case a.Name == "angles":
				buf = angles
			case a.Kind == npu.Const:
				values := random(rng, n)
				for i := range values {
					values[i] /= 8
				}
				data := make([]byte, a.Type.Bytes(n))
				encode(data, a.Type, values)
				buf = constant(t, d, "w", tensors{"w": {Type: a.Type, Shape: a.Shape, Data: data}})
			case a.Kind == npu.State:
				state = append(state, alloc(t, d, a.Type.Bytes(n)))
			case a.Kind == npu.Out:
				buf = alloc(t, d, a.Type.Bytes(n))
				poison(buf.Bytes())
			}
			r.Args = append(r.Args, buf)
		}
		r.Segments = []npu.Segment{{State: state}}
	}
	var all []byte
	pos := 0
	for _, n := range rows {
		encode(x[0].Bytes(), f32, random(rng, 72*n))
		for l := range layers {
			s := layers[l].Segments[0]
			layers[l].Segments = []npu.Segment{{Rows: n, Pos: pos, State: s.State}}
		}
		if err := d.Submit(context.Background(), layers[:]); err != nil {
			t.Fatal(err)
		}
		pos += n
		all = append(all, x[0].Bytes()[:4*72*n]...)
	}
	for _, r := range layers {
		for _, s := range r.Segments[0].State {
			all = append(all, s.Bytes()...)
		}
	}
	return all
}

// A program with its scratch arguments turned into outputs computes the same bits as the original.
func TestOpenedProgramsComputeTheSame(t *testing.T) {
	for _, tc := range []struct {
		name               string
		act, weight, cache dtype.Type
		bias, norm         bool
	}{
		{"BF16", bf, bf, bf, false, false}, {"F32 with biases", f32, f32, f32, true, false},
		{"F16 weights, BF16 with norms of q and k", bf, half, half, false, true},
		{"F32 activations, BF16 weights", f32, bf, bf, true, true},
	} {
		p := decoder(tc.act, tc.weight, tc.cache, tc.bias, tc.norm)
		if err := p.Err(); err != nil {
			t.Fatal(err)
		}
		t.Run(tc.name, func(t *testing.T) {
			forEachDevice(t, 2, func(t *testing.T, d *Device) {
				rows := []int{29, 1, 1, 7, 17, 1} // products of few rows and of many
				plain, open := stack(t, d, p, rows), stack(t, d, opened(p), rows)
				if !bytes.Equal(plain, open) {
					t.Error("with its scratch opened the program gives other bits")
				}
				if slices.ContainsFunc(decode(t, plain, f32, 72), func(v float64) bool { return v != v || v == 0 }) {
					t.Error("the output was not computed")
				}
			})
		})
	}
}

// Scratch that is overwritten in place, and written again by later launches, is opened as it is.
func TestOpenedScratchMayBeOverwritten(t *testing.T) {
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		p := block(d, t).Program()
		for _, rows := range []int{1, 40} {
			if plain, open := oneBlock(t, d, p, rows), oneBlock(t, d, opened(p), rows); !bytes.Equal(plain, open) {
				t.Errorf("%d rows: with its scratch opened the program gives other bits", rows)
			}
		}
	})
}

// oneBlock runs the program of [block] once, or its opened form.
func oneBlock(t *testing.T, d *Device, p *npu.Program, rows int) []byte {
	rng := rand.New(rand.NewPCG(4, 4))
	r := npu.Run{Exec: loaded(t, d, p), Segments: []npu.Segment{{Rows: rows}}}
	for _, a := range p.Args {
		n := (op.Size{Rows: rows, Capacity: 48}).Elements(a.Shape)
		var buf npu.Buffer
		if a.Kind != npu.Scratch {
			buf = alloc(t, d, a.Type.Bytes(n))
		}
		if a.Kind == npu.In {
			encode(buf.Bytes(), a.Type, random(rng, n))
		}
		if a.Kind == npu.State {
			r.Segments[0].State = append(r.Segments[0].State, buf)
			buf = nil
		}
		r.Args = append(r.Args, buf)
	}
	if err := d.Submit(context.Background(), []npu.Run{r}); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(r.Args[len(r.Args)-1].Bytes())
}
