package cpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu/internal/kernel"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// forEachBF12 runs f on a device of each kind that can read BF12, which need not be one that does
// so when it is left alone.
func forEachBF12(t *testing.T, f func(t *testing.T, d *Device)) {
	none := true
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		if _, ok := d.engine.(bf12Engine); !ok {
			t.Skip("these kernels read no BF12")
		}
		none = false
		d.info.Compressed = []dtype.Type{bf}
		f(t, d)
	})
	if none {
		t.Log("built without kernels that read BF12")
	}
}

// hardToPress is a matrix of BF16 with everything that exponents may be: bells of different widths
// from row to row, zeros of both signs, subnormals,
// infinities, NaNs, rows of nothing but zeros, and a few values far from all others.
func hardToPress(rng *rand.Rand, rows, cols int) []dtype.BFloat16 {
	x := make([]dtype.BFloat16, rows*cols)
	for r := range rows {
		width := float32(1) / float32(int64(1)<<rng.IntN(40))
		for i := range cols {
			x[r*cols+i] = dtype.FromFloat32(width * float32(rng.NormFloat64()))
		}
		row := x[r*cols:][:cols]
		switch r % 7 {
		case 1:
			clear(row)
		case 2:
			for _, odd := range []dtype.BFloat16{0x0000, 0x8000, 0x0001, 0x807f, 0x7f80, 0xff80, 0x7fc1, 0x0080,
				0x7f7f} {
				row[rng.IntN(cols)] = odd
			}
		case 3:
			row[cols-1], row[0] = 0x7b00, 0x8001 // the first and the last place
		}
	}
	return x
}

func sourceOf(x []dtype.BFloat16, rows, cols int) npu.Tensors {
	return tensors{"w": {Type: bf, Shape: []int{rows, cols}, Data: dtype.AsBytes(x)}}
}

// place is where npk.h says that a number of a block lies: in which unit, in which of its vectors, where in that.
func (w *bf12Weight) place(row, col int) (unit, number, lane int) {
	if w.Code == kernel.BF12x16 {
		return col / kernel.Block16Columns, col % kernel.Block16Columns / 2, row*2 + col%2
	}
	return col / kernel.Block4Columns, row, col % kernel.Block4Columns
}

// rowOf reads a row of BF12 as npk.h says that it lies.
func (w *bf12Weight) rowOf(r int) []dtype.BFloat16 {
	g, row := r/w.Group, r%w.Group
	codes := w.codes(g)
	base := w.bases(g)[row]
	x := make([]dtype.BFloat16, w.Cols)
	for i := range x {
		unit, number, lane := w.place(row, i)
		words := codes[unit*kernel.BF12Unit/2+lane:]
		bits := words[number%3*32] & 0x87ff // sign, code and mantissa
		if number == 3 {
			a, b, c := words[0]>>11&15, words[32]>>11&15, words[2*32]>>11&15
			bits = a>>3<<15 | b<<7 | c<<3 | a&7
		}
		if w.Head.Zeros == 0 || bits>>7&15 != 0 {
			bits += uint16(base) << 7
		}
		x[i] = dtype.BFloat16(bits)
	}
	for _, e := range w.escapesOf(g) {
		if at := int(e >> 8); w.Code == kernel.BF12x16 && at%kernel.Block16Rows == row {
			x[at/kernel.Block16Rows] = x[at/kernel.Block16Rows]&0x807f | dtype.BFloat16(e&255)<<7
		}
		if at := int(e >> 16); w.Code == kernel.BF12x4 &&
			at%(kernel.Block4Rows*kernel.Block4Columns)/kernel.Block4Columns == row {
			col := at/(kernel.Block4Rows*kernel.Block4Columns)*kernel.Block4Columns + at%kernel.Block4Columns
			x[col] = dtype.BFloat16(e)
		}
	}
	return x
}

// codes are those of a block.
func (w *bf12Weight) codes(g int) []uint16 {
	head := w.HeaderBytes()
	return unsafe.Slice((*uint16)(unsafe.Add(w.Head.Codes, g*w.BlockBytes()+head)), (w.BlockBytes()-head)/2)
}

