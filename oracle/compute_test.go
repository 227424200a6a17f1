package oracle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu/op"
)

// Small cases that can be verified by hand.
func TestComputeByHand(t *testing.T) {
	f := func(x ...float32) []float32 { return x }
	ln3 := float32(math.Log(3))
	for _, tc := range []struct {
		name string
		op   op.Op
		size op.Size
		in   []any
		want []float32
	}{
		{"[1 2; 3 4] times a column", op.MatMul{M: 2, K: 2, N: 1}, op.Size{}, []any{f(1, 2, 3, 4), f(10, 1)},
			f(12, 34)},
		{"weights as rows of outputs", op.MatMul{M: op.Rows, K: 2, N: 3, TransB: true}, op.Size{Rows: 1},
			[]any{f(1, 2), f(1, 0, 0, 1, 1, 1)}, f(1, 2, 3)},
		{"weights as columns", op.MatMul{M: 1, K: 2, N: 3}, op.Size{}, []any{f(1, 2), f(1, 0, 0, 1, 1, 1)}, f(3, 2, 2)},
		{"rows by id", op.Embed{Rows: op.Rows, Vocab: 3, Width: 2}, op.Size{Rows: 2},
			[]any{[]int32{2, 0}, f(1, 2, 3, 4, 5, 6)}, f(5, 6, 1, 2)},
		{"the last row", op.Pick{Picks: op.Picks, Rows: op.Rows, Width: 2}, op.Size{Rows: 2, Picks: 1},
			[]any{[]int32{1}, f(1, 2, 3, 4)}, f(3, 4)},
		{"FP32 is unchanged", op.Cast{Rows: 1, Width: 2}, op.Size{}, []any{f(1.00001, 2)}, f(1.00001, 2)},
		// mean square of 1 and 7 is 25
		{"root mean square 5", op.RMSNorm{Rows: 1, Width: 2}, op.Size{}, []any{f(1, 7), f(5, 10)}, f(1, 14)},
		{"a norm per head", op.RMSNorm{Rows: 1, Width: 2, Heads: 2}, op.Size{}, []any{f(1, 7, 10, 70), f(5, 5)},
			f(1, 7, 1, 7)},
		{"epsilon under the root", op.RMSNorm{Rows: 1, Width: 1, Eps: 0.75}, op.Size{}, []any{f(0.5), f(1)}, f(0.5)},
		// mean 5, biased variance 9
		{"mean 5, deviation 3", op.LayerNorm{Rows: 1, Width: 2}, op.Size{}, []any{f(2, 8), f(1, 2), f(10, 20)},
			f(9, 22)},
		{"SiLU(ln 3) is 3/4 ln 3", op.SiLUMul{Rows: 1, Width: 2}, op.Size{}, []any{f(ln3, 0), f(4, 9)}, f(3*ln3, 0)},
		{"a sum", op.Add{Rows: 2, Width: 2}, op.Size{}, []any{f(1, 2, 3, 4), f(10, 20, 30, 40)}, f(11, 22, 33, 44)},
		{"a bias", op.Add{Rows: 2, Width: 2, Broadcast: true}, op.Size{}, []any{f(1, 2, 3, 4), f(10, 20)},
			f(11, 22, 13, 24)},
		{"GELU of -1, 0, 1", op.GELU{Rows: 1, Width: 3}, op.Size{}, []any{f(-1, 0, 1)}, f(-0.15865526, 0, 0.84134475)},
		{"GELU with tanh", op.GELU{Rows: 1, Width: 3, Tanh: true}, op.Size{}, []any{f(-1, 0, 1)},
			f(-0.15880801, 0, 0.84119199)},
		// A rotation by a right angle turns (1, 0) into (0, 1). Pairs are elements 0 and 2, 1 and
		// 3.
		{"half-split pairs", op.RoPE{Rows: 1, Heads: 1, HeadDim: 4}, op.Size{}, []any{f(1, 2, 3, 4), f(0, 1, 1, 0)},
			f(-3, 2, 1, 4)},
		{"heads share the table's row", op.RoPE{Rows: 1, Heads: 2, HeadDim: 2}, op.Size{},
			[]any{f(1, 0, 0, 1), f(0, 1)}, f(0, 1, -1, 0)},
		{"a table row per head", op.RoPE{Rows: 1, Heads: 2, HeadDim: 2, TableHeads: 2}, op.Size{},
			[]any{f(1, 0, 1, 0), f(0, 1, -1, 0)}, f(0, 1, -1, 0)},
		{"a cache of 3 positions, written at 1", op.KVWrite{Rows: 1, KVHeads: 2, HeadDim: 1},
			op.Size{Pos: 1, Capacity: 3},
			[]any{f(7, 8), f(1, 2, 3, 4, 5, 6)}, f(1, 7, 3, 4, 8, 6)},
		// Row 0 attends to itself. Row 1 has scores 0 and ln 3: weights 1/4 and 3/4.
		{"attention weights 1/4 and 3/4", op.Attention{Rows: 2, Heads: 1, KVHeads: 1, HeadDim: 1}, op.Size{},
			[]any{f(1, ln3), f(0, 1), f(8, 16)}, f(8, 14)},
		{"scale 2 squares the odds", op.Attention{Rows: 2, Heads: 1, KVHeads: 1, HeadDim: 1, Scale: 2}, op.Size{},
			[]any{f(1, ln3), f(0, 1), f(10, 20)}, f(10, 19)},
		{"two query heads, one of keys", op.Attention{Rows: 1, Heads: 2, KVHeads: 1, HeadDim: 1, Cached: true},
			op.Size{Pos: 1, Capacity: 3},
			[]any{f(ln3, 0), f(0, 1, 99), f(8, 16, 99)}, f(14, 12)},
		{"a matrix transposed", op.Permute{Shape: []int{2, 3}, Perm: []int{1, 0}}, op.Size{},
			[]any{f(1, 2, 3, 4, 5, 6)}, f(1, 4, 2, 5, 3, 6)},
		{"columns 1 and 2", op.Slice{Rows: 2, Width: 3, From: 1, N: 2}, op.Size{}, []any{f(1, 2, 3, 4, 5, 6)},
			f(2, 3, 5, 6)},
		{"concatenated rows", op.Concat{Rows: 2, Widths: []int{1, 2}}, op.Size{}, []any{f(1, 4), f(2, 3, 5, 6)},
			f(1, 2, 3, 4, 5, 6)},
	} {
		t.Run(tc.op.Kind()+"/"+tc.name, func(t *testing.T) {
			got, err := Compute(context.Background(), tc.op, tc.size, tc.in...)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(tc.want) {
				t.Fatalf("%v, want %v", got, tc.want)
			}
			for i := range got {
				if math.Abs(float64(got[i]-tc.want[i])) > 1e-6*math.Max(1, math.Abs(float64(tc.want[i]))) {
					t.Errorf("%v, want %v", got, tc.want)
					break
				}
			}
		})
	}
}

