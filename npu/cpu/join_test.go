package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// goesOn is a use of the result of a product of n columns. build adds the launches, of which
// multiply adds the product; "next" is the launch after the product.
type goesOn struct {
	name  string
	shape []int // of the other input
	build func(p *npu.Program, multiply func() npu.Ref, other, y npu.Ref)
}

func waysOn(n int) []goesOn {
	rows := []int{op.Rows, n}
	add := op.Add{Rows: op.Rows, Width: n}
	bias := op.Add{Rows: op.Rows, Width: n, Broadcast: true}
	return []goesOn{
		{"gated", rows, func(p *npu.Program, multiply func() npu.Ref, other, y npu.Ref) {
			x := multiply()
			p.Launch("next", op.SiLUMul{Rows: op.Rows, Width: n}, other, x, y)
		}},
		{"plus", rows, func(p *npu.Program, multiply func() npu.Ref, other, y npu.Ref) {
			p.Launch("next", add, multiply(), other, y)
		}},
		{"added to", rows, func(p *npu.Program, multiply func() npu.Ref, other, y npu.Ref) {
			p.Launch("next", add, other, multiply(), y)
		}},
		{"plus in place", rows, func(p *npu.Program, multiply func() npu.Ref, other, y npu.Ref) {
			sum := p.Scratch("sum", f32, op.Rows, n)
			p.Launch("first", op.Cast{Rows: op.Rows, Width: n}, other, sum)
			p.Launch("next", add, multiply(), sum, sum)
			p.Launch("last", op.Cast{Rows: op.Rows, Width: n}, sum, y)
		}},
		{"with a bias", []int{n}, func(p *npu.Program, multiply func() npu.Ref, other, y npu.Ref) {
			p.Launch("next", bias, multiply(), other, y)
		}},
	}
}

// runProduct runs a program with arguments "x", "w" (given), "other" and "y", and gives y's bytes
// and whether the launches "product" and "next" were one
// command. With open the product's own result is read, "result".
func runProduct(t *testing.T, d *Device, p *npu.Program, w npu.Buffer, rows int, open bool) (y []byte, joined bool) {
	t.Helper()
	rng := rand.New(rand.NewPCG(21, uint64(rows)))
	r := npu.Run{Exec: loaded(t, d, p), Segments: []npu.Segment{{Rows: rows}}}
	var out npu.Buffer
	for _, a := range p.Args {
		var buf npu.Buffer
		n := (op.Size{Rows: rows}).Elements(a.Shape)
		switch {
		case a.Name == "w":
			buf = w
		case a.Name != "result" || open:
			buf = alloc(t, d, a.Type.Bytes(n))
		}
		switch a.Name {
		case "x", "other":
			encode(buf.Bytes(), a.Type, random(rng, n))
		case "y":
			out = buf
		}
		r.Args = append(r.Args, buf)
	}
	ctx := npu.WithTracer(context.Background(), func(s npu.Span) {
		joined = joined ||
			strings.HasSuffix(s.Name, "product+next")
	})
	if err := d.Submit(ctx, []npu.Run{r}); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(out.Bytes()), joined
}

// A product and the launch that goes on with its result give the same bits as one command as they
// do as two: for any way to multiply, and to store.
func TestJoinedProductsAreTheSameToTheBit(t *testing.T) {
	shapes := []struct{ rows, k, n int }{{1, 256, 67}, {3, 512, 40}, {16, 256, 83}, {17, 512, 97}, {40, 256, 64},
		{260, 2304, 19}}
	types := [][2]dtype.Type{{bf, bf}, {bf, f32}, {f32, bf}} // of activations and results
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		if _, ok := d.engine.(bf12Engine); ok {
			d.info.Compressed = []dtype.Type{bf}
		}
		for turn, s := range shapes {
			for name, w := range weightsOfEachKind(t, d, s.n, s.k) {
				for i, way := range waysOn(s.n) {
					types := types[(turn+i)%len(types)]
					t.Run(fmt.Sprintf("%s/%dx%dx%d/%v-%v/%s", name, s.rows, s.k, s.n, types[0], types[1], way.name),
						func(t *testing.T) {
							p := npu.NewProgram("joined")
							x, wt := p.In("x", types[0], op.Rows, s.k), p.Const("w", w.typ, s.n, s.k)
							other, y := p.In("other", f32, way.shape...), p.Out("y", types[1], op.Rows, s.n)
							result := p.Scratch("result", f32, op.Rows, s.n)
							way.build(p, func() npu.Ref {
								p.Launch("product", op.MatMul{M: op.Rows, K: s.k, N: s.n, TransB: true}, x, wt, result)
								return result
							}, other, y)
							one, joined := runProduct(t, d, p, w.buf, s.rows, false)
							two, apart := runProduct(t, d, p, w.buf, s.rows, true)
							if !joined || apart {
								t.Errorf("one command: %v, and %v when the product's result is looked at",
									joined, apart)
							}
							if !bytes.Equal(one, two) {
								t.Error("one command gives other bits than two")
							}
						})
				}
			}
		}
	})
}

type kindOfWeight struct {
	typ dtype.Type
	buf npu.Buffer
}

