package dtype

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// goldens returns blocks and their values according to the Python package gguf; see
// testdata/make_golden.py.
func goldens(tb testing.TB) map[Type]struct{ blocks, values []byte } {
	tb.Helper()
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		tb.Fatal(err)
	}
	var file map[string]map[string]string
	if err := json.Unmarshal(text, &file); err != nil {
		tb.Fatal(err)
	}
	unpack := func(s string) []byte {
		z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(s)))
		if err != nil {
			tb.Fatal(err)
		}
		b, err := io.ReadAll(z)
		if err != nil {
			tb.Fatal(err)
		}
		return b
	}
	all := map[Type]struct{ blocks, values []byte }{}
	for name, v := range file {
		typ, err := Parse(name)
		if err != nil {
			tb.Fatal(err)
		}
		all[typ] = struct{ blocks, values []byte }{unpack(v["blocks"]), unpack(v["values"])}
	}
	return all
}

func TestBlocksBitEqualToReference(t *testing.T) {
	all := goldens(t)
	for typ := Invalid + 1; typ.Valid(); typ++ {
		if _, ok := all[typ]; typ.Quantized() && !ok {
			t.Errorf("no golden blocks of %v", typ)
		}
	}
	for typ, g := range all {
		want := Float32s(g.values)
		got := make([]float32, len(want))
		if err := Dequantize(got, typ, g.blocks); err != nil {
			t.Error(err)
		}
		elems, _ := typ.Block()
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Errorf("%v block %d element %d: %v, reference %v", typ, i/elems, i%elems, got[i], want[i])
				break
			}
		}
	}
}

func TestDequantizePlainTypes(t *testing.T) {
	le := binary.LittleEndian
	f32 := math.Float32bits
	for _, tc := range []struct {
		t    Type
		src  []byte
		want []float32
	}{
		{F32, le.AppendUint32(le.AppendUint32(nil, f32(-1.5)), f32(3)), []float32{-1.5, 3}},
		{F64, le.AppendUint64(nil, math.Float64bits(-0.25)), []float32{-0.25}},
		{BF16, []byte{0x80, 0x3f, 0x20, 0xc1}, []float32{1, -10}},
		{F16, []byte{0x00, 0x3c, 0x01, 0x00}, []float32{1, 5.9604645e-08}},
		{I64, le.AppendUint64(nil, math.MaxUint64-6), []float32{-7}},
		{I32, le.AppendUint32(nil, math.MaxUint32-6), []float32{-7}},
		{I16, le.AppendUint16(nil, math.MaxUint16-6), []float32{-7}},
		{I8, []byte{0x80, 127}, []float32{-128, 127}},
		{U8, []byte{0x80, 127}, []float32{128, 127}},
		{Bool, []byte{0, 1, 2}, []float32{0, 1, 1}},
	} {
		// The same bytes at an odd address have the same values.
		odd := append(make([]byte, 1, 64), tc.src...)[1:]
		for _, src := range [][]byte{tc.src, odd} {
			got := make([]float32, len(tc.want))
			if err := Dequantize(got, tc.t, src); err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("%v: %v, %v, want %v", tc.t, got, err, tc.want)
			}
		}
	}
}

func TestDequantizeChecksSizes(t *testing.T) {
	for _, tc := range []struct {
		t    Type
		n    int
		src  int
		want string
	}{
		{Invalid, 1, 0, "cannot dequantize"},
		{Type(200), 1, 1, "cannot dequantize"},
		{F32, 2, 7, "2 elements of F32 take 8 bytes, not 7"},
		{Q8_0, 31, 34, "not a whole number of Q8_0 blocks of 32"},
		{Q8_0, 64, 34, "take 68 bytes, not 34"},
		{Q4_K, 32, 18, "not a whole number of Q4_K blocks of 256"},
	} {
		err := Dequantize(make([]float32, tc.n), tc.t, make([]byte, tc.src))
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, %d elements from %d bytes: %v, want error %q", tc.t, tc.n, tc.src, err, tc.want)
		}
	}
	for typ := Invalid + 1; typ.Valid(); typ++ {
		if err := Dequantize(nil, typ, nil); err != nil {
			t.Errorf("no elements of %v: %v", typ, err)
		}
	}
}

func TestViews(t *testing.T) {
	buf := AsBytes(make([]uint64, 4)) // aligned for every type
	binary.LittleEndian.PutUint32(buf[4:], math.Float32bits(2.5))
	v, ok := View[float32](buf[4:12])
	if !ok || len(v) != 2 || v[0] != 2.5 {
		t.Fatalf("View = %v, %v", v, ok)
	}
	v[1] = 7
	if got := Float32s(buf[8:12]); got[0] != 7 {
		t.Errorf("a write to the view did not change the bytes: %v", got)
	}
	if _, ok := View[float32](buf[1:9]); ok {
		t.Error("View of a misaligned slice succeeded")
	}
	if _, ok := View[float32](buf[:7]); ok {
		t.Error("View of 7 bytes as 4-byte elements succeeded")
	}
	if v, ok := View[float32](nil); !ok || len(v) != 0 {
		t.Errorf("View(nil) = %v, %v, want empty, true", v, ok)
	}
	copy(buf[1:], bytes.Repeat([]byte{0x80, 0x3f}, 4))
	if got := BFloat16s(buf[1:8]); len(got) != 3 || got[2].Float32() != 1 {
		t.Errorf("misaligned BFloat16s = %v, want three ones", got)
	}
	if got := Float16s(buf[1:5]); len(got) != 2 || got[0].Bits() != 0x3f80 {
		t.Errorf("misaligned Float16s = %v", got)
	}
	if got := Int32s(buf[1:5]); got[0] != 0x3f803f80 {
		t.Errorf("misaligned Int32s = %#x", got)
	}
	if got := Int64s(buf[1:9]); got[0] != 0x3f803f803f803f80 {
		t.Errorf("misaligned Int64s = %#x", got)
	}
}

func TestTypeNames(t *testing.T) {
	for typ := Invalid + 1; typ.Valid(); typ++ {
		text, err := typ.MarshalText()
		if err != nil {
			t.Error(err)
		}
		var back Type
		if err := back.UnmarshalText(text); err != nil || back != typ {
			t.Errorf("round trip of %v = %v, %v", typ, back, err)
		}
		if elems, size := typ.Block(); typ.Bytes(3*elems) != 3*size {
			t.Errorf("%v: 3 blocks take %d bytes, want %d", typ, typ.Bytes(3*elems), 3*size)
		}
	}
	for _, name := range []string{"", "invalid", "f32", "IQ2_XS"} {
		if typ, err := Parse(name); err == nil {
			t.Errorf("Parse(%q) = %v, want an error", name, typ)
		}
	}
}

func BenchmarkDequantize(b *testing.B) {
	for typ, g := range goldens(b) {
		b.Run(typ.String(), func(b *testing.B) {
			dst := make([]float32, len(g.values)/4)
			b.SetBytes(int64(len(g.values)))
			for b.Loop() {
				if err := Dequantize(dst, typ, g.blocks); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A Q4_0 block is a half-precision scale and 32 four-bit numbers biased by 8.
func ExampleDequantize() {
	block := make([]byte, 18)
	block[1] = 0x38          // scale 0.5
	block[2] = 0x0f | 0x1<<4 // element 0 is 15, element 16 is 1
	row := make([]float32, 32)
	if err := Dequantize(row, Q4_0, block); err != nil {
		fmt.Println(err)
	}
	fmt.Println(row[0], row[1], row[16])
	// Output: 3.5 -4 -3.5
}