// bases are those of a block.
func (w *bf12Weight) bases(g int) []uint8 {
	at := kernel.Block4Bases
	if w.Code == kernel.BF12x16 {
		at = kernel.Block16Bases
	}
	return unsafe.Slice((*uint8)(unsafe.Add(unsafe.Pointer(w.FirstEscape(g)), at)), w.Group)
}

// escapesOf are those of a block.
func (w *bf12Weight) escapesOf(g int) []uint32 {
	first := w.FirstEscape(g)
	if w.Code == kernel.BF12x4 {
		return kernel.Words(w.list.m)[*first:*w.FirstEscape(g + 1)]
	}
	head := unsafe.Slice(first, w.HeaderBytes()/4)
	n, here := head[1], head[(kernel.Block16Bases+kernel.Block16Rows)/4:]
	if int(n) <= len(here) {
		return here[:n]
	}
	return kernel.Words(w.list.m)[*first:][:n]
}

// listed is how many escapes a matrix has.
func (w *bf12Weight) listed() int { return len(kernel.Words(w.list.m)) }

func TestBF12LosesNothing(t *testing.T) {
	forEachBF12(t, func(t *testing.T, d *Device) {
		for _, shape := range [][2]int{{1, 32}, {3, 64}, {4, 96}, {81, 2304}, {301, 4096},
			{5, 16384}} {
			rows, cols := shape[0], shape[1]
			x := hardToPress(rand.New(rand.NewPCG(12, uint64(cols))), rows, cols)
			w := constant(t, d, "w", sourceOf(x, rows, cols)).(*buffer).bf12
			if w == nil {
				t.Fatalf("%v has too many escapes", shape)
			}
			for r := range rows {
				if !slices.Equal(w.rowOf(r), x[r*cols:][:cols]) {
					t.Fatalf("%v: row %d is not what it was", shape, r)
				}
			}
		}
	})
}

// A row decodes to its exact values for every pair of exponents. A weight is an escape if no base
// covers both exponents.
func TestBF12OfEveryExponent(t *testing.T) {
	const rows, cols = 64, 32 // as many escapes as any matrix may have
	forEachBF12(t, func(t *testing.T, d *Device) {
		rng := rand.New(rand.NewPCG(12, 10))
		x := make([]dtype.BFloat16, rows*cols)
		for most := range 256 {
			for first := 0; first < 256; first += rows {
				for zeros := range int64(2) {
					escapes := 0
					for i := range x {
						x[i] = dtype.BFloat16(rng.Uint32())&0x807f | dtype.BFloat16(most)<<7
					}
					for r := range rows {
						one := first + r
						i := r*cols + rng.IntN(cols)
						x[i] = x[i]&0x807f | dtype.BFloat16(one)<<7
						if within := max(most-one, one-most) < 16-int(zeros); !within &&
							(zeros == 0 || most != 0 && one != 0) {
							escapes++
						}
					}
					w, err := tryBF12(context.Background(), 1, new(weightStore), d.engine.(bf12Engine),
						dtype.AsBytes(x), rows, cols, zeros)
					if err != nil || w == nil || w.listed() != escapes {
						t.Fatalf("exponents %d to %d among %d, zeros %d: %v, %v, want %d escapes", first, first+rows-1,
							most, zeros, w, err, escapes)
					}
					for r := range rows {
						if !slices.Equal(w.rowOf(r), x[r*cols:][:cols]) {
							t.Fatalf("exponent %d among %d, zeros %d: the row is not what it was", first+r, most, zeros)
						}
					}
					w.free()
				}
			}
		}
	})
}

// productOf is m rows of activations, zeros behind the first, times a view of n rows of a weight of k columns, in FP32.
func productOf(t *testing.T, d *Device, act dtype.Type, first []float64, m int, weights []dtype.BFloat16, k, n int,
	view func(npu.Ref) npu.Ref) []byte {
	t.Helper()
	rows := len(weights) / k
	p := npu.NewProgram("product")
	p.Launch("y", op.MatMul{M: m, K: k, N: n, TransB: true}, p.In("x", act, m, k), view(p.Const("w", bf, rows, k)),
		p.Out("y", f32, m, n))
	in, out := alloc(t, d, act.Bytes(m*k)), alloc(t, d, 4*m*n)
	encode(in.Bytes(), act, append(slices.Clone(first), make([]float64, m*k-len(first))...))
	submit(t, d, p, in, constant(t, d, "w", sourceOf(weights, rows, k)), out)
	return out.Bytes()
}

