package xdna2

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

func TestArrayJSON(t *testing.T) {
	data, err := json.Marshal(NPU2())
	if err != nil {
		t.Fatal(err)
	}
	var back Array
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*NPU2(), back) {
		t.Errorf("read back: %+v", back)
	}
	v := reflect.ValueOf(*NPU2())
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is zero", v.Type().Field(i).Name)
		}
	}
}

// The rules take their numbers from the array: less fits on one with half the columns or a quarter
// of the core memory.
func TestSmallerArrayFitsLess(t *testing.T) {
	half := NPU2()
	half.Columns = 4
	small := NPU2()
	small.CoreMemory /= 4
	o := op.MatMul{M: 2048, K: 2048, N: 2048}
	wide := gemmMap("drain", 32, 256, 32, 128)
	narrow := npu.Mapping{Variant: "drain", Tile: []int{32, 256, 32, 128}, Herd: []int{4, 4}}
	for _, tc := range []struct {
		name string
		a    *Array
		m    npu.Mapping
		fits bool
	}{
		{"npu2, 8 columns", NPU2(), wide, true},
		{"8 of 4 columns", half, wide, false},
		{"4 of 4 columns", half, narrow, true},
		{"16 KB per core", small, narrow, false},
	} {
		if got := Fits(o, nil, tc.m, tc.a); got != tc.fits {
			t.Errorf("%s: Fits = %v, want %v", tc.name, got, tc.fits)
		}
	}
}