// Every op agrees with float64 loops at odd shapes that cross tile boundaries.
func TestComputeAgainstFloat64(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	normal := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	size := op.Size{Rows: 67, Picks: 5, Pos: 131, Capacity: 211}
	for _, o := range []op.Op{
		op.MatMul{M: 1, K: 1200, N: 130, TransB: true},
		op.MatMul{M: 129, K: 515, N: 65, TransB: true},
		op.MatMul{M: op.Rows, K: 515, N: 65},
		op.MatMul{M: 1, K: 3, N: 1},
		op.RMSNorm{Rows: op.Rows, Width: 577, Eps: 1e-5},
		op.RMSNorm{Rows: op.Rows, Width: 33, Heads: 7, Eps: 1e-6},
		op.LayerNorm{Rows: op.Rows, Width: 577, Eps: 1e-5},
		op.SiLUMul{Rows: op.Rows, Width: 1001},
		op.GELU{Rows: op.Rows, Width: 1001},
		op.GELU{Rows: op.Rows, Width: 1001, Tanh: true},
		op.Add{Rows: op.Rows, Width: 1001},
		op.Add{Rows: op.Rows, Width: 1001, Broadcast: true},
		op.RoPE{Rows: op.Rows, Heads: 3, HeadDim: 34},
		op.RoPE{Rows: op.Rows, Heads: 3, HeadDim: 34, TableHeads: 3},
		op.KVWrite{Rows: op.Rows, KVHeads: 3, HeadDim: 34},
		op.Attention{Rows: op.Rows, Heads: 6, KVHeads: 2, HeadDim: 34},
		op.Attention{Rows: op.Rows, Heads: 6, KVHeads: 2, HeadDim: 34, HeadFirst: true},
		op.Attention{Rows: op.Rows, Heads: 6, KVHeads: 2, HeadDim: 34, HeadFirst: true, Split: 2},
		op.Attention{Rows: op.Rows, Heads: 7, KVHeads: 1, HeadDim: 34, Cached: true, Scale: 0.7},
		op.Attention{Rows: 1, Heads: 4, KVHeads: 4, HeadDim: 34, Cached: true},
		op.Permute{Shape: []int{3, op.Rows, 2, 5}, Perm: []int{2, 0, 3, 1}},
		op.Slice{Rows: op.Rows, Width: 9, From: 4, N: 3},
		op.Concat{Rows: op.Rows, Widths: []int{3, 1, 4}},
	} {
		t.Run(fmt.Sprintf("%s%+v", o.Kind(), o), func(t *testing.T) {
			var in []any
			var x [][]float32
			for _, operand := range o.Operands() {
				if operand.Read {
					v := normal(size.Elements(operand.Shape))
					in, x = append(in, v), append(x, v)
				}
			}
			got, err := Compute(context.Background(), o, size, in...)
			if err != nil {
				t.Fatal(err)
			}
			want := naive(o, size, x)
			if len(got) != len(want) {
				t.Fatalf("%d elements, want %d", len(got), len(want))
			}
			var off, norm float64
			for i, w := range want {
				off += math.Abs(float64(got[i]) - w)
				norm += math.Abs(w)
			}
			// FP32 has a relative precision of 6e-8; sums of 1200 terms lose a few times that.
			if rel := off / norm; !(rel < 5e-7) {
				t.Errorf("mean relative L1 %.3g, want below 5e-7", rel)
			}
		})
	}
}