// orderedRows is how many rows of BF16 in place have sums in the order of m rows of BF12: beside
// strips that is the matrix unit's, which those in place have from 17 rows on.
func orderedRows(d *Device, act dtype.Type, m int) int {
	if d.engine.(bf12Engine).BF12Code() == kernel.BF12x16 && act == bf {
		return max(m, 17)
	}
	return m
}

// Zeros and subnormal numbers are not escapes if there are many of them, so quantized and pruned
// weights compress too. Products with them do not change.
func TestZerosCompress(t *testing.T) {
	const rows, cols = 40, 1024
	forEachBF12(t, func(t *testing.T, d *Device) {
		rng := rand.New(rand.NewPCG(12, 9))
		x := make([]dtype.BFloat16, rows*cols)
		for i := range x {
			// of every exponent that has a code
			x[i] = dtype.FromFloat32((1 + rng.Float32()/2) / float32(int(1)<<rng.IntN(15)))
			switch rng.IntN(8) {
			case 0, 1, 2, 3:
				x[i] &= 0x8000
			case 4:
				x[i] &= 0x807f
			}
		}
		for r := 0; r < rows; r += 3 { // a few that are
			x[r*cols+rng.IntN(cols)] = 0xab85 // -2^-40
		}
		w := constant(t, d, "w", sourceOf(x, rows, cols)).(*buffer).bf12
		if w == nil || w.listed() != (rows+2)/3 {
			t.Fatal("zeros are escapes, or others are none")
		}
		for r := range rows {
			if !slices.Equal(w.rowOf(r), x[r*cols:][:cols]) {
				t.Fatalf("row %d is not what it was", r)
			}
		}
		plain := open(t, &Options{Threads: 2, Kernels: d.Kernels(), InPlace: true})
		for _, act := range []dtype.Type{bf, f32} {
			for _, m := range []int{1, 3, 5, 16, 17, 40, 300} {
				a := random(rng, m*cols)
				whole := func(w npu.Ref) npu.Ref { return w }
				if !bytes.Equal(productOf(t, d, act, a, m, x, cols, rows, whole),
					productOf(t, plain, act, a, orderedRows(d, act, m), x, cols, rows, whole)[:4*m*rows]) {
					t.Errorf("%d rows of %s: the product differs", m, act)
				}
			}
		}
	})
}

// Products with BF12 are those with the BF16 that it was made of, to the bit: for any number of
// rows, for whole matrices and views of them. Beside strips all sums
// have the order of the matrix unit, which those of BF16 in place have from 17 rows on.
func TestBF12Products(t *testing.T) {
	const n = 81
	views := map[string]struct {
		n    int
		view func(w npu.Ref) npu.Ref
	}{
		"whole":           {n, func(w npu.Ref) npu.Ref { return w }},
		"from a strip on": {n - 16, func(w npu.Ref) npu.Ref { return w.Rows(16, n-16) }},
		"from a quad on":  {n - 8, func(w npu.Ref) npu.Ref { return w.Rows(8, n-8) }},
		"from within one": {n - 6, func(w npu.Ref) npu.Ref { return w.Rows(6, n-6) }},
		"every other row": {n / 2, func(w npu.Ref) npu.Ref { return w.Rows(0, n-1).Every(1, 2) }},
	}
	forEachBF12(t, func(t *testing.T, d *Device) {
		plain := open(t, &Options{Threads: 2, Kernels: d.Kernels(), InPlace: true})
		for _, k := range []int{32, 576, 2720, 4096} {
			rng := rand.New(rand.NewPCG(12, 1))
			weights := hardToPress(rng, n, k)
			for i, v := range weights { // replace Inf and NaN
				if e := v >> 7 & 255; e == 255 {
					weights[i] = 0x3f80
				}
			}
			for name, v := range views {
				for _, act := range []dtype.Type{bf, f32} {
					for _, m := range []int{1, 2, 3, 4, 5, 8, 9, 16, 17, 20, 32, 33, 40, 256, 257, 300} {
						if m > 40 && (name != "whole" || act != bf) {
							continue
						}
						x := random(rng, m*k)
						want := productOf(t, plain, act, x, orderedRows(d, act, m), weights, k, v.n, v.view)[:4*m*v.n]
						if !bytes.Equal(productOf(t, d, act, x, m, weights, k, v.n, v.view), want) {
							t.Errorf("%s, K = %d, %d rows of %s: the product differs", name, k, m, act)
						}
					}
				}
			}
		}
	})
}

