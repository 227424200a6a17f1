package npu

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// FuzzProgram checks that reading any bytes returns an error or a valid program, whose views lie
// inside their arguments and which is written as it was read.
func FuzzProgram(f *testing.F) {
	add := func(p *Program) {
		b, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	add(decodeFFN())
	add(biasProgram())
	p := NewProgram("decode")
	x, table := p.In("x", dtype.BF16, op.Rows, 64), p.In("table", dtype.F32, op.Rows, 32)
	k, y := p.State("k", dtype.F16, 1, op.Capacity, 32), p.Out("y", dtype.BF16, op.Rows, 64)
	rotated := p.Scratch("rotated", dtype.BF16, op.Rows, 64)
	key, w := p.Scratch("key", dtype.BF16, op.Rows, 32), p.Const("w", dtype.Q4_0, 32, 64)
	p.Launch("rope", op.RoPE{Rows: op.Rows, Heads: 2, HeadDim: 32}, x, table, rotated)
	p.Launch("key", op.MatMul{M: op.Rows, K: 64, N: 32, TransB: true}, x, w, key)
	p.Map(Mapping{Variant: "direct", Tile: []int{8, 8}, Herd: []int{4, 4}, Layout: "seq-first", Fused: "a"})
	p.Launch("write", op.KVWrite{Rows: op.Rows, KVHeads: 1, HeadDim: 32}, key, k)
	attention := op.Attention{Rows: op.Rows, Heads: 2, KVHeads: 1, HeadDim: 32, Cached: true}
	p.Launch("attend", attention, rotated, k, k, y)
	add(p)
	p = NewProgram("views")
	in, out := p.In("in", dtype.F32, 8, 16), p.Out("out", dtype.F32, 4, 8)
	norm := p.Const("norm", dtype.F32, 3, 8).WithScratchRows(1)
	p.Launch("cast", op.Cast{Rows: 1, Width: 8}, in.Rows(7, 1).Cols(8, 8), norm.Rows(0, 1))
	p.Launch("add", op.Add{Rows: 4, Width: 8}, in.Every(1, 2).Cols(0, 8), in.Rows(4, 4).Cols(4, 8), out)
	add(p)

	f.Fuzz(func(t *testing.T, b []byte) {
		var p Program
		if err := json.Unmarshal(b, &p); err != nil {
			return
		}
		if err := p.Err(); err != nil {
			t.Fatalf("it was read, and is no valid program: %v", err)
		}
		for _, l := range p.Launches {
			for _, v := range l.Args {
				a := p.Args[v.Arg]
				whole, ok := elements(a.Shape)
				m := v.Matrix(a.Shape)
				if !ok || v.Offset < 0 || m.Width <= 0 || m.Rows > 0 && m.end() > whole {
					t.Fatalf("launch %q: view %+v reaches outside %q, which is %v", l.Name, v, a.Name, a.Shape)
				}
			}
			l.Op.FLOPs(op.Size{Rows: 3, Picks: 2, Capacity: 8, Pos: 1})
		}
		for i := range p.Args {
			p.LooksUp(i)
		}
		written, err := json.Marshal(&p)
		if err != nil {
			t.Fatal(err)
		}
		var again Program
		if err := json.Unmarshal(written, &again); err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		if second, err := json.Marshal(&again); err != nil || !bytes.Equal(written, second) {
			t.Errorf("written, read and written again it is\n%s\nand was\n%s (%v)", second, written, err)
		}
	})
}