// naive computes an op in float64, element by element, as package op defines it.
func naive(o op.Op, s op.Size, x [][]float32) []float64 {
	at := func(i, j int) float64 { return float64(x[i][j]) }
	var y []float64
	switch o := o.(type) {
	case op.MatMul:
		m := s.Resolve(o.M)
		for i := range m {
			for j := range o.N {
				sum := 0.0
				for k := range o.K {
					w := k*o.N + j
					if o.TransB {
						w = j*o.K + k
					}
					sum += at(0, i*o.K+k) * at(1, w)
				}
				y = append(y, sum)
			}
		}
	case op.RMSNorm:
		for i := range x[0] {
			sum := 0.0
			for j := range o.Width {
				v := at(0, i/o.Width*o.Width+j)
				sum += v * v
			}
			y = append(y, at(0, i)/math.Sqrt(sum/float64(o.Width)+o.Eps)*at(1, i%o.Width))
		}
	case op.LayerNorm:
		n := float64(o.Width)
		for i := range x[0] {
			mean, square := 0.0, 0.0
			for j := range o.Width {
				v := at(0, i/o.Width*o.Width+j)
				mean += v / n
				square += v * v / n
			}
			y = append(y, (at(0, i)-mean)/math.Sqrt(square-mean*mean+o.Eps)*at(1, i%o.Width)+at(2, i%o.Width))
		}
	case op.SiLUMul:
		for i := range x[0] {
			y = append(y, at(0, i)/(1+math.Exp(-at(0, i)))*at(1, i))
		}
	case op.GELU:
		for i := range x[0] {
			v := at(0, i)
			if o.Tanh {
				y = append(y, v/2*(1+math.Tanh(math.Sqrt(2/math.Pi)*(v+0.044715*v*v*v))))
			} else {
				y = append(y, v/2*(1+math.Erf(v/math.Sqrt2)))
			}
		}
	case op.Add:
		for i := range x[0] {
			y = append(y, at(0, i)+at(1, i%len(x[1])))
		}
	case op.RoPE:
		half := o.HeadDim / 2
		for i := range x[0] {
			r, h, d := i/(o.Heads*o.HeadDim), i/o.HeadDim%o.Heads, i%o.HeadDim
			row := r
			if o.TableHeads > 1 {
				row = r*o.Heads + h
			}
			cos, sin := at(1, row*o.HeadDim+d%half), at(1, row*o.HeadDim+half+d%half)
			if d < half {
				y = append(y, at(0, i)*cos-at(0, i+half)*sin)
			} else {
				y = append(y, at(0, i)*cos+at(0, i-half)*sin)
			}
		}
	case op.KVWrite:
		for i := range x[1] {
			h, pos, d := i/(s.Capacity*o.HeadDim), i/o.HeadDim%s.Capacity, i%o.HeadDim
			if r := pos - s.Pos; r >= 0 && r < s.Resolve(o.Rows) {
				y = append(y, at(0, (r*o.KVHeads+h)*o.HeadDim+d))
			} else {
				y = append(y, at(1, i))
			}
		}
	case op.Attention:
		return naiveAttention(o, s, x)
	case op.Permute:
		n := make([]int, 4)
		for i, d := range o.Shape {
			n[i] = s.Resolve(d)
		}
		p := o.Perm
		var i [4]int // of dst
		for i[0] = range n[p[0]] {
			for i[1] = range n[p[1]] {
				for i[2] = range n[p[2]] {
					for i[3] = range n[p[3]] {
						var j [4]int // of x
						for d := range 4 {
							j[p[d]] = i[d]
						}
						y = append(y, at(0, ((j[0]*n[1]+j[1])*n[2]+j[2])*n[3]+j[3]))
					}
				}
			}
		}
	case op.Slice:
		for r := range s.Rows {
			for c := o.From; c < o.From+o.N; c++ {
				y = append(y, at(0, r*o.Width+c))
			}
		}
	case op.Concat:
		for r := range s.Rows {
			for i, w := range o.Widths {
				for c := range w {
					y = append(y, at(i, r*w+c))
				}
			}
		}
	}
	return y
}

