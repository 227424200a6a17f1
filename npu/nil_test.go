package npu

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Nil arguments are typed errors, or mean what the documentation states.
func TestNilArguments(t *testing.T) {
	var none *Program
	var program *ProgramError
	if err := none.Err(); !errors.As(err, &program) {
		t.Errorf("a nil program: %v", err)
	}
	p := NewProgram("p")
	p.Launch("l", nil)
	if err := p.Err(); !errors.As(err, &program) || program.Launch != "l" {
		t.Errorf("a nil op: %v", err)
	}
	p = NewProgram("p")
	p.Launch("l", op.Add{Rows: 1, Width: 1}, Ref{})
	if err := p.Err(); !errors.As(err, &program) {
		t.Errorf("the zero Ref: %v", err)
	}
	var run *RunError
	if err := (&Run{Name: "r"}).Check(); !errors.As(err, &run) || run.Run != "r" {
		t.Errorf("a run without an executable: %v", err)
	}
	var layout *LayoutError
	for name, call := range map[string]func() error{
		"Stat":        func() error { _, _, err := (Source{Layout: T("w")}).Stat(); return err },
		"Key":         func() error { _, err := (Source{Layout: T("w")}).Key(); return err },
		"Materialize": func() error { return (Source{Layout: T("w")}).Materialize(nil) },
	} {
		if err := call(); !errors.As(err, &layout) {
			t.Errorf("%s without Source.From: %v", name, err)
		}
	}
	if HostOf(nil) != nil || HostBuffer(nil) != nil {
		t.Error("the host of nothing is something")
	}
	ctx := context.Background()
	if Tracer(WithTracer(ctx, nil)) != nil || Tracer(JoinTracers(ctx, ctx,
		WithTracer(ctx, nil))) != nil {
		t.Error("a nil tracer is not nil")
	}
}

// Errors about files name what is wrong and can be told from a device's.
func TestTypedErrors(t *testing.T) {
	var program *ProgramError
	for _, text := range []string{`{`, `{"name":"p","extra":1}`, `{"name":"","args":[],"launches":[]}`,
		`{"name":"p","launches":[{"name":"l","op":{"kind":"Nothing"},"args":[]}]}`} {
		if err := new(Program).UnmarshalJSON([]byte(text)); !errors.As(err, &program) {
			t.Errorf("%s: %v is not a ProgramError", text, err)
		}
	}
	var layout *LayoutError
	if _, err := ParseLayout("stack("); !errors.As(err, &layout) {
		t.Errorf("%v is not a LayoutError", err)
	}
}

// Without segments the rows are those of the program's first output.
func TestRunRows(t *testing.T) {
	for _, tc := range []struct {
		shape    []int
		segments []Segment
		want     int
	}{
		{[]int{64, 8}, nil, 64},
		{[]int{8}, nil, 1},
		{[]int{1, 8}, nil, 1},
		{[]int{64, 8}, []Segment{{Rows: 3}, {Rows: 4}}, 7},
		{[]int{op.Rows, 8}, nil, 0},
		{[]int{op.Rows, 8}, []Segment{{Rows: 3}}, 3},
	} {
		p := NewProgram("p")
		p.In("x", dtype.F32, 5, 8)
		p.Out("y", dtype.F32, tc.shape...)
		p.Out("z", dtype.F32, 9, 8)
		r := Run{Exec: loaded{p}, Segments: tc.segments}
		if got := r.rows(); got != tc.want {
			t.Errorf("an output %v with segments %v: %d rows, want %d", tc.shape, tc.segments, got, tc.want)
		}
	}
	if got := (&Run{}).rows(); got != 0 {
		t.Errorf("a run without an executable has %d rows", got)
	}
}

// What a server sends about a device has stable names.
func TestInfoJSON(t *testing.T) {
	info := Info{Name: "n", Kind: "cpu", AnyRows: true, InPlace: []dtype.Type{dtype.BF16, dtype.Q4_0},
		Threads: 2, FewRows: 16}
	data, err := json.Marshal(info)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"name":"n","kind":"cpu","array":"","any_rows":true,"in_place":["BF16","Q4_0"],"threads":2,` +
		`"few_rows":16}`
	if string(data) != want {
		t.Errorf("got %s\nwant %s", data, want)
	}
	data, err = json.Marshal(Span{Name: "a", Category: "op", Duration: 7})
	if err != nil || !strings.HasPrefix(string(data), `{"name":"a","category":"op","start":`) ||
		!strings.HasSuffix(string(data), `"duration_ns":7}`) {
		t.Errorf("got %s, %v", data, err)
	}
}