// Products of the same activations side by side, with BF12 and with a view of it that is read as
// BF16, do not take each other's preparations.
func TestBF12BesideBF16(t *testing.T) {
	const n, k = 64, 576
	forEachBF12(t, func(t *testing.T, d *Device) {
		rng := rand.New(rand.NewPCG(12, 8))
		weights := make([]dtype.BFloat16, n*k)
		for i := range weights {
			weights[i] = dtype.FromFloat32(float32(rng.NormFloat64()))
		}
		w, x := constant(t, d, "w", sourceOf(weights, n, k)), alloc(t, d, 4*k)
		encode(x.Bytes()[:2*k], bf, random(rng, k))
		// each of the rows of weights from one on
		products := func(types []dtype.Type, from ...int) (results [][]byte) {
			p := npu.NewProgram("products")
			in, weight := map[dtype.Type]npu.Ref{}, p.Const("w", bf, n, k)
			args := []npu.Buffer{w}
			for i, first := range from {
				rows, typ := n-first, types[i]
				if _, ok := in[typ]; !ok {
					in[typ] = p.In("x"+typ.String(), typ, 1, k)
					args = append(args, x)
				}
				p.Launch(fmt.Sprint(i), op.MatMul{M: 1, K: k, N: rows, TransB: true}, in[typ], weight.Rows(first, rows),
					p.Out(fmt.Sprint("y", i), f32, 1, rows))
				args = append(args, alloc(t, d, 4*rows))
			}
			submit(t, d, p, args...)
			for _, y := range args {
				if y != npu.Buffer(w) && y != npu.Buffer(x) {
					results = append(results, y.Bytes())
				}
			}
			return results
		}
		for _, order := range [][]int{{0, 6, 0}, {6, 0, 6}} {
			for _, types := range [][]dtype.Type{{bf, bf, bf}, {bf, f32, bf}, {f32, bf, f32}} {
				for i, got := range products(types, order...) {
					if !bytes.Equal(got, products(types[i:i+1], order[i])[0]) {
						t.Errorf("rows from %v on, of activations in %v: product %d is not what it is alone", order,
							types, i)
					}
				}
			}
		}
	})
}

// A product changes if any bit of a compressed weight changes, so the comparison in the test above
// covers every part of the format.
func TestBF12ProductsSeeEveryBit(t *testing.T) {
	for _, m := range []int{1, 3, 20} {
		for _, zeros := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d rows, zeros %v", m, zeros), func(t *testing.T) {
				forEachBF12(t, func(t *testing.T, d *Device) { productSeesEveryBit(t, d, m, zeros) })
			})
		}
	}
}

