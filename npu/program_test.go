package npu

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// decodeFFN is the real artefact o_gemv_ffn of Llama-3.2-1B: 15 arguments, of which seven are dead
// on the chip, a const whose row 0 is scratch, and gate and up interleaved row by row. Written as
// single ops it fills some of the dead arguments with the values between.
func decodeFFN() *Program {
	const emb, q, hid = 2048, 2048, 8192
	p := NewProgram("o_gemv_ffn")
	wo := p.Const("wo", dtype.BF16, emb, q)
	attn := p.In("attn", dtype.BF16, q)
	proj := p.Scratch("dead2", dtype.BF16, emb)
	x := p.In("x", dtype.BF16, emb)
	p.Scratch("dead4", dtype.BF16, emb)
	normed := p.Scratch("dead5", dtype.BF16, emb)
	packed := p.Const("packed", dtype.BF16, 2, emb).WithScratchRows(1)
	gateUp := p.Const("gate_up", dtype.BF16, 2*hid, emb)
	gate := p.Scratch("dead8", dtype.BF16, hid)
	p.Scratch("dead9", dtype.BF16, hid, emb)
	up := p.Scratch("dead10", dtype.BF16, hid)
	act := p.Scratch("swiglu", dtype.BF16, hid)
	wdown := p.Const("wdown", dtype.BF16, emb, hid)
	down := p.Scratch("dead13", dtype.BF16, emb)
	y := p.Out("y", dtype.BF16, emb)

	sum, norm := packed.Rows(0, 1), packed.Rows(1, 1)
	p.Launch("attn.o", op.MatMul{M: 1, K: q, N: emb, TransB: true}, attn, wo, proj)
	p.Launch("attn.residual", op.Add{Rows: 1, Width: emb}, proj, x, sum)
	p.Launch("ffn.norm", op.RMSNorm{Rows: 1, Width: emb, Eps: 1e-5}, sum, norm, normed)
	p.Launch("ffn.gate", op.MatMul{M: 1, K: emb, N: hid, TransB: true}, normed, gateUp.Every(0, 2),
		gate)
	p.Launch("ffn.up", op.MatMul{M: 1, K: emb, N: hid, TransB: true}, normed, gateUp.Every(1, 2), up)
	p.Launch("ffn.act", op.SiLUMul{Rows: 1, Width: hid}, gate, up, act)
	p.Launch("ffn.down", op.MatMul{M: 1, K: hid, N: emb, TransB: true}, act, wdown, down)
	p.Launch("ffn.residual", op.Add{Rows: 1, Width: emb}, down, sum, y)
	return p
}

// biasProgram is part of the real artefact rms_qkv_bias_rope of Qwen2.5-0.5B: the projection is
// padded to 1024 columns and the bias launch drops the padding.
func biasProgram() *Program {
	p := NewProgram("rms_qkv_bias_rope")
	x := p.In("x", dtype.BF16, 2048, 896)
	w := p.Const("wq", dtype.BF16, 896, 1024)
	q := p.Scratch("q", dtype.BF16, 2048, 1024)
	b := p.Const("bq", dtype.BF16, 896)
	y := p.Out("y", dtype.BF16, 2048*896) // flat, as the artefact has it
	p.Launch("attn.q", op.MatMul{M: 2048, K: 896, N: 1024}, x, w, q)
	p.Map(Mapping{Variant: "drain", Tile: []int{64, 64, 64}, Herd: []int{8, 4}})
	p.Launch("attn.q_bias", op.Add{Rows: 2048, Width: 896, Broadcast: true}, q.Cols(0, 896), b,
		y.As(2048, 896))
	return p
}

func TestRealArtefactsAreExpressible(t *testing.T) {
	for _, p := range []*Program{decodeFFN(), biasProgram()} {
		if err := p.Err(); err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back Program
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		if !reflect.DeepEqual(p, &back) {
			t.Errorf("%s: reading back what was written gives another program", p.Name)
		}
	}
}

