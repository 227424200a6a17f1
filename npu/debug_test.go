package npu

import (
	"slices"
	"testing"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// The debug form of a real artifact exposes the scratch that its launches fill. Only a sum in a
// constant's scratch row stays hidden.
func TestDebugForm(t *testing.T) {
	p := decodeFFN()
	d := p.Debug()
	if err := d.Err(); err != nil {
		t.Fatal(err)
	}
	for i, a := range p.Args {
		want := a.Kind
		switch a.Name {
		case "dead2", "dead5", "dead8", "dead10", "swiglu", "dead13":
			want = Out
		}
		if d.Args[i].Kind != want {
			t.Errorf("argument %q is %s in the debug form, want %s", a.Name, d.Args[i].Kind, want)
		}
	}
	if p.Args[2].Kind != Scratch {
		t.Error("the program itself was changed")
	}
	var names []string
	for _, tap := range d.Taps() {
		names = append(names, tap.Launch)
	}
	if want := []string{"attn.o", "ffn.norm", "ffn.gate", "ffn.up", "ffn.act", "ffn.down",
		"ffn.residual"}; !slices.Equal(names, want) {
		t.Errorf("taps %q, want %q", names, want)
	}
}

// An output that a later launch overwrites has no tap.
func TestOverwrittenOutputIsNoTap(t *testing.T) {
	p := NewProgram("p")
	x := p.In("x", dtype.F32, 4, 8)
	s, y := p.Scratch("s", dtype.F32, 4, 8), p.Out("y", dtype.F32, 4, 8)
	p.Launch("first", op.Cast{Rows: 4, Width: 8}, x, s)
	p.Launch("second", op.Cast{Rows: 2, Width: 8}, x.Rows(0, 2), s.Rows(2, 2))
	p.Launch("third", op.Cast{Rows: 4, Width: 8}, s, y)
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tap := range p.Debug().Taps() {
		names = append(names, tap.Launch)
	}
	if want := []string{"second", "third"}; !slices.Equal(names, want) {
		t.Errorf("taps %q, want %q", names, want)
	}
}