func productSeesEveryBit(t *testing.T, d *Device, m int, zeros bool) {
	const n, k = 16, 64
	rng := rand.New(rand.NewPCG(12, 2))
	weights := make([]dtype.BFloat16, n*k)
	for i := range weights {
		if weights[i] = dtype.FromFloat32(float32(rng.NormFloat64())); zeros && i%4 == 1 {
			weights[i] = 0
		}
	}
	weights[5] = 0x2b80 // an escape, of row 0: 2^-40
	if !zeros {
		// of row 1: the largest exponent and the smallest that has a code, which is 0
		weights[k], weights[k+7] = 0x4080, 0x3940
	}
	b := constant(t, d, "w", sourceOf(weights, n, k)).(*buffer)
	if zeros != (b.bf12.Head.Zeros == 1) {
		t.Fatalf("whether zeros have a code is %d", b.bf12.Head.Zeros)
	}
	p := npu.NewProgram("product")
	p.Launch("y", op.MatMul{M: m, K: k, N: n, TransB: true}, p.In("x", bf, m, k), p.Const("w", bf, n, k),
		p.Out("y", f32, m, n))
	in, out := alloc(t, d, 2*m*k), alloc(t, d, 4*m*n)
	encode(in.Bytes(), bf, random(rng, m*k))
	product := func() []byte {
		submit(t, d, p, in, b, out)
		return bytes.Clone(out.Bytes())
	}
	right := product()
	first := b.bf12.codes(0)
	codes := unsafe.Slice(&first[0], b.bf12.Blocks()*len(first)) // of four 4-row blocks, or one of 16 rows
	matrix := func() (x []dtype.BFloat16) {
		for r := range n {
			x = append(x, b.bf12.rowOf(r)...)
		}
		return x
	}
	_, number, lane := b.bf12.place(0, 5)
	// for a 4-row block: the bits that are not decoded at an escape, and an escape's bit of 2^128
	idle, large := 0x87ff, uint32(0x4000)
	if b.bf12.Code == kernel.BF12x16 {
		idle, large = 0x780, 0x80
	}
	for range 100 {
		word, bit := rng.IntN(len(codes)), rng.IntN(16)
		if word == number*32+lane && idle>>bit&1 == 1 {
			continue
		}
		before := matrix()
		codes[word] ^= 1 << bit
		tiny := false // a zero that has become another, or a subnormal number
		for i, x := range matrix() {
			tiny = tiny || x != before[i] && (x|before[i])>>7&255 == 0
		}
		if !tiny && bytes.Equal(product(), right) {
			t.Errorf("bit %d of word %d makes no difference", bit, word)
		}
		codes[word] ^= 1 << bit
	}
	bases := b.bf12.bases(0)
	for i := range bases {
		bases[i]++
		if bytes.Equal(product(), right) {
			t.Errorf("the base of row %d makes no difference", i)
		}
		bases[i]--
	}
	escape := &b.bf12.escapesOf(0)[0]
	*escape ^= large
	if bytes.Equal(product(), right) {
		t.Error("the escape makes no difference")
	}
	*escape ^= large
	b.bf12.Head.Zeros ^= 1
	if bytes.Equal(product(), right) {
		t.Error("whether zeros have a code makes no difference")
	}
	b.bf12.Head.Zeros ^= 1
	if !bytes.Equal(product(), right) {
		t.Error("the product is not what it was")
	}
}

// A matrix with exponents all over the place stays BF16.
func TestTooManyEscapes(t *testing.T) {
	const n, k, tiny = 64, 512, 0x2b80 // 2^-40
	forEachBF12(t, func(t *testing.T, d *Device) {
		rng := rand.New(rand.NewPCG(12, 3))
		weights := make([]dtype.BFloat16, n*k)
		for i := range weights {
			weights[i] = dtype.FromFloat32(float32(rng.NormFloat64()))
			if i%500 == 0 { // two of a thousand: allowed for some rows, not for a matrix
				weights[i] = tiny
			}
		}
		for i := range 100 {
			weights[i*97] = tiny
		}
		b := constant(t, d, "w", sourceOf(weights, n, k))
		if b.(*buffer).bf12 != nil {
			t.Error("it is in BF12")
		}
		x, y := alloc(t, d, 2*k), alloc(t, d, 4*n)
		xs := random(rng, k)
		encode(x.Bytes(), bf, xs)
		p := npu.NewProgram("product")
		o := op.MatMul{M: 1, K: k, N: n, TransB: true}
		p.Launch("y", o, p.In("x", bf, 1, k), p.Const("w", bf, n, k), p.Out("y", f32, 1, n))
		submit(t, d, p, x, b, y)
		ws := make([]float64, n*k)
		for i, w := range weights {
			ws[i] = float64(w.Float32())
		}
		compare(t, decode(t, y.Bytes(), f32, n), reference(o, [][]float64{xs, ws}), f32, k)
	})
}

