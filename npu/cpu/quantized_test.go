package cpu

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/npukit/npukit/internal/defect"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu/internal/kernel"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// quantizedWeight is a Const buffer with a quantised matrix, and its values.
func quantizedWeight(t *testing.T, d *Device, rng *rand.Rand, typ dtype.Type, rows, cols int) (npu.Buffer, []float64) {
	t.Helper()
	data, values := quantized(rng, typ, rows, cols)
	w := make([]float64, len(values))
	for i, v := range values {
		w[i] = float64(v)
	}
	return constant(t, d, "w", tensors{"w": {Type: typ, Shape: []int{rows, cols}, Data: data}}), w
}

// How a product may differ from its reference by more than the roundings of its sums.
type coarseness int

const (
	exact coarseness = iota
	fixed            // activations are brought to 16 bits
	inTwo            // weights are sums of two BF16 numbers
)

// exactProduct is x w transposed in float64, with the sizes of its terms.
type exactProduct struct {
	want  []float64
	terms []float64 // sums of |x w|
	peaks []float64 // sums of |w| times the largest |x| of 32
}

func newExactProduct(o op.MatMul, x, w []float64) exactProduct {
	e := exactProduct{reference(o, [][]float64{x, w}), make([]float64, o.M*o.N), make([]float64, o.M*o.N)}
	largest := make([]float64, o.K/32)
	for m := range o.M {
		row := x[m*o.K:][:o.K]
		clear(largest)
		for i, v := range row {
			largest[i/32] = max(largest[i/32], math.Abs(v))
		}
		for n := range o.N {
			terms, peaks := 0.0, 0.0
			for i, v := range w[n*o.K:][:o.K] {
				terms += math.Abs(v * row[i])
				peaks += math.Abs(v) * largest[i/32]
			}
			e.terms[m*o.N+n], e.peaks[m*o.N+n] = terms, peaks
		}
	}
	return e
}

// allowed returns how far element i of a product may be from its reference.
func (e *exactProduct) allowed(i int, out dtype.Type, c coarseness) float64 {
	limit := e.terms[i]*0x1p-20 + (rounding(out)+0x1p-22)*math.Abs(e.want[i])
	switch c {
	case fixed:
		limit += e.peaks[i] / 65534
	case inTwo:
		limit += e.terms[i] * 0x1p-18
	}
	return limit
}

func TestProductsWithQuantizedWeights(t *testing.T) {
	type shape struct{ m, k, n int }
	shapes := []shape{
		{1, 256, 16}, {1, 2304, 37}, {2, 512, 192}, {3, 256, 5}, {4, 768, 48}, {7, 256, 33},
		{16, 512, 64}, {17, 256, 70}, {40, 2560, 130}, {70, 2816, 40}, {150, 768, 50}, {270, 2304, 40},
	}
	// References are the same for all kernels, since the seed decides the values.
	type key struct {
		shape
		weights, activations dtype.Type
		rounded              bool
	}
	exacts := map[key]exactProduct{}
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		for _, f := range kernel.Forms {
			for _, s := range shapes {
				for _, types := range [][2]dtype.Type{{bf, f32}, {bf, bf}, {f32, f32}} {
					name := fmt.Sprintf("%v/%dx%dx%d/%v-%v", f.Type, s.m, s.k, s.n, types[0], types[1])
					t.Run(name, func(t *testing.T) {
						rng := rand.New(rand.NewPCG(uint64(s.m), uint64(s.n)))
						w, values := quantizedWeight(t, d, rng, f.Type, s.n, s.k)
						p := npu.NewProgram("product")
						o := op.MatMul{M: s.m, K: s.k, N: s.n, TransB: true}
						p.Launch("y", o, p.In("x", types[0], s.m, s.k), p.Const("w", f.Type, s.n, s.k),
							p.Out("y", types[1], s.m, s.n))
						x := random(rng, s.m*s.k)
						in, out := alloc(t, d, types[0].Bytes(len(x))), alloc(t, d, types[1].Bytes(s.m*s.n))
						encode(in.Bytes(), types[0], x)
						submit(t, d, p, in, w, out)
						if w.(*buffer).from.mem.m != nil {
							t.Error("the weights were expanded")
						}
						coarse, k := exact, key{s, f.Type, types[0], false}
						choice := d.engine.Select(kernel.Product{A: kernel.Types[types[0]], W: kernel.Q8_0,
							M: int64(s.m), K: int64(s.k), Transposed: true})
						switch {
						case choice.Rounding == kernel.RoundsActivations && types[1] == bf:
							coarse = fixed
						case choice.Rounding == kernel.RoundsWeights,
							choice.Rounding == kernel.SplitsWeights && types[1] == bf:
							k.rounded = true
						case choice.Rounding == kernel.SplitsWeights:
							coarse = inTwo
						}
						e, ok := exacts[k]
						if !ok {
							if k.rounded {
								encode(make([]byte, bf.Bytes(len(values))), bf, values) // rounds them
							}
							e = newExactProduct(o, x, values)
							exacts[k] = e
						}
						for i, got := range decode(t, out.Bytes(), types[1], s.m*s.n) {
							if limit := e.allowed(i, types[1], coarse); !(math.Abs(got-e.want[i]) <= limit) {
								t.Fatalf("row %d, column %d is %g, want %g within %g", i/s.n, i%s.n, got, e.want[i],
									limit)
							}
						}
					})
				}
			}
		}
	})
}

