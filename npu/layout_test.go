package npu

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu/dtype"
)

// small is a set of I16 matrices whose element at row r, column c is base + 10 r + c.
type small map[string]struct{ base, rows, cols int }

func (s small) Tensor(name string) (Tensor, error) {
	m, ok := s[name]
	if !ok {
		return Tensor{}, fmt.Errorf("no tensor %q", name)
	}
	t := Tensor{Type: dtype.I16, Shape: []int{m.rows, m.cols}}
	for r := range m.rows {
		for c := range m.cols {
			t.Data = binary.LittleEndian.AppendUint16(t.Data, uint16(m.base+10*r+c))
		}
	}
	if m.rows == 1 {
		t.Shape = t.Shape[1:]
	}
	return t, nil
}

var matrices = small{"a": {0, 2, 3}, "b": {100, 2, 3}, "v": {200, 1, 3}}

func TestLayoutMaterialize(t *testing.T) {
	for _, tc := range []struct {
		layout string
		shape  []int
		want   []int
	}{
		{"a", []int{2, 3}, []int{0, 1, 2, 10, 11, 12}},
		{"v", []int{3}, []int{200, 201, 202}},
		{"transpose(a)", []int{3, 2}, []int{0, 10, 1, 11, 2, 12}},
		{"rows(a, 1, 2)", []int{1, 3}, []int{10, 11, 12}},
		{"pad(a, 3, 4)", []int{3, 4}, []int{0, 1, 2, 0, 10, 11, 12, 0, 0, 0, 0, 0}},
		{"interleave(a, b)", []int{4, 3}, []int{0, 1, 2, 100, 101, 102, 10, 11, 12, 110, 111, 112}},
		{"stack(zeros(1, 3), v)", []int{2, 3}, []int{0, 0, 0, 200, 201, 202}},
		{"stack(v, zeros(1, 3), a)", []int{4, 3}, []int{200, 201, 202, 0, 0, 0, 0, 1, 2, 10, 11, 12}},
		{"repeat(a, 2)", []int{2, 6}, []int{0, 1, 2, 0, 1, 2, 10, 11, 12, 10, 11, 12}},
		{"pad(transpose(rows(a, 0, 1)), 4, 1)", []int{4, 1}, []int{0, 1, 2, 0}},
	} {
		l, err := ParseLayout(tc.layout)
		if err != nil {
			t.Errorf("%s: %v", tc.layout, err)
			continue
		}
		if l.String() != tc.layout {
			t.Errorf("%s: written back as %s", tc.layout, l)
		}
		src := Source{Layout: l, From: matrices}
		typ, shape, err := src.Stat()
		if err != nil || typ != dtype.I16 || !slices.Equal(shape, tc.shape) {
			t.Errorf("%s: Stat = %v %v %v, want I16 %v", tc.layout, typ, shape, err, tc.shape)
			continue
		}
		dst := make([]byte, 2*len(tc.want))
		if err := src.Materialize(dst); err != nil {
			t.Errorf("%s: %v", tc.layout, err)
		}
		var got []int
		for i := 0; i < len(dst); i += 2 {
			got = append(got, int(binary.LittleEndian.Uint16(dst[i:])))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s = %v, want %v", tc.layout, got, tc.want)
		}
	}
}

// bf16 converts tensors of every type, also inside another layout.
type fixed map[string]Tensor

func (f fixed) Tensor(name string) (Tensor, error) {
	if t, ok := f[name]; ok {
		return t, nil
	}
	return Tensor{}, fmt.Errorf("no tensor %q", name)
}