func naiveAttention(o op.Attention, s op.Size, x [][]float32) []float64 {
	rows, pos, length := s.Resolve(o.Rows), 0, s.Resolve(o.Rows)
	if o.Cached {
		pos, length = s.Pos, s.Capacity
	}
	split := max(1, o.Split)
	// place returns the index of element d of head h in row r, in a tensor whose heads have d in
	// parts.
	place := func(headFirst bool, count, length, parts, h, r, d int) int {
		if headFirst {
			w := o.HeadDim / parts
			return ((h*parts+d/w)*length+r)*w + d%w
		}
		return (r*count+h)*o.HeadDim + d
	}
	y := make([]float64, rows*o.Heads*o.HeadDim)
	for h := range o.Heads {
		kv := h / (o.Heads / o.KVHeads)
		for r := range rows {
			var weights []float64
			total := 0.0
			for t := range pos + r + 1 {
				score := 0.0
				for d := range o.HeadDim {
					score += float64(x[0][place(o.HeadFirst, o.Heads, rows, 1, h, r, d)]) *
						float64(x[1][place(o.HeadFirst || o.Cached, o.KVHeads, length, 1, kv, t, d)])
				}
				w := math.Exp(score * o.Softmax())
				weights = append(weights, w)
				total += w
			}
			for t, w := range weights {
				for d := range o.HeadDim {
					y[place(o.HeadFirst, o.Heads, rows, split, h, r, d)] += w / total *
						float64(x[2][place(o.HeadFirst || o.Cached, o.KVHeads, length, split, kv, t, d)])
				}
			}
		}
	}
	return y
}

// Softmax does not overflow for large scores.
func TestAttentionWithLargeScores(t *testing.T) {
	o := op.Attention{Rows: 2, Heads: 1, KVHeads: 1, HeadDim: 1}
	got, err := Compute(context.Background(), o, op.Size{}, []float32{1, 1e4}, []float32{1e4, -1e4}, []float32{3, 5})
	if err != nil || got[0] != 3 || got[1] != 3 {
		t.Errorf("%v, %v, want [3 3]", got, err)
	}
}

// Cache entries after the row's position do not affect the result.
func TestAttentionDoesNotSeeTheFuture(t *testing.T) {
	o := op.Attention{Rows: 2, Heads: 1, KVHeads: 1, HeadDim: 2, Cached: true}
	nan := float32(math.NaN())
	q, k, v := []float32{1, 2, 3, 4}, []float32{1, 0, 0, 1, 2, 2, nan, nan}, []float32{1, 2, 3, 4, 5, 6, nan, nan}
	got, err := Compute(context.Background(), o, op.Size{Pos: 1, Capacity: 4}, q, k, v)
	if err != nil {
		t.Fatal(err)
	}
	for _, y := range got {
		if math.IsNaN(float64(y)) {
			t.Fatalf("%v: position 3 affected the result", got)
		}
	}
	v[5] = 1e6 // position 2 is visible to row 1 but not to row 0
	other, err := Compute(context.Background(), o, op.Size{Pos: 1, Capacity: 4}, q, k, v)
	if err != nil || other[0] != got[0] || other[1] != got[1] || other[3] == got[3] {
		t.Errorf("row 0 is %v, then %v; row 1 %v, then %v (%v)", got[:2], other[:2], got[2:], other[2:], err)
	}
}