func TestProgramMistakes(t *testing.T) {
	norm := op.RMSNorm{Rows: op.Rows, Width: 8, Eps: 1e-5}
	for _, tc := range []struct {
		name, want string
		build      func(p *Program)
	}{
		{"shape", `argument "x": shape [rows 9], RMSNorm wants [rows 8] as x`, func(p *Program) {
			p.Launch("n", norm, p.In("x", dtype.F32, op.Rows, 9), p.Const("w", dtype.F32, 8),
				p.Out("y", dtype.F32, op.Rows, 8))
		}},
		{"type", `launch "n", argument "x": type I32`, func(p *Program) {
			p.Launch("n", norm, p.In("x", dtype.I32, op.Rows, 8), p.Const("w", dtype.F32, 8),
				p.Out("y", dtype.F32, op.Rows, 8))
		}},
		{"count", "takes 3 arguments, got 2", func(p *Program) {
			p.Launch("n", norm, p.In("x", dtype.F32, op.Rows, 8), p.Const("w", dtype.F32, 8))
		}},
		{"written input", `"x": an input cannot be written`, func(p *Program) {
			x := p.In("x", dtype.F32, op.Rows, 8)
			p.Launch("n", norm, x, p.Const("w", dtype.F32, 8), x)
		}},
		{"written const", `"w": a const cannot`, func(p *Program) {
			w := p.Const("w", dtype.F32, 8)
			p.Launch("n", op.RMSNorm{Rows: 1, Width: 8}, p.In("x", dtype.F32, 1, 8), w, w)
		}},
		{"use before definition", `"s": read before any launch has written it`, func(p *Program) {
			p.Launch("n", norm, p.Scratch("s", dtype.F32, op.Rows, 8), p.Const("w", dtype.F32, 8),
				p.Out("y", dtype.F32, op.Rows, 8))
		}},
		{"half defined", `"s": read before any`, func(p *Program) {
			s := p.Scratch("s", dtype.F32, 2, 8)
			x, w := p.In("x", dtype.F32, 1, 8), p.Const("w", dtype.F32, 8)
			p.Launch("n", op.RMSNorm{Rows: 1, Width: 8}, x, w, s.Rows(0, 1))
			p.Launch("m", op.RMSNorm{Rows: 2, Width: 8}, s, w, p.Out("y", dtype.F32, 2, 8))
		}},
		{"output never written", `"y": no launch writes all of this output`,
			func(p *Program) { p.Out("y", dtype.F32, 8) }},
		{"same name twice", `"x": duplicate name`, func(p *Program) {
			p.In("x", dtype.F32, 8)
			p.In("x",
				dtype.F32, 8)
		}},
		{"no dimension", ": 0 dimensions", func(p *Program) { p.In("x", dtype.F32) }},
		{"negative dimension", "out of range", func(p *Program) { p.In("x", dtype.F32, 4, -9) }},
		{"overflow", "out of range", func(p *Program) { p.In("x", dtype.F32, 1<<31, 1<<31) }},
		{"cut block", "whole blocks of 32", func(p *Program) { p.Const("w", dtype.Q4_0, 4, 33) }},
		{"rows outside", "rows 1 to 3 are out of range",
			func(p *Program) { p.In("x", dtype.F32, 2, 8).Rows(1, 2) }},
		{"both scratch rows and weights", "both scratch rows and weights", func(p *Program) {
			w := p.Const("w", dtype.F32, 2, 8).WithScratchRows(1)
			x := p.In("x", dtype.F32, 1, 8)
			p.Launch("s", op.Cast{Rows: 1, Width: 8}, x, w.Rows(0, 1))
			p.Launch("n", op.MatMul{M: 1, K: 8, N: 2, TransB: true}, x, w, p.Out("y", dtype.F32, 1, 2))
		}},
		{"columns outside", "columns 4 to 12 are out of range",
			func(p *Program) { p.In("x", dtype.F32, 2, 8).Cols(4, 8) }},
		{"wrong reshape", "cannot be viewed as [3 5]",
			func(p *Program) { p.In("x", dtype.F32, 2, 8).As(3, 5) }},
		{"bad op", "Heads is 3, want a multiple of KVHeads (2)", func(p *Program) {
			p.Launch("a", op.Attention{Rows: op.Rows, Heads: 3, KVHeads: 2, HeadDim: 8})
		}},
		{"launch name twice", `launch "n": duplicate name`, func(p *Program) {
			x, w := p.In("x", dtype.F32, op.Rows, 8), p.Const("w", dtype.F32, 8)
			p.Launch("n", norm, x, w, p.Out("y", dtype.F32, op.Rows, 8))
			p.Launch("n", norm, x, w, p.Out("z", dtype.F32, op.Rows, 8))
		}},
		{"product over its own input", `"s": dst overlaps a, but MatMul does not work in place`,
			func(p *Program) {
				s := p.Scratch("s", dtype.F32, 4, 8)
				p.Launch("a", op.Cast{Rows: 4, Width: 8}, p.In("x", dtype.F32, 4, 8), s)
				p.Launch("b", op.MatMul{M: 4, K: 8, N: 8}, s, p.Const("w", dtype.F32, 8, 8), s)
			}},
		{"columns of open rows over their input", `"s": dst overlaps x, but Slice does not work in place`,
			func(p *Program) {
				s := p.Scratch("s", dtype.F32, op.Rows, 8)
				p.Launch("a", op.Cast{Rows: op.Rows, Width: 8}, p.In("x", dtype.F32, op.Rows, 8), s)
				p.Launch("b", op.Slice{Rows: op.Rows, Width: 4, N: 4}, s.Cols(0, 4), s.Cols(3, 4))
			}},
		{"sum a row further", `"s": dst overlaps a in part`, func(p *Program) {
			s := p.Scratch("s", dtype.F32, 4, 8)
			p.Launch("a", op.Cast{Rows: 4, Width: 8}, p.In("x", dtype.F32, 4, 8), s)
			p.Launch("b", op.Add{Rows: 3, Width: 8}, s.Rows(0, 3), s.Rows(0, 3), s.Rows(1, 3))
		}},
		{"norm over its weight", `"s": dst overlaps w`, func(p *Program) {
			s := p.Scratch("s", dtype.F32, 2, 8)
			p.Launch("a", op.Cast{Rows: 2, Width: 8}, p.In("x", dtype.F32, 2, 8), s)
			p.Launch("b", op.RMSNorm{Rows: 2, Width: 8}, s, s.Rows(1, 1), s)
		}},
		{"heads with gaps", `"x": rows are not contiguous, Permute wants [1 4 8] as x`, func(p *Program) {
			x := p.In("x", dtype.F32, 4, 16)
			p.Launch("p", op.Permute{Shape: []int{1, 4, 8}, Perm: []int{1, 0, 2}}, x.Cols(0, 8),
				p.Out("y", dtype.F32, 4, 1, 8))
		}},
		{"part of a cache", `"c": a partial view: a state argument must be passed whole`,
			func(p *Program) {
				c := p.State("c", dtype.F32, op.Capacity, 8)
				p.Launch("k", op.KVWrite{Rows: op.Rows, KVHeads: 1, HeadDim: 4},
					p.In("x", dtype.F32, op.Rows, 4), c.Cols(4, 4))
			}},
		{"another program's argument", "belongs to another program", func(p *Program) {
			q := NewProgram("q")
			p.Launch("n", norm, q.In("x", dtype.F32, op.Rows, 8), p.Const("w", dtype.F32, 8),
				p.Out("y", dtype.F32, op.Rows, 8))
		}},
		{"an op's address", "op is a *op.RMSNorm: pass the struct itself", func(p *Program) {
			p.Launch("n", &norm, p.In("x", dtype.F32, op.Rows, 8), p.Const("w", dtype.F32, 8),
				p.Out("y", dtype.F32, op.Rows, 8))
		}},
		{"a mapping of nothing", "Map was called before the first Launch", func(p *Program) {
			p.Map(Mapping{Variant: "scalar"})
			p.Launch("n", norm, p.In("x", dtype.F32, op.Rows, 8), p.Const("w", dtype.F32, 8),
				p.Out("y", dtype.F32, op.Rows, 8))
		}},
	} {
		p := NewProgram("test")
		tc.build(p)
		if err := p.Err(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one saying %q", tc.name, err, tc.want)
		}
		if data, err := json.Marshal(p); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: written as %s (%v)", tc.name, data, err)
		}
	}
	// as Plan.Program returns for an unknown name
	if err := (*Program)(nil).Err(); err == nil {
		t.Error("no program is no mistake")
	}
	p := NewProgram("test")
	p.In("x", dtype.F32)
	var arg *ProgramError
	if !errors.As(p.Err(), &arg) || arg.Program != "test" || arg.Arg != "x" {
		t.Errorf("the error does not name program and argument: %v", p.Err())
	}
}