// Bytes and ops that do not support BF12 read the original tensor.
func TestBF12BesideItsTensor(t *testing.T) {
	const rows, cols = 40, 64
	forEachBF12(t, func(t *testing.T, d *Device) {
		x := hardToPress(rand.New(rand.NewPCG(12, 4)), rows, cols)
		b := constant(t, d, "w", sourceOf(x, rows, cols))
		if b.Len() != 2*len(x) || !bytes.Equal(b.Bytes(), dtype.AsBytes(x)) {
			t.Error("the buffer is not the tensor")
		}
		ids, y := alloc(t, d, 4*3), alloc(t, d, 2*3*cols)
		copy(dtype.Int32s(ids.Bytes()), []int32{39, 0, 17})
		p := npu.NewProgram("embed")
		p.Launch("y", op.Embed{Rows: 3, Vocab: rows, Width: cols}, p.In("ids", dtype.I32, 3),
			p.Const("table", bf, rows, cols), p.Out("y", bf, 3, cols))
		submit(t, d, p, ids, b, y)
		for i, id := range []int{39, 0, 17} {
			if !slices.Equal(dtype.BFloat16s(y.Bytes())[i*cols:][:cols], x[id*cols:][:cols]) {
				t.Errorf("row %d is not row %d of the table", i, id)
			}
		}
	})
}

// refilled is a source whose tensors lie where they lay whenever they are asked for, and are zeros
// once they have been released: a checkpoint's tensors that had to be
// rearranged.
type refilled struct {
	from tensors
	at   map[string][]byte
}

func (r refilled) Tensor(name string) (npu.Tensor, error) {
	t, err := r.from.Tensor(name)
	if r.at[name] == nil {
		r.at[name] = make([]byte, len(t.Data))
	}
	copy(r.at[name], t.Data)
	t.Data = r.at[name]
	return t, err
}

// Whoever sees that BF16 is compressed takes the tensors' memory back: that of the weights too that
// are vectors or do not compress.
func TestTensorsMayBeReleased(t *testing.T) {
	const rows, cols, width, vocab = 3, 48, 2048, 10
	forEachBF12(t, func(t *testing.T, d *Device) {
		rng := rand.New(rand.NewPCG(12, 7))
		tensor := func(shape ...int) (npu.Tensor, []float64) {
			n := op.Size{}.Elements(shape)
			x, data := random(rng, n), make([]byte, 2*n)
			encode(data, bf, x)
			return npu.Tensor{Type: bf, Shape: shape, Data: data}, x
		}
		normT, norm := tensor(width)
		oddT, odd := tensor(9, cols)
		tableT, table := tensor(vocab, width)
		source := refilled{tensors{"norm": normT, "odd": oddT, "table": tableT}, map[string][]byte{}}
		normed, product := op.RMSNorm{Rows: rows, Width: width, Eps: 1e-5},
			op.MatMul{M: rows, K: cols, N: 9, TransB: true}

		p := npu.NewProgram("all")
		x, ids := p.In("x", f32, rows, width), p.In("ids", dtype.I32, rows)
		a, b, c := p.Out("a", f32, rows, width), p.Out("b", f32, rows, 9), p.Out("c", f32, rows, width)
		n, o, e := p.Const("norm", bf, width), p.Const("odd", bf, 9, cols), p.Const("table", bf, vocab, width)
		p.Launch("a", normed, x, n, a)
		p.Launch("b", product, x.Cols(0, cols), o, b)
		p.Launch("c", op.Embed{Rows: rows, Vocab: vocab, Width: width}, ids, e, c)
		args := []npu.Buffer{alloc(t, d, 4*rows*width), alloc(t, d, 4*rows), alloc(t, d, 4*rows*width),
			alloc(t, d, 4*rows*9), alloc(t, d, 4*rows*width)}
		for _, name := range []string{"norm", "odd", "table"} {
			args = append(args, constant(t, d, name, source))
		}
		for _, data := range source.at {
			clear(data)
		}
		xs := random(rng, rows*width)
		encode(args[0].Bytes(), f32, xs)
		copy(dtype.Int32s(args[1].Bytes()), []int32{7, 0, 9})
		submit(t, d, p, args...)
		compare(t, decode(t, args[2].Bytes(), f32, rows*width), reference(normed, [][]float64{xs, norm}), f32, width)
		var left []float64
		for r := range rows {
			left = append(left, xs[r*width:][:cols]...)
		}
		compare(t, decode(t, args[3].Bytes(), f32, rows*9), reference(product, [][]float64{left, odd}), f32, cols)
		for r, id := range []int{7, 0, 9} {
			if got := decode(t, args[4].Bytes(), f32, rows*width)[r*width:][:width]; !slices.Equal(got,
				table[id*width:][:width]) {
				t.Errorf("row %d is not row %d of the table", r, id)
			}
		}
	})
}

