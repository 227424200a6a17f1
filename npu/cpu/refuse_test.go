package cpu

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// wantError fails unless err says all of want.
func wantError(t *testing.T, err error, want ...string) {
	t.Helper()
	for _, w := range want {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, want an error with %q", err, w)
		}
	}
}

// loaded loads a program that must be sound.
func loaded(t testing.TB, d *Device, p *npu.Program) npu.Executable {
	t.Helper()
	e, err := d.Load(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestArenaRefusesImpossibleSizes(t *testing.T) {
	var a arena
	defer a.free()
	for _, n := range []int{-1, math.MinInt, maxAlloc + 1, math.MaxInt} {
		if _, err := a.alloc(n); err == nil {
			t.Errorf("%d bytes are handed out", n)
		}
	}
	if _, err := a.alloc(1); err != nil {
		t.Error(err)
	}
}

func TestSizesDoNotOverflow(t *testing.T) {
	for _, shape := range [][]int{{op.Rows, 1 << 40}, {op.Rows, 1 << 20, 1 << 20}, {op.Picks, 8}, {op.Capacity, 8}} {
		if n, err := sizeOf(f32, shape, op.Size{Rows: 1 << 40}); err == nil {
			t.Errorf("%s takes %d bytes", op.ShapeString(shape), n)
		}
	}
	if n, err := sizeOf(bf, []int{op.Rows, 3}, op.Size{Rows: 5}); err != nil || n != 30 {
		t.Errorf("5 rows of 3 take %d bytes (%v), want 30", n, err)
	}
}

// Rows and positions that overflow when they are added must not pass for few.
func TestSubmitRefusesRowsThatOverflow(t *testing.T) {
	d := open(t, &Options{Threads: 1, Kernels: "go"})
	p := npu.NewProgram("write")
	p.Launch("write", op.KVWrite{Rows: op.Rows, KVHeads: 1, HeadDim: 1}, p.In("x", f32, op.Rows, 1),
		p.State("k", f32, 1, op.Capacity, 1))
	e := loaded(t, d, p)
	x, k := alloc(t, d, 64), []npu.Buffer{alloc(t, d, 64)}
	for name, segs := range map[string][]npu.Segment{
		"a position beyond the largest": {{Rows: 1, Pos: math.MaxInt, State: k}},
		"rows whose sum is one": {{Rows: math.MaxInt/2 + 1, State: k}, {Rows: math.MaxInt/2 + 1, State: k},
			{Rows: math.MaxInt/2 + 1, State: k},
			{Rows: math.MaxInt/2 + 2, State: k}},
	} {
		r := npu.Run{Name: "r", Exec: e, Args: []npu.Buffer{x, nil}, Segments: segs}
		if err := d.Submit(context.Background(), []npu.Run{r}); err == nil {
			t.Errorf("%s: executed", name)
		}
	}
}

// Scratch rows of a Const are separate memory. Load must return an error for a view that crosses
// their end, which would be read out of bounds.
func TestLoadRefusesViewsAcrossScratchRows(t *testing.T) {
	d := open(t, &Options{Threads: 1, Kernels: "go"})
	for _, tc := range []struct {
		name  string
		read  func(c npu.Ref) npu.Ref
		rows  int
		wrong bool
	}{
		{"the scratch rows", func(c npu.Ref) npu.Ref { return c.Rows(0, 2) }, 2, false},
		{"one of them", func(c npu.Ref) npu.Ref { return c.Rows(1, 1) }, 1, false},
		{"the weight", func(c npu.Ref) npu.Ref { return c.Rows(2, 6) }, 6, false},
		{"all rows", func(c npu.Ref) npu.Ref { return c }, 8, true},
		{"a row of each", func(c npu.Ref) npu.Ref { return c.Rows(1, 2) }, 2, true},
		{"every other row", func(c npu.Ref) npu.Ref { return c.Every(0, 2) }, 4, true},
	} {
		p := npu.NewProgram("scratch")
		x, c, y := p.In("x", f32, 8, 4), p.Const("c", f32, 8, 4).WithScratchRows(2), p.Out("y", f32, tc.rows, 4)
		p.Launch("fill", op.Cast{Rows: 2, Width: 4}, x.Rows(0, 2), c.Rows(0, 2))
		p.Launch("use", op.Cast{Rows: tc.rows, Width: 4}, tc.read(c), y)
		_, err := d.Load(context.Background(), p)
		switch {
		case !tc.wrong && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.wrong:
			wantError(t, err, "scratch", `"c"`)
		}
	}
	p := npu.NewProgram("open")
	p.Const("c", f32, 8, op.Rows).WithScratchRows(2)
	_, err := d.Load(context.Background(), p)
	wantError(t, err, `"c"`, "of fixed shape")
}

// A capacity is known of caches alone: as a number of rows it would be none.
func TestLoadRefusesACapacityOfRows(t *testing.T) {
	d := open(t, &Options{Threads: 1, Kernels: "go"})
	for _, kinds := range [][2]npu.Kind{{npu.Const, npu.Scratch}, {npu.State, npu.State}, {npu.In, npu.Out}} {
		p := npu.NewProgram("cast")
		x, y := p.Arg(kinds[0], "x", f32, op.Capacity, 8), p.Arg(kinds[1], "y", f32, op.Capacity, 8)
		p.Launch("cast", op.Cast{Rows: op.Capacity, Width: 8}, x, y)
		if _, err := d.Load(context.Background(), p); err == nil {
			t.Errorf("a cast of as many rows as a cache has room for, from %v to %v, is loaded", kinds[0], kinds[1])
		}
	}
}

// Without a cache there are no rows before the first: another position would be another answer,
// however many segments there are.
func TestAttentionWithoutCacheStartsAtZero(t *testing.T) {
	forEachDevice(t, 1, func(t *testing.T, d *Device) {
		p := npu.NewProgram("attention")
		q, k, v := p.In("q", f32, op.Rows, 8), p.In("k", f32, op.Rows, 8), p.In("v", f32, op.Rows, 8)
		p.Launch("attn", op.Attention{Rows: op.Rows, Heads: 1, KVHeads: 1, HeadDim: 8}, q, k, v,
			p.Out("y", f32, op.Rows, 8))
		e := loaded(t, d, p)
		var args []npu.Buffer
		for range 4 {
			args = append(args, alloc(t, d, 4*8*4))
		}
		for _, tc := range []struct {
			segs  []npu.Segment
			wrong bool
		}{
			{[]npu.Segment{{Rows: 4}}, false}, {[]npu.Segment{{Rows: 2}, {Rows: 2}}, false},
			{[]npu.Segment{{Rows: 4, Pos: 1}}, true}, {[]npu.Segment{{Rows: 2}, {Rows: 2, Pos: 1}}, true},
		} {
			err := d.Submit(context.Background(), []npu.Run{{Exec: e, Args: args, Segments: tc.segs}})
			switch {
			case tc.wrong:
				wantError(t, err, "starts at position 1", "without a cache")
			case err != nil:
				t.Errorf("%+v: %v", tc.segs, err)
			}
		}
	})
}

// A weight must have the type of its argument, or be BF16 if the argument's type is quantized.
func TestSubmitRefusesWeightsOfAnotherType(t *testing.T) {
	d := open(t, &Options{Threads: 1, Kernels: "go"})
	for _, tc := range []struct {
		kind      npu.Kind
		arg, held dtype.Type
		elements  int
		want      []string
	}{
		{npu.Const, f32, f32, 64, nil},
		{npu.Const, bf, bf, 64, nil},
		{npu.Const, dtype.Q8_0, dtype.Q8_0, 64, nil}, // expanded
		{npu.Const, dtype.Q4_0, bf, 64, nil},
		{npu.In, bf, bf, 64, nil},
		{npu.Const, f32, bf, 64, []string{`run "r"`, `"w"`, "F32", "BF16"}},
		{npu.Const, f32, bf, 256, []string{`run "r"`, `"w"`, "F32", "BF16"}}, // large enough is not enough
		{npu.Const, bf, f32, 64, []string{`run "r"`, `"w"`, "F32", "BF16"}},
		{npu.Const, half, bf, 64, []string{`run "r"`, `"w"`, "F16", "BF16"}},
		{npu.Const, dtype.Q8_0, f32, 64, []string{`run "r"`, `"w"`, "Q8_0", "F32"}},
		{npu.In, f32, bf, 256, []string{`run "r"`, `"w"`, "F32", "BF16"}},
		{npu.Const, bf, bf, 32, []string{`run "r"`, `"w"`, "needs 128 bytes as", "has 64"}},
		// 128 of BF16, not 68 of blocks
		{npu.Const, dtype.Q8_0, dtype.Q8_0, 32, []string{`run "r"`, `"w"`, "needs 128 bytes as", "has 64"}},
	} {
		o := op.Embed{Rows: 1, Vocab: 2, Width: 32}
		p := npu.NewProgram("embed")
		ids, w := p.In("ids", i32, 1), p.Arg(tc.kind, "w", tc.arg, 2, 32)
		p.Launch("embed", o, ids, w, p.Out("y", f32, 1, 32))
		data := make([]byte, tc.held.Bytes(tc.elements))
		weight := constant(t, d, "w", tensors{"w": {Type: tc.held, Shape: []int{tc.elements / 32, 32}, Data: data}})
		args := []npu.Buffer{alloc(t, d, 4), weight, alloc(t, d, 4*32)}
		err := d.Submit(context.Background(), []npu.Run{{Name: "r", Exec: loaded(t, d, p), Args: args}})
		if tc.want == nil && err != nil {
			t.Errorf("%v %s held as %s: %v", tc.kind, tc.arg, tc.held, err)
		}
		wantError(t, err, tc.want...)
	}
}

// Submit checks indices before the first run. If an earlier run of the same Submit overwrites them
// with indices that are out of range, Embed skips these rows and reads nothing out of bounds.
func TestIndicesOverwrittenByAnEarlierRunReadNothingOutside(t *testing.T) {
	forEachDevice(t, 2, func(t *testing.T, d *Device) {
		fill := npu.NewProgram("fill")
		fill.Launch("fill", op.Cast{Rows: 1, Width: 4}, fill.In("x", f32, 4), fill.Out("y", f32, 4))
		embed := npu.NewProgram("embed")
		embed.Launch("embed", op.Embed{Rows: 4, Vocab: 2, Width: 4}, embed.In("ids", i32, 4),
			embed.In("table", f32, 2, 4), embed.Out("y", f32, 4, 4))
		x, ids, table, y := alloc(t, d, 16), alloc(t, d, 16), alloc(t, d, 32), alloc(t, d, 64)
		for i, v := range []float32{-1, 1e30, 0, 1} { // of these bits only those of 0 are in range
			dtype.Float32s(x.Bytes())[i] = v
		}
		for i := range 8 {
			dtype.Float32s(table.Bytes())[i] = 3
		}
		runs := []npu.Run{{Exec: loaded(t, d, fill), Args: []npu.Buffer{x, ids}},
			{Exec: loaded(t, d, embed), Args: []npu.Buffer{ids, table, y}}}
		if err := d.Submit(context.Background(), runs); err != nil {
			t.Fatal(err)
		}
		for i, got := range dtype.Float32s(y.Bytes()) {
			if want := map[bool]float32{true: 3}[i/4 == 2]; got != want {
				t.Errorf("element %d is %g, want %g", i, got, want)
			}
		}
		err := d.Submit(context.Background(), runs)
		wantError(t, err, "id 0 is", "want 0 to 1")
	})
}

// Two arguments may be one buffer. An output over an input is right where an op takes element for
// element and both are the same elements; anything else would be read
// after it has been overwritten, or by one thread while another writes it.
func TestSubmitRefusesOutputsAcrossInputs(t *testing.T) {
	const rows, width = 5, 8
	d := open(t, &Options{Threads: 1, Kernels: "go"})
	whole := func(r npu.Ref) npu.Ref { return r.Rows(0, rows) }
	below := func(r npu.Ref) npu.Ref { return r.Rows(1, rows) }
	left := func(r npu.Ref) npu.Ref { return r.As(rows, 2*width).Cols(0, width) }
	for name, o := range map[string]op.Op{
		"cast": op.Cast{Rows: rows, Width: width}, "norm": op.RMSNorm{Rows: rows, Width: width},
		"layernorm": op.LayerNorm{Rows: rows, Width: width},
		"rope":      op.RoPE{Rows: rows, Heads: 1, HeadDim: width}, "gate": op.SiLUMul{Rows: rows, Width: width},
		"gelu": op.GELU{Rows: rows, Width: width},
		"add":  op.Add{Rows: rows, Width: width}, "embed": op.Embed{Rows: rows, Vocab: rows, Width: width},
	} {
		over := 0 // the operand that the output lies over
		if name == "embed" {
			over = 1
		}
		for _, tc := range []struct {
			view  func(r npu.Ref) npu.Ref // of the output
			typ   dtype.Type
			wrong bool
		}{{whole, f32, name == "embed"}, {below, f32, true}, {left, f32, true}, {whole, bf, true}} {
			p := npu.NewProgram(name)
			both := alloc(t, d, 4*2*rows*width)
			var refs []npu.Ref
			var args []npu.Buffer
			for i, operand := range o.Operands() {
				typ, buf := f32, alloc(t, d, 4*2*rows*width)
				switch {
				case i == over:
					refs, buf = append(refs, p.In(operand.Name, f32, rows, width)), both
				case operand.Write:
					refs, buf = append(refs, tc.view(p.Scratch(operand.Name, tc.typ, 2*rows, width))), both
				case operand.Name == "ids":
					typ = i32
					fallthrough
				default:
					refs = append(refs, p.In(operand.Name, typ, operand.Shape...))
				}
				args = append(args, buf)
			}
			p.Launch("op", o, refs...)
			err := d.Submit(context.Background(), []npu.Run{{Exec: loaded(t, d, p), Args: args}})
			if !tc.wrong && err != nil {
				t.Errorf("%s of the very same elements: %v", name, err)
			} else if tc.wrong {
				wantError(t, err, `launch "op"`, "overlaps an input")
			}
		}
	}
}