func TestProgramJSONErrors(t *testing.T) {
	for in, want := range map[string]string{
		`{"name":"p","args":[],"launches":[],"color":1}`:                             "color",
		`{"name":"","args":[],"launches":[]}`:                                        "no name",
		`{"name":"p","args":[{"name":"x","kind":"in","type":"F31","shape":[1]}]}`:    "F31",
		`{"name":"p","args":[{"name":"x","kind":"inn","type":"F32","shape":[1]}]}`:   "inn",
		`{"name":"p","args":[],"launches":[{"name":"l","op":{"Mul":{}},"args":[]}]}`: `unknown kind "Mul"`,
		`{"name":"p","args":[],"launches":[{"name":"l","op":{"Add":{"Rows":-7}},"args":[]}]}`: "Rows " +
			"is -7",
		`{"name":"p","args":[{"name":"x","kind":"out","type":"F32","shape":[4]}],
		  "launches":[{"name":"l","op":{"Cast":{"Rows":1,"Width":4}},"args":[{"arg":7},
		{"arg":0}]}]}`: "argument 7 does not exist",
		`{"name":"p","args":[{"name":"x","kind":"in","type":"F32","shape":[4]},{"name":"y","kind":"out","type":"F32",
		"shape":[4]}],
		  "launches":[{"name":"l","op":{"Cast":{"Rows":1,"Width":4}},"args":[{"arg":0,"offset":2,"shape":[4]},
		{"arg":1}]}]}`: "exceeds shape",
		`{"name":"p","args":[{"name":"x","kind":"in","type":"F32","shape":[-3]}]}`: "Capacity is " +
			"for State only",
		`{"name":"p","args":[{"name":"x","kind":"in","type":"F32","shape":[-1,-1]}]}`: "one dimension " +
			"may be symbolic",
		view(`"stride":1099511627776,"shape":[-1,4]`): "exceeds shape",
		// not the rows' own distance
		view(`"stride":9,"shape":[-1,4]`):                   "exceeds shape",
		view(`"stride":8,"shape":[-1,4],"offset":5`):        "exceeds shape",
		view(`"shape":[-1,4],"offset":9223372036854775807`): "malformed",
		view(`"shape":[-1,4],"stride":-8`):                  "malformed",
		view(`"shape":[-1,4611686018427387904]`):            "malformed",
		view(`"shape":[2,4],"stride":4611686018427387904`):  "malformed",
		// half of each row, as if they lay together
		view(`"shape":[-1,2,2]`): "exceeds shape",
	} {
		var p Program
		if err := json.Unmarshal([]byte(in), &p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n  error %v, want one about %q", in, err, want)
		}
	}
}