// A source whose tensor has become shorter is refused when it is read again.
func TestTensorsMayNotShrink(t *testing.T) {
	const rows, cols = 40, 64
	forEachBF12(t, func(t *testing.T, d *Device) {
		x := hardToPress(rand.New(rand.NewPCG(12, 9)), rows, cols)
		from := sourceOf(x, rows, cols).(tensors)
		b := constant(t, d, "w", from)
		from["w"] = npu.Tensor{Type: bf, Shape: []int{rows, cols}, Data: from["w"].Data[:rows*cols]}
		p := npu.NewProgram("embed")
		p.Launch("y", op.Embed{Rows: 1, Vocab: rows, Width: cols}, p.In("ids", dtype.I32, 1),
			p.Const("table", bf, rows, cols), p.Out("y", bf, 1, cols))
		e, err := d.Load(context.Background(), p)
		if err != nil {
			t.Fatal(err)
		}
		err = d.Submit(context.Background(), []npu.Run{{Exec: e, Args: []npu.Buffer{alloc(t, d, 4), b,
			alloc(t, d, 2*cols)}}})
		if err == nil || !strings.Contains(err.Error(), "tensor w is not as it was") {
			t.Errorf("got %v, want the tensor named", err)
		}
	})
}

func TestBF12CanBeCancelled(t *testing.T) {
	forEachBF12(t, func(t *testing.T, d *Device) {
		const rows, cols = 512, 1024
		x := make([]dtype.BFloat16, rows*cols)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		w, err := toBF12(ctx, 2, new(weightStore), d.engine.(bf12Engine), dtype.AsBytes(x), rows, cols)
		if !errors.Is(err, context.Canceled) || w != nil {
			t.Errorf("got %v, want context.Canceled", err)
		}
		short := tensors{"w": {Type: bf, Shape: []int{rows, cols}, Data: dtype.AsBytes(x)[:rows*cols]}}
		if _, err := d.Const(context.Background(), npu.Source{Layout: npu.T("w"), From: short}); err == nil {
			t.Error("half a tensor is taken for a whole one")
		}
		if len(d.consts) != 0 {
			t.Error("a failure is kept")
		}
	})
}

func BenchmarkToBF12(b *testing.B) {
	d := open(b, nil)
	e, ok := d.engine.(bf12Engine)
	if !ok {
		b.Skip("these kernels read no BF12")
	}
	const rows, cols = 4096, 2048
	rng := rand.New(rand.NewPCG(12, 5))
	x := make([]dtype.BFloat16, rows*cols)
	for i := range x {
		x[i] = dtype.FromFloat32(float32(rng.NormFloat64()) / 50)
	}
	b.SetBytes(2 * rows * cols)
	for b.Loop() {
		w, err := toBF12(context.Background(), d.info.Threads, new(weightStore), e, dtype.AsBytes(x), rows, cols)
		if err != nil || w == nil {
			b.Fatal(fmt.Sprint(w, err))
		}
		w.free()
	}
}

// A table of which rows are looked up is not compressed; the same tensor for products is.
func TestBF12LeavesTablesAlone(t *testing.T) {
	const rows, cols = 40, 64
	forEachBF12(t, func(t *testing.T, d *Device) {
		x := hardToPress(rand.New(rand.NewPCG(12, 6)), rows, cols)
		from := sourceOf(x, rows, cols)
		for _, lookup := range []bool{true, false, true} {
			b, err := d.Const(context.Background(), npu.Source{Layout: npu.T("w"), From: from, Lookup: lookup})
			if err != nil {
				t.Fatal(err)
			}
			if compressed := b.(*buffer).bf12 != nil; compressed == lookup {
				t.Errorf("looked up %v: compressed %v", lookup, compressed)
			}
			if !bytes.Equal(b.Bytes(), dtype.AsBytes(x)) {
				t.Error("the buffer is not the tensor")
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if len(d.consts) != 0 {
			t.Errorf("%d weights are kept", len(d.consts))
		}
	})
}