// submit runs a program once.
func submit(t *testing.T, d *Device, p *npu.Program, args ...npu.Buffer) {
	t.Helper()
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	e, err := d.Load(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Submit(context.Background(), []npu.Run{{Exec: e, Args: args}}); err != nil {
		t.Fatal(err)
	}
}

// A table is read row by row, and every value is the one that the file's blocks stand for.
func TestEmbeddingsOfQuantizedTablesAreExact(t *testing.T) {
	const rows, cols = 53, 512
	ids := []int32{0, 52, 17, 15, 16, 31}
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		for _, f := range kernel.Forms {
			for _, typ := range []dtype.Type{f32, bf} {
				rng := rand.New(rand.NewPCG(7, 8))
				w, values := quantizedWeight(t, d, rng, f.Type, rows, cols)
				p := npu.NewProgram("embed")
				p.Launch("y", op.Embed{Rows: len(ids), Vocab: rows, Width: cols}, p.In("ids", dtype.I32, len(ids)),
					p.Const("w", f.Type, rows, cols),
					p.Out("y", typ, len(ids), cols))
				in, out := alloc(t, d, 4*len(ids)), alloc(t, d, typ.Bytes(len(ids)*cols))
				copy(dtype.Int32s(in.Bytes()), ids)
				submit(t, d, p, in, w, out)
				var want []float64
				for _, id := range ids {
					want = append(want, values[int(id)*cols:][:cols]...)
				}
				b := make([]byte, typ.Bytes(len(want)))
				encode(b, typ, want)
				if got := decode(t, out.Bytes(), typ, len(want)); !slices.Equal(got, want) {
					t.Errorf("%v as %v: rows differ from the file's", f.Type, typ)
				}
			}
		}
	})
}