// weightsOfEachKind are matrices as products read them: in place, compressed, and in groups.
func weightsOfEachKind(t *testing.T, d *Device, n, k int) map[string]kindOfWeight {
	kinds := make(map[string]kindOfWeight)
	rng := rand.New(rand.NewPCG(3, 4))
	for _, typ := range []dtype.Type{f32, half, bf} {
		buf := alloc(t, d, typ.Bytes(n*k))
		encode(buf.Bytes(), typ, random(rng, n*k))
		kinds[typ.String()] = kindOfWeight{typ, buf}
	}
	x := make([]dtype.BFloat16, n*k)
	for i := range x {
		x[i] = dtype.FromFloat32(float32(rng.NormFloat64()))
	}
	kinds["BF16 as the device keeps it"] = kindOfWeight{bf, constant(t, d, "w", sourceOf(x, n, k))}
	for _, typ := range some(t, "quantised weights", []dtype.Type{dtype.Q4_1, dtype.Q6_K, dtype.Q8_0, dtype.Q4_K}) {
		buf, _ := quantizedWeight(t, d, rng, typ, n, k)
		kinds[typ.String()] = kindOfWeight{typ, buf}
	}
	return kinds
}

// Launches stay two commands where one would be wrong.
func TestProductsThatAreNotJoined(t *testing.T) {
	const k, n, rows = 48, 48, 20
	m := op.MatMul{M: rows, K: k, N: n, TransB: true}
	add, copied := op.Add{Rows: rows, Width: n}, op.Cast{Rows: rows, Width: n}
	for name, make := range map[string]func(p *npu.Program, x, w, other, y npu.Ref){
		"the result is read again": func(p *npu.Program, x, w, other, y npu.Ref) {
			result := p.Scratch("result", f32, rows, n)
			p.Launch("product", m, x, w, result)
			sum := p.Scratch("sum", f32, rows, n)
			p.Launch("next", add, result, other, sum)
			p.Launch("last", add, result, sum, y)
		},
		"the result is added to itself": func(p *npu.Program, x, w, other, y npu.Ref) {
			result := p.Scratch("result", f32, rows, n)
			p.Launch("product", m, x, w, result)
			p.Launch("next", add, result, result, y)
		},
		"the result is rounded": func(p *npu.Program, x, w, other, y npu.Ref) {
			result := p.Scratch("result", bf, rows, n)
			p.Launch("product", m, x, w, result)
			p.Launch("next", add, result, other, y)
		},
		"part of it is added": func(p *npu.Program, x, w, other, y npu.Ref) {
			result := p.Scratch("result", f32, rows, 2*n)
			p.Launch("product", m, x, w, result.Cols(n, n))
			p.Launch("next", add, result.Cols(n, n), other, y)
		},
		"the output lies over the activations": func(p *npu.Program, x, w, other, y npu.Ref) {
			result, over := p.Scratch("result", f32, rows, n), p.Scratch("over", f32, rows, n)
			p.Launch("first", copied, x, over)
			p.Launch("product", m, over, w, result)
			p.Launch("next", add, result, other, over)
			p.Launch("last", add, over, other, y)
		},
		"the result is the gate": func(p *npu.Program, x, w, other, y npu.Ref) {
			result := p.Scratch("result", f32, rows, n)
			p.Launch("product", m, x, w, result)
			p.Launch("next", op.SiLUMul{Rows: rows, Width: n}, result, other, y)
		},
	} {
		forEachDevice(t, 2, func(t *testing.T, d *Device) {
			p := npu.NewProgram("apart")
			x, w := p.In("x", f32, rows, k), p.Const("w", f32, n, k)
			other, y := p.In("other", f32, rows, n), p.Out("y", f32, rows, n)
			make(p, x, w, other, y)
			weight := alloc(t, d, f32.Bytes(n*k))
			encode(weight.Bytes(), f32, random(rand.New(rand.NewPCG(3, 4)), n*k))
			one, joined := runProduct(t, d, p, weight, rows, false)
			two, _ := runProduct(t, d, p, weight, rows, true)
			if joined {
				t.Errorf("%s: product and next are one command", name)
			}
			if !bytes.Equal(one, two) {
				t.Errorf("%s: other bits when the result is looked at", name)
			}
		})
	}
}

// The scratch rows of a Const are no argument of their own, and hold a product's result like any other memory.
func TestProductsInScratchRowsAreNotJoined(t *testing.T) {
	const k, n = 48, 32
	product, sum := op.MatMul{M: 1, K: k, N: n, TransB: true}, op.Add{Rows: 1, Width: n}
	p := npu.NewProgram("packed")
	x, w := p.In("x", f32, 1, k), p.In("w", f32, n, k)
	packed, y := p.Const("packed", f32, 2, n).WithScratchRows(1), p.Out("y", f32, 1, n)
	p.Launch("product", product, x, w, packed.Rows(0, 1))
	p.Launch("sum", sum, packed.Rows(0, 1), packed.Rows(1, 1), y)
	rng := rand.New(rand.NewPCG(8, 9))
	xs, ws, bias, data := random(rng, k), random(rng, n*k), random(rng, n), make([]byte, 2*4*n)
	encode(data[4*n:], f32, bias)
	forEachDevice(t, 1, func(t *testing.T, d *Device) {
		in, weights, out := alloc(t, d, 4*k), alloc(t, d, 4*n*k), alloc(t, d, 4*n)
		encode(in.Bytes(), f32, xs)
		encode(weights.Bytes(), f32, ws)
		submit(t, d, p, in, weights, constant(t, d, "w", tensors{"w": {Type: f32, Shape: []int{2, n}, Data: data}}),
			out)
		want := reference(sum, [][]float64{reference(product, [][]float64{xs, ws}), bias})
		compare(t, decode(t, out.Bytes(), f32, n), want, f32, k)
	})
}