// Compute does not modify its inputs, including the cache of KVWrite.
func TestComputeDoesNotModifyInputs(t *testing.T) {
	cache := []float32{1, 2}
	got, err := Compute(context.Background(), op.KVWrite{Rows: 1, KVHeads: 1, HeadDim: 1}, op.Size{Capacity: 2},
		[]float32{9}, cache)
	if err != nil || got[0] != 9 || cache[0] != 1 {
		t.Errorf("wrote %v, operand %v, %v", got, cache, err)
	}
}

// Invalid calls return descriptive errors.
func TestComputeErrors(t *testing.T) {
	f := func(n int) []float32 { return make([]float32, n) }
	for want, tc := range map[string]struct {
		op   op.Op
		size op.Size
		in   []any
	}{
		"op is nil":                  {nil, op.Size{}, nil},
		"K is 0":                     {op.MatMul{M: 1, N: 1}, op.Size{}, nil},
		"operand w [2 2] is missing": {op.MatMul{M: 1, K: 2, N: 2}, op.Size{}, []any{f(2)}},
		"operand w has 3 elements, want 4: [2 2]": {op.MatMul{M: 1, K: 2, N: 2}, op.Size{}, []any{f(2), f(3)}},
		"1 operands too many": {op.MatMul{M: 1, K: 1, N: 1}, op.Size{},
			[]any{f(1), f(1), f(1)}},
		"operand a is a []float64, want []float32": {op.MatMul{M: 1, K: 1, N: 1}, op.Size{}, []any{[]float64{1}, f(1)}},
		"operand a is a <nil>":                     {op.MatMul{M: 1, K: 1, N: 1}, op.Size{}, []any{nil, f(1)}},
		"operand ids is a []float32": {op.Embed{Rows: 1, Vocab: 1, Width: 1}, op.Size{},
			[]any{f(1), f(1)}},
		"index 1 is 3, want 0 to 2": {op.Embed{Rows: 2, Vocab: 3, Width: 1}, op.Size{},
			[]any{[]int32{0, 3}, f(3)}},
		"index 0 is -1": {op.Pick{Picks: 1, Rows: 3, Width: 1}, op.Size{},
			[]any{[]int32{-1}, f(3)}},
		"a [rows 1]: want a positive": {op.MatMul{M: op.Rows, K: 1, N: 1}, op.Size{}, []any{f(1), f(1)}},
		"a [rows 8]: want a positive": {op.MatMul{M: op.Rows, K: 8, N: 1}, op.Size{Rows: -1},
			[]any{f(1), f(1)}},
		"more than 2147483648 elements": {op.MatMul{M: 1 << 28, K: 1 << 28, N: 1}, op.Size{},
			[]any{f(1), f(1)}},
		"outside a cache of 4": {op.KVWrite{Rows: 2, KVHeads: 1, HeadDim: 1}, op.Size{Pos: 3, Capacity: 4},
			[]any{f(2), f(4)}},
		"2 rows at position -1 are outside": {op.Attention{Rows: 2, Heads: 1, KVHeads: 1, HeadDim: 1, Cached: true},
			op.Size{Pos: -1, Capacity: 4},
			[]any{f(2), f(4), f(4)}},
		"by value": {&op.Cast{Rows: 1, Width: 1}, op.Size{}, []any{f(1)}},
	} {
		if _, err := Compute(context.Background(), tc.op, tc.size, tc.in...); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%T%+v: error %v, want %q", tc.op, tc.op, err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Compute(ctx, op.Cast{Rows: 1, Width: 1}, op.Size{}, f(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func BenchmarkCompute(b *testing.B) {
	size := op.Size{Rows: 256, Pos: 256, Capacity: 512}
	for _, o := range []op.Op{
		op.MatMul{M: op.Rows, K: 576, N: 1536, TransB: true},
		op.MatMul{M: op.Rows, K: 576, N: 1536},
		op.MatMul{M: 1, K: 576, N: 49152, TransB: true},
		op.Attention{Rows: op.Rows, Heads: 9, KVHeads: 3, HeadDim: 64, Cached: true},
		op.RMSNorm{Rows: op.Rows, Width: 576, Eps: 1e-5},
		op.SiLUMul{Rows: op.Rows, Width: 1536},
	} {
		b.Run(strings.ReplaceAll(fmt.Sprintf("%s%v", o.Kind(), o), " ", ","), func(b *testing.B) {
			var in []any
			for _, operand := range o.Operands() {
				if operand.Read {
					x := make([]float32, size.Elements(operand.Shape))
					for i := range x {
						x[i] = float32(i%17) - 8
					}
					in = append(in, x)
				}
			}
			for b.Loop() {
				if _, err := Compute(context.Background(), o, size, in...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(o.FLOPs(size)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