// Views that are no whole groups of rows, weights that are not transposed and programs that name
// BF16 get the weight as BF16.
func TestQuantizedWeightsAreBF16WhereNoKernelReadsBlocks(t *testing.T) {
	const k, n, m = 256, 96, 3
	square := op.MatMul{M: m, K: k, N: 32, TransB: true}
	for _, tc := range []struct {
		name  string
		typ   dtype.Type
		o     op.MatMul
		view  func(w npu.Ref) npu.Ref
		index func(column, i int) int // of the weight that goes with term i of an output
		stays bool                    // in groups
	}{
		{"rows from a group's first on", dtype.Q8_0, square, func(w npu.Ref) npu.Ref { return w.Rows(16, 32) },
			func(column, i int) int { return (16+column)*k + i }, true},
		{"rows from within a group", dtype.Q8_0, square, func(w npu.Ref) npu.Ref { return w.Rows(5, 32) },
			func(column, i int) int { return (5+column)*k + i }, false},
		{"every third row", dtype.Q8_0, square, func(w npu.Ref) npu.Ref { return w.Every(1, 3) },
			func(column, i int) int { return (1+3*column)*k + i }, false},
		{"not transposed", dtype.Q8_0, op.MatMul{M: m, K: n, N: k}, func(w npu.Ref) npu.Ref { return w },
			func(column, i int) int { return i*k + column }, false},
		{"named BF16", bf, op.MatMul{M: m, K: k, N: n, TransB: true}, func(w npu.Ref) npu.Ref { return w },
			func(column, i int) int { return column*k + i }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			forEachDevice(t, 2, func(t *testing.T, d *Device) {
				rng := rand.New(rand.NewPCG(3, 9))
				w, values := quantizedWeight(t, d, rng, dtype.Q8_0, n, k)
				o := tc.o
				p := npu.NewProgram("product")
				p.Launch("y", o, p.In("x", bf, m, o.K), tc.view(p.Const("w", tc.typ, n, k)), p.Out("y", f32, m, o.N))
				x := random(rng, m*o.K)
				in, out := alloc(t, d, 2*len(x)), alloc(t, d, 4*m*o.N)
				encode(in.Bytes(), bf, x)
				submit(t, d, p, in, w, out)
				if stays := w.(*buffer).from.mem.m == nil; stays != tc.stays {
					t.Errorf("the weight stays in groups: %v, want %v", stays, tc.stays)
				}
				for i, got := range decode(t, out.Bytes(), f32, m*o.N) {
					want, size := 0.0, 0.0
					for j := range o.K {
						v := x[i/o.N*o.K+j] * values[tc.index(i%o.N, j)]
						want, size = want+v, size+math.Abs(v)
					}
					if !(math.Abs(got-want) <= size*0x1p-8) {
						t.Fatalf("element %d is %g, want %g", i, got, want)
					}
				}
			})
		})
	}
}

// Readers see a quantized weight as BF16 in every representation.
func TestBytesOfAQuantizedWeightAreBF16(t *testing.T) {
	d := open(t, &Options{Threads: 1, Kernels: "go"})
	w, values := quantizedWeight(t, d, rand.New(rand.NewPCG(1, 2)), dtype.Q4_K, 3, 512)
	if w.Len() != 2*len(values) {
		t.Errorf("it has %d bytes, want %d", w.Len(), 2*len(values))
	}
	if err := w.Sync(npu.ToDevice, 0, w.Len()); err != nil {
		t.Error(err)
	}
	for i, h := range dtype.BFloat16s(w.Bytes()) {
		if want := dtype.FromFloat32(float32(values[i])); h != want {
			t.Fatalf("element %d is %v, want %v", i, h.Float32(), want.Float32())
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if b := w.Bytes(); b != nil {
		t.Errorf("it has %d bytes after Close", len(b))
	}
}

// One activation that is no number makes its row NaN and no other; tiny ones count as zero rather
// than overflow a scale.
func TestFixedPointActivationsAtTheEdges(t *testing.T) {
	const k, n = 512, 40
	inf := math.Inf(1)
	forEachDevice(t, 1, func(t *testing.T, d *Device) {
		rng := rand.New(rand.NewPCG(4, 4))
		for _, m := range []int{1, 5} {
			for _, tc := range []struct {
				name  string
				value float64
				want  func(got, healthy float64) bool
			}{
				{"NaN", math.NaN(), func(got, _ float64) bool { return math.IsNaN(got) }},
				{"infinity", inf, func(got, _ float64) bool { return math.IsNaN(got) || math.IsInf(got, 0) }},
				{"minus infinity", -inf, func(got, _ float64) bool { return math.IsNaN(got) || math.IsInf(got, 0) }},
				{"subnormal", 1e-39, func(got, healthy float64) bool { return math.Abs(got-healthy) <= 1e-3 }},
				{"largest", 3e38, func(got, _ float64) bool { return !math.IsNaN(got) && !math.IsInf(got, 0) }},
			} {
				w, _ := quantizedWeight(t, d, rng, dtype.Q5_0, n, k)
				p := npu.NewProgram("product")
				p.Launch("y", op.MatMul{M: m, K: k, N: n, TransB: true}, p.In("x", bf, m, k),
					p.Const("w", dtype.Q5_0, n, k), p.Out("y", f32, m, n))
				x := make([]float64, m*k)
				for i := range x {
					x[i] = float64(i%7) - 3
					if i/32%2 == 1 { // blocks of zeros, one of which gets the value
						x[i] = 0
					}
				}
				in, out := alloc(t, d, 2*len(x)), alloc(t, d, 4*m*n)
				encode(in.Bytes(), bf, x)
				submit(t, d, p, in, w, out)
				healthy := decode(t, out.Bytes(), f32, m*n)
				x[32+5] = tc.value
				encode(in.Bytes(), bf, x)
				submit(t, d, p, in, w, out)
				for i, got := range decode(t, out.Bytes(), f32, m*n) {
					if i < n && !tc.want(got, healthy[i]) || i >= n && got != healthy[i] {
						t.Fatalf("%s, %d rows: element %d is %g, it was %g", tc.name, m, i, got, healthy[i])
					}
				}
			}
		}
	})
}

// A row's sums are the same however many rows are multiplied at once, so that sessions in a batch
// do not see each other.
func TestFixedPointRowsDoNotDependOnTheirNumber(t *testing.T) {
	const k, n, rows = 768, 72, 16
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		for _, f := range kernel.Forms {
			rng := rand.New(rand.NewPCG(8, 1))
			w, _ := quantizedWeight(t, d, rng, f.Type, n, k)
			x := random(rng, rows*k)
			product := func(m int) []float64 {
				p := npu.NewProgram("product")
				p.Launch("y", op.MatMul{M: m, K: k, N: n, TransB: true}, p.In("x", bf, m, k),
					p.Const("w", f.Type, n, k), p.Out("y", f32, m, n))
				in, out := alloc(t, d, 2*m*k), alloc(t, d, 4*m*n)
				encode(in.Bytes(), bf, x[:m*k])
				submit(t, d, p, in, w, out)
				return decode(t, out.Bytes(), f32, m*n)
			}
			most := fewRows(d.engine)
			all := product(most)
			for m := 1; m < most; m++ {
				if got := product(m); !slices.Equal(got, all[:m*n]) {
					t.Errorf("%v: %d rows of %d differ", f.Type, m, most)
				}
			}
		}
	})
}