func TestKeysTellLayoutsAndTensorsApart(t *testing.T) {
	tensor := func() Tensor {
		return Tensor{Type: dtype.I16, Shape: []int{2, 3},
			Data: make([]byte, 12)}
	}
	a, b := tensor(), tensor()
	turned := a
	turned.Shape = []int{3, 2}
	one, other := fixed{"w": a, "v": b, "again": a, "turned": turned}, fixed{"w": b}
	key := func(layout string, from Tensors) string {
		t.Helper()
		l, err := ParseLayout(layout)
		if err != nil {
			t.Fatal(err)
		}
		k, err := Source{Layout: l, From: from}.Key()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	if key("transpose(w)", one) != key("transpose(again)", one) || key("v", one) != key("w", other) {
		t.Error("the same tensor under two names has two keys")
	}
	seen := map[string]string{}
	for _, layout := range []string{"w", "v", "turned", "transpose(w)", "transpose(v)",
		"rows(w, 0, 1)", "rows(w, 1, 2)", "stack(w, v)", "stack(v, w)",
		"stack(w, w, v)", "interleave(w, v)", "pad(w, 3, 3)", "pad(w, 33, 3)", "repeat(w, 2)"} {
		k := key(layout, one)
		if before, ok := seen[k]; ok {
			t.Errorf("%s and %s have one key", layout, before)
		}
		seen[k] = layout
	}
	if key("w", one) == key("w", other) {
		t.Error("tensors of two checkpoints with one name have one key")
	}
	if _, err := (Source{Layout: T("gone"), From: one}).Key(); err == nil {
		t.Error("a tensor that is not there has a key")
	}
}

func TestLayoutBF16(t *testing.T) {
	tensors := typed{
		// 1 + 2^-8 is halfway between two BF16 numbers and rounds to the even one
		"f32": {dtype.F32, []int{2, 2}, dtype.AsBytes([]float32{1, 1.00390625, -2, 3})},
		"f16": {dtype.F16, []int{1, 2}, []byte{0x00, 0x3c, 0x00, 0xc0}},
		"q8":  {dtype.Q8_0, []int{32}, append([]byte{0x00, 0x3c}, make([]byte, 32)...)},
	}
	tensors["q8"].Data[2] = 5
	for layout, want := range map[string][]float32{
		"bf16(f32)":                   {1, 1, -2, 3},
		"transpose(bf16(f32))":        {1, -2, 1, 3},
		"stack(bf16(f16), bf16(f32))": {1, -2, 1, 1, -2, 3},
		"rows(bf16(q8), 0, 1)":        append([]float32{5}, make([]float32, 31)...),
	} {
		l, err := ParseLayout(layout)
		if err != nil {
			t.Fatal(err)
		}
		src := Source{Layout: l, From: tensors}
		typ, _, err := src.Stat()
		if err != nil || typ != dtype.BF16 {
			t.Errorf("%s: %v, %v", layout, typ, err)
			continue
		}
		dst := make([]byte, 2*len(want))
		if err := src.Materialize(dst); err != nil {
			t.Errorf("%s: %v", layout, err)
		}
		got := make([]float32, len(want))
		dtype.BF16ToF32(got, dtype.BFloat16s(dst))
		if !slices.Equal(got, want) {
			t.Errorf("%s = %v, want %v", layout, got, want)
		}
	}
}

// typed is a set of tensors.
type typed map[string]Tensor

func (s typed) Tensor(name string) (Tensor, error) { return s[name], nil }

// Zeros are zeros inside every operation, also if dst had other content.
func TestLayoutZeros(t *testing.T) {
	w := typed{"w": {dtype.BF16, []int{4, 2}, bytes.Repeat([]byte{0x11}, 16)}}
	for _, layout := range []string{"stack(w, zeros(4, 2))", "stack(w, repeat(zeros(4, 1), 2))",
		"stack(w, transpose(zeros(2, 4)))",
		"transpose(stack(w, repeat(zeros(4, 1), 2)))", "stack(w, pad(rows(zeros(4, 1), 1, 3), 4, " +
			"2))", "interleave(bf16(zeros(4, 2)), w)"} {
		l, err := ParseLayout(layout)
		if err != nil {
			t.Fatal(err)
		}
		dst := bytes.Repeat([]byte{0xff}, 32)
		if err := (Source{Layout: l, From: w}).Materialize(dst); err != nil {
			t.Errorf("%s: %v", layout, err)
		}
		if zeros, of := bytes.Count(dst, []byte{0}), bytes.Count(dst, []byte{0x11}); zeros != 16 ||
			of != 16 {
			t.Errorf("%s: %d zero bytes and %d of w, want 16 of each", layout, zeros, of)
		}
	}
}

// A layout built in Go is checked like a parsed one.
func TestLayoutNotFromText(t *testing.T) {
	w := typed{"w": {dtype.BF16, []int{4, 2}, make([]byte, 16)}}
	for _, l := range []Layout{{Op: "rows", Args: []Layout{T("w")}},
		{Op: "rows", Args: []Layout{T("w")}, Numbers: []int{-1, 1}}, {Op: "transpose"},
		{Op: "stack"}, {Op: "interleave", Args: []Layout{T("w")}}, {Op: "zeros",
			Numbers: []int{2}}, {Op: "spin", Args: []Layout{T("w")}}} {
		if _, _, err := (Source{Layout: l, From: w}).Stat(); err == nil {
			t.Errorf("%s: accepted", l)
		}
	}
}

// A source without From is an error, except for zeros, which need no tensor.
func TestSourceWithoutTensors(t *testing.T) {
	for _, s := range []Source{{}, {Layout: T("a")},
		{Layout: Layout{Op: "transpose", Args: []Layout{T("a")}}}} {
		_, _, stat := s.Stat()
		_, key := s.Key()
		for what, err := range map[string]error{"Stat": stat, "Key": key,
			"Materialize": s.Materialize(nil)} {
			if err == nil || !strings.Contains(err.Error(), "Source.From is nil") {
				t.Errorf("%s of %v: %v", what, s.Layout, err)
			}
		}
	}
}

func TestLayoutErrors(t *testing.T) {
	for layout, want := range map[string]string{
		"":                                      "expected a tensor",
		"spin(a)":                               "unknown operation",
		"rows(a, 1)":                            "wrong arguments",
		"rows(a, 1, x)":                         "not a number",
		"transpose(a, b)":                       "not a number",
		"transpose(a":                           "expected , or )",
		"stack()":                               "wrong arguments",
		"a)":                                    "unexpected",
		strings.Repeat("transpose(", 40):        "nested deeper",
		"rows(a, 1, 3)":                         "has 2 rows",
		"pad(a, 1, 3)":                          "is larger",
		"interleave(a, v)":                      "differ",
		"stack(a, transpose(a))":                "rows differ",
		"zeros(0, 2)":                           "out of range",
		"zeros(2, 2)":                           "no element type",
		"transpose(zeros(3000000, 4000000000))": "not a number in range",
		"stack(a, zeros(2000000000, 2000000000))": "out of range",
		// and does not ask for a terabyte to say so
		"transpose(pad(a, 1048576, 1048576))":      "out of range",
		"repeat(repeat(a, 100000), 100000)":        "out of range",
		"nowhere":                                  `no tensor "nowhere"`,
		"repeat(a, 0)":                             "repeat count 0",
		"transpose(stack(a, zeros(1, 3), zeros)))": "unexpected",
	} {
		l, err := ParseLayout(layout)
		if err == nil {
			_, _, err = Source{Layout: l, From: matrices}.Stat()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one about %q", layout, err, want)
		}
	}
}