// view is a program of which one launch sees an argument [rows 8] by that view.
func view(v string) string {
	return `{"name":"p","args":[{"name":"x","kind":"in","type":"F32","shape":[-1,8]},{"name":"y","kind":"out",
		"type":"F32","shape":[-1,4]}],
		"launches":[{"name":"l","op":{"Cast":{"Rows":-1,"Width":4}},"args":[{"arg":0,` + v + `},{"arg":1}]}]}`
}

// Views of an argument with open rows are columns of every row.
func TestOpenRowsViews(t *testing.T) {
	var p Program
	if err := json.Unmarshal([]byte(view(`"stride":8,"shape":[-1,4],"offset":4`)), &p); err != nil {
		t.Error(err)
	}
	q := NewProgram("q")
	x := q.In("x", dtype.F32, op.Rows, 8)
	q.Launch("l", op.Cast{Rows: op.Rows, Width: 8}, x.As(op.Rows, 8),
		q.Out("y", dtype.F32, op.Rows, 8))
	if err := q.Err(); err != nil {
		t.Error(err)
	}
}

// Ops work in place if they allow it, and views of one argument that do not overlap are
// independent.
func TestOutputsBesideTheirInputs(t *testing.T) {
	p := NewProgram("p")
	x, w, m := p.In("x", dtype.F32, 1, 4, 8), p.Const("w", dtype.F32, 8), p.Const("m", dtype.F32, 8, 8)
	s := p.Scratch("s", dtype.F32, 4, 8)
	p.Launch("copy", op.Cast{Rows: 4, Width: 8}, x, s)
	p.Launch("sum", op.Add{Rows: 4, Width: 8}, s, x, s.As(1, 4, 8))
	p.Launch("norm", op.RMSNorm{Rows: 4, Width: 8}, s, w, s)
	p.Launch("columns", op.Slice{Rows: 4, Width: 4, N: 4}, s.Cols(0, 4), s.Cols(4, 4))
	p.Launch("rows", op.MatMul{M: 2, K: 8, N: 8}, s.Rows(0, 2), m, s.Rows(2, 2))
	p.Launch("every", op.MatMul{M: 2, K: 8, N: 8}, s.Every(0, 2), m, s.Every(1, 2))
	p.Launch("row", op.Slice{Rows: 1, Width: 8, N: 4}, s.Rows(3, 1), s.Rows(1, 1).Cols(2, 4))
	p.Launch("out", op.Cast{Rows: 4, Width: 8}, s, p.Out("y", dtype.F32, 4, 8))
	if err := p.Err(); err != nil {
		t.Error(err)
	}
}