// VNNI's multiply-add of 16-bit numbers makes the sums of whole numbers that AVX-512 makes without it, to the bit.
func TestVNNIGivesTheSumsOfAVX512(t *testing.T) {
	vnni, err := Open(&Options{Threads: 2, Kernels: "vnni"})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { vnni.Close() })
	plain := open(t, &Options{Threads: 2, Kernels: "avx512"})
	for _, typ := range groupedTypes() {
		for _, m := range []int{1, 3, 16} {
			const k, n = 512, 37
			var results [2][]byte
			for i, d := range []*Device{vnni, plain} {
				rng := rand.New(rand.NewPCG(3, uint64(m)))
				w, _ := quantizedWeight(t, d, rng, typ, n, k)
				x, y := alloc(t, d, 2*m*k), alloc(t, d, 4*m*n)
				encode(x.Bytes(), bf, random(rng, m*k))
				p := npu.NewProgram("product")
				p.Launch("product", op.MatMul{M: m, K: k, N: n, TransB: true}, p.In("x", bf, m, k),
					p.Const("w", typ, n, k), p.Out("y", f32, m, n))
				submit(t, d, p, x, w, y)
				results[i] = slices.Clone(y.Bytes())
			}
			if !slices.Equal(results[0], results[1]) {
				t.Errorf("%v, %d rows: vnni differs from avx512", typ, m)
			}
		}
	}
}

