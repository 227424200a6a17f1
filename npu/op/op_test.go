package op

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu/dtype"
)

// all has one of every op, with the cost of a run of 3 rows at position 5.
var all = []struct {
	op    Op
	flops float64
	bytes float64 // every operand FP32, ids I32
}{
	{MatMul{M: Rows, K: 8, N: 16, TransB: true}, 2 * 3 * 8 * 16, 4 * (3*8 + 8*16 + 3*16)},
	{MatMul{M: 3, K: 8, N: 16}, 2 * 3 * 8 * 16, 4 * (3*8 + 8*16 + 3*16)},
	{Embed{Rows: Rows, Vocab: 1000, Width: 8}, 0, 4 * (3 + 3*8 + 3*8)}, // three rows of the table
	{Pick{Picks: Picks, Rows: Rows, Width: 8}, 0, 4 * (1 + 3*8 + 8)},
	{Cast{Rows: Rows, Width: 8}, 0, 4 * (3*8 + 3*8)},
	{RMSNorm{Rows: Rows, Width: 8, Eps: 1e-5}, 4 * 3 * 8, 4 * (3*8 + 8 + 3*8)},
	{RMSNorm{Rows: Rows, Width: 8, Heads: 2, Eps: 1e-5}, 4 * 3 * 16, 4 * (3*16 + 8 + 3*16)},
	{LayerNorm{Rows: Rows, Width: 8, Eps: 1e-5}, 8 * 3 * 8, 4 * (3*8 + 8 + 8 + 3*8)},
	{SiLUMul{Rows: Rows, Width: 8}, 5 * 3 * 8, 4 * 3 * 3 * 8},
	{Add{Rows: Rows, Width: 8}, 3 * 8, 4 * 3 * 3 * 8},
	{Add{Rows: Rows, Width: 8, Broadcast: true}, 3 * 8, 4 * (3*8 + 8 + 3*8)},
	{GELU{Rows: Rows, Width: 8, Tanh: true}, 8 * 3 * 8, 4 * 2 * 3 * 8},
	{RoPE{Rows: Rows, Heads: 4, HeadDim: 8}, 3 * 3 * 32, 4 * (3*32 + 3*8 + 3*32)},
	{RoPE{Rows: Rows, Heads: 4, HeadDim: 8, TableHeads: 4}, 3 * 3 * 32, 4 * 3 * 3 * 32},
	{KVWrite{Rows: Rows, KVHeads: 2, HeadDim: 8}, 0, 4 * 2 * 3 * 16},
	// Row r sees 5 earlier positions and r+1 of its own: 6 + 7 + 8 scores per head.
	{Attention{Rows: Rows, Heads: 4, KVHeads: 2, HeadDim: 8, Cached: true}, 4 * 21 * (4*8 + 5),
		4 * (3*32 + 2*2*8*8 + 3*32)},
	{Attention{Rows: Rows, Heads: 4, KVHeads: 2, HeadDim: 8}, 4 * 6 * (4*8 + 5), 4 * (3*32 + 2*3*16 + 3*32)},
	{Attention{Rows: Rows, Heads: 4, KVHeads: 2, HeadDim: 8, HeadFirst: true, Split: 2}, 4 * 6 * (4*8 + 5),
		4 * (3*32 + 2*3*16 + 3*32)},
	{Permute{Shape: []int{2, Rows, 4}, Perm: []int{1, 0, 2}}, 0, 4 * 2 * 24},
	{Slice{Rows: Rows, Width: 8, From: 2, N: 4}, 0, 4 * (3*8 + 3*4)},
	{Concat{Rows: Rows, Widths: []int{2, 4}}, 0, 4 * 2 * 3 * 6},
}

func TestCounts(t *testing.T) {
	size := Size{Rows: 3, Picks: 1, Pos: 5, Capacity: 100}
	for _, tc := range all {
		if err := tc.op.Validate(); err != nil {
			t.Errorf("%+v: %v", tc.op, err)
		}
		if got := tc.op.FLOPs(size); got != tc.flops {
			t.Errorf("%s%+v: %v FLOPs, want %v", tc.op.Kind(), tc.op, got, tc.flops)
		}
		types := make([]dtype.Type, len(tc.op.Operands()))
		for i := range types {
			types[i] = dtype.F32
		}
		if got := Bytes(tc.op, types, size); got != tc.bytes {
			t.Errorf("%s%+v: %v bytes, want %v", tc.op.Kind(), tc.op, got, tc.bytes)
		}
	}
	// Quantized weights count as stored: 18 bytes per 32 elements.
	o := MatMul{M: 1, K: 32, N: 2, TransB: true}
	if got := Bytes(o, []dtype.Type{dtype.BF16, dtype.Q4_0, dtype.F32}, Size{}); got != 2*32+2*18+4*2 {
		t.Errorf("Bytes of a Q4_0 product = %v, want %v", got, 2*32+2*18+4*2)
	}
}