// The rows of a vector are its elements.
func TestPartsOfAVector(t *testing.T) {
	p := NewProgram("p")
	x := p.In("x", dtype.F32, 8)
	p.Launch("part", op.Cast{Rows: 1, Width: 3}, x.Rows(2, 3), p.Out("y", dtype.F32, 3))
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	if v := p.Launches[0].Args[0]; v.Offset != 2 {
		t.Errorf("elements 2 to 4 begin at element %d", v.Offset)
	}
}

// A view covers the same elements with and without leading ones.
func TestMatrixOfAView(t *testing.T) {
	for _, tc := range []struct {
		shape []int
		view  View
		want  Matrix
	}{
		{[]int{8, 64}, View{}, Matrix{0, 8, 64, 64}},
		{[]int{1, 8, 64}, View{}, Matrix{0, 8, 64, 64}},
		{[]int{64}, View{}, Matrix{0, 1, 64, 64}},
		{[]int{1, 64}, View{}, Matrix{0, 1, 64, 64}},
		{[]int{1}, View{}, Matrix{0, 1, 1, 1}},
		{[]int{8, 64}, View{Offset: 70, Shape: []int{4, 32}, Stride: 128}, Matrix{70, 4, 32, 128}},
		{[]int{8, 64}, View{Offset: 70, Shape: []int{1, 32}, Stride: 64}, Matrix{70, 1, 32, 32}},
		{[]int{op.Rows, 64}, View{Offset: 32, Shape: []int{op.Rows, 32}, Stride: 64},
			Matrix{32, op.Rows, 32, 64}},
		{[]int{1, op.Rows, 64}, View{}, Matrix{0, op.Rows, 64, 64}},
		{[]int{op.Rows}, View{}, Matrix{0, op.Rows, 1, 1}},
		{[]int{4, op.Capacity, 64}, View{}, Matrix{0, 4, 64, 64}},
	} {
		if m := tc.view.Matrix(tc.shape); m != tc.want {
			t.Errorf("%+v of %v: %+v, want %+v", tc.view, tc.shape, m, tc.want)
		}
	}
}

// A large program is checked about as fast as it is parsed.
func TestManyOperandsAreCheckedInTime(t *testing.T) {
	const launches, operands = 800, 60
	var b strings.Builder
	fmt.Fprintf(&b, `{"name":"p","args":[{"name":"a","kind":"in","type":"F32","shape":[1]},{"name":"s",
		"kind":"scratch","type":"F32","shape":[2]},
		{"name":"t","kind":"scratch","type":"F32","shape":[%d]}],"launches":[`, 2*operands)
	b.WriteString(`{"name":"y","op":{"Cast":{"Rows":1,"Width":1}},"args":[{"arg":0},{"arg":1,"shape":[1]}]}`)
	b.WriteString(`,{"name":"z","op":{"Cast":{"Rows":1,"Width":1}},"args":[{"arg":0},{"arg":1,"offset":1,` +
		`"shape":[1]}]}`)
	for i := range launches {
		fmt.Fprintf(&b, `,{"name":"l%d","op":{"Concat":{"Rows":1,"Widths":[%s]}},"args":[%s{"arg":2}]}`,
			i,
			strings.TrimSuffix(strings.Repeat("2,", operands), ","), strings.Repeat(`{"arg":1},`, operands))
	}
	b.WriteString(`]}`)
	var p Program
	began := time.Now()
	if err := json.Unmarshal([]byte(b.String()), &p); err != nil {
		t.Fatal(err)
	}
	// some 0.2 s; with a look at all launches before for each operand, more than a minute
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("%d launches of %d operands took %v", launches, operands, took)
	}
}

func TestLooksUp(t *testing.T) {
	p := NewProgram("both")
	ids, table, tied := p.In("ids", dtype.I32, 2), p.Const("table", dtype.BF16, 8, 4), p.Const("tied",
		dtype.BF16, 8, 4)
	x, z, y := p.Scratch("x", dtype.BF16, 2, 4), p.Out("z", dtype.BF16, 2, 4), p.Out("y", dtype.F32, 2,
		8)
	p.Launch("x", op.Embed{Rows: 2, Vocab: 8, Width: 4}, ids, table, x)
	p.Launch("z", op.Embed{Rows: 2, Vocab: 8, Width: 4}, ids, tied, z)
	p.Launch("y", op.MatMul{M: 2, K: 4, N: 8, TransB: true}, x, tied, y)
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	for arg, want := range []bool{false, true, false, false, false, false} {
		if p.LooksUp(arg) != want {
			t.Errorf("%s: looked up %v, want %v", p.Args[arg].Name, !want, want)
		}
	}
}