// Products with the same activations reuse the converted activations only if their weight types
// need the same format.
func TestFixedPointActivationsArePreparedForEachType(t *testing.T) {
	const k, n = 256, 16
	forEachDevice(t, 1, func(t *testing.T, d *Device) {
		rng := rand.New(rand.NewPCG(2, 7))
		p := npu.NewProgram("products")
		x := p.In("x", bf, 1, k)
		args := []npu.Buffer{alloc(t, d, 2*k)}
		activations := random(rng, k)
		encode(args[0].Bytes(), bf, activations)
		var want [][]float64
		types := []dtype.Type{dtype.Q4_0, dtype.Q6_K, bf, dtype.Q8_0, dtype.Q4_1, dtype.Q4_K, dtype.Q6_K, dtype.Q4_0}
		for i, typ := range types {
			o := op.MatMul{M: 1, K: k, N: n, TransB: true}
			p.Launch(fmt.Sprint(i), o, x, p.Const(fmt.Sprint("w", i), typ, n, k), p.Out(fmt.Sprint("y", i), f32, 1, n))
			var w npu.Buffer
			var values []float64
			if typ == bf {
				values = random(rng, n*k)
				data := make([]byte, 2*n*k)
				encode(data, bf, values)
				w = constant(t, d, "w", tensors{"w": {Type: bf, Shape: []int{n, k}, Data: data}})
			} else {
				w, values = quantizedWeight(t, d, rng, typ, n, k)
			}
			args = append(args, w, alloc(t, d, 4*n))
			want = append(want, reference(o, [][]float64{activations, values}))
		}
		submit(t, d, p, args...)
		for i := range types {
			for j, got := range decode(t, args[2+2*i].Bytes(), f32, n) {
				if d := math.Abs(got - want[i][j]); !(d <= 0.01) {
					t.Errorf("product %d with %v: output %d is %g, want %g", i, types[i], j, got, want[i][j])
				}
			}
		}
	})
}

// Defects of products and embeddings also apply to quantized weights, and other launches do not
// change.
func TestDefectsOfQuantizedWeights(t *testing.T) {
	const k, n, rows = 256, 256, 20
	p := npu.NewProgram("layer")
	ids, h := p.In("ids", dtype.I32, rows), p.Out("h", bf, rows, k)
	p.Launch("embed", op.Embed{Rows: rows, Vocab: n, Width: k}, ids, p.Const("table", dtype.Q8_0, n, k), h)
	product := op.MatMul{M: rows, K: k, N: n, TransB: true}
	taps := []string{"attn.q", "attn.k", "attn.v", "attn.o", "ffn.gate", "ffn.up", "ffn.down"}
	for _, tap := range taps {
		p.Launch(tap, product, h, p.Const(tap+".weight", dtype.Q4_1, n, k), p.Out(tap, f32, rows, n))
	}
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		rng := rand.New(rand.NewPCG(6, 6))
		index := alloc(t, d, 4*rows)
		for i := range rows {
			dtype.Int32s(index.Bytes())[i] = int32(rng.IntN(n))
		}
		table, _ := quantizedWeight(t, d, rng, dtype.Q8_0, n, k)
		layers := [2][]npu.Buffer{}
		for l := range layers {
			layers[l] = []npu.Buffer{index, alloc(t, d, 2*rows*k), table}
			for range taps {
				w, _ := quantizedWeight(t, d, rng, dtype.Q4_1, n, k)
				layers[l] = append(layers[l], w, alloc(t, d, 4*rows*n))
			}
		}
		dev := defect.Wrap(d)
		run := func(ctx context.Context) (outputs map[string][]byte) {
			e, err := dev.Load(ctx, p)
			if err != nil {
				t.Fatal(err)
			}
			outputs = map[string][]byte{}
			for l, args := range layers {
				name := fmt.Sprintf("layer.%d", l)
				if err := dev.Submit(ctx, []npu.Run{{Name: name, Exec: e, Args: args}}); err != nil {
					t.Fatal(err)
				}
				for i, tap := range taps {
					outputs[name+"."+tap] = slices.Clone(args[4+2*i].Bytes())
				}
			}
			return outputs
		}
		healthy := run(context.Background())
		for _, wrong := range defect.All() {
			if wrong.Op != "MatMul" || !slices.ContainsFunc(taps,
				func(tap string) bool { return wrong.In("layer.1." + tap) }) {
				continue
			}
			seen := false
			for tap, got := range run(defect.With(context.Background(), wrong)) {
				same := slices.Equal(got, healthy[tap])
				seen = seen || !same
				if !same && !wrong.In(tap) {
					t.Errorf("%s: %s changed too", wrong.Name, tap)
				}
			}
			if !seen {
				t.Errorf("%s: nothing changed", wrong.Name)
			}
		}
	})
}