// Every op survives a JSON round trip, and every kind is in the list above.
func TestJSON(t *testing.T) {
	seen := map[string]bool{}
	for _, tc := range all {
		data, err := Marshal(tc.op)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Unmarshal(data)
		if err != nil || !reflect.DeepEqual(back, tc.op) {
			t.Errorf("Unmarshal(%s) = %+v, %v", data, back, err)
		}
		seen[tc.op.Kind()] = true
	}
	for kind := range decoders {
		if !seen[kind] {
			t.Errorf("no test case has kind %s", kind)
		}
	}
	for in, want := range map[string]string{
		`{}`:                                 "want one key",
		`{"Add":{},"GELU":{}}`:               "want one key",
		`[]`:                                 "want an object",
		`{"Mul":{}}`:                         `unknown kind "Mul"`,
		`{"Add":{"Rows":1,"Width":1,"X":1}}`: "unknown field",
		`{"Add":{"Rows":1}}`:                 "Width is 0",
		`{"Add":{"Rows":1.5,"Width":1}}`:     "cannot unmarshal",
	} {
		if _, err := Unmarshal([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Unmarshal(%s): error %v, want %q", in, err, want)
		}
	}
}

func TestValidate(t *testing.T) {
	for want, o := range map[string]Op{
		"K is 0":                MatMul{M: 1, N: 1},
		"N is -1":               MatMul{M: 1, K: 1, N: Rows}, // only rows may be symbolic
		"M is -4":               MatMul{M: -4, K: 1, N: 1},
		"Vocab is 1073741824":   Embed{Rows: 1, Vocab: 1 << 30, Width: 1},
		"Eps is 2":              RMSNorm{Rows: 1, Width: 1, Eps: 2},
		"Eps is NaN":            RMSNorm{Rows: 1, Width: 1, Eps: math.NaN()},
		"LayerNorm: Eps is NaN": LayerNorm{Rows: 1, Width: 1, Eps: math.NaN()},
		"Heads is -3":           RMSNorm{Rows: 1, Width: 1, Heads: -3},
		"TableHeads is -3":      RoPE{Rows: 1, Heads: 2, HeadDim: 4, TableHeads: -3},
		"65 Widths":             Concat{Rows: 1, Widths: slices.Repeat([]int{1}, 65)},
		"Eps is -1":             LayerNorm{Rows: 1, Width: 1, Eps: -1},
		"want an even number":   RoPE{Rows: 1, Heads: 1, HeadDim: 3},
		"TableHeads is 3":       RoPE{Rows: 1, Heads: 2, HeadDim: 4, TableHeads: 3},
		"a multiple of KVHeads": Attention{Rows: 1, Heads: 3, KVHeads: 2, HeadDim: 4},
		"exclude each other": Attention{
			Rows: 1, Heads: 2, KVHeads: 2, HeadDim: 4, Cached: true, HeadFirst: true,
		},
		"Split is 2":                  Attention{Rows: 1, Heads: 2, KVHeads: 2, HeadDim: 4, Split: 2},
		"Scale is NaN":                Attention{Rows: 1, Heads: 2, KVHeads: 2, HeadDim: 4, Scale: math.NaN()},
		"each of 0 to 1 once":         Permute{Shape: []int{2, 3}, Perm: []int{0, 0}},
		"2 dimensions and Perm 1":     Permute{Shape: []int{2, 3}, Perm: []int{0}},
		"columns 6 to 10 are outside": Slice{Rows: 1, Width: 8, From: 6, N: 4},
		"Widths is empty":             Concat{Rows: 1},
		"Widths[1] is 0":              Concat{Rows: 1, Widths: []int{1, 0}},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s%+v: error %v, want %q", o.Kind(), o, err, want)
		}
	}
}
