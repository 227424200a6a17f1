package cpu

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu"
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
	p.Launch("write", op.KVWrite{Rows: op.Rows, KVHeads: 1, HeadDim: 1}, p.In("x", f32, op.Rows, 1), p.State("k", f32, 1, op.Capacity, 1))
	e := loaded(t, d, p)
	x, k := alloc(t, d, 64), []npu.Buffer{alloc(t, d, 64)}
	for name, segs := range map[string][]npu.Segment{
		"a position beyond the largest": {{Rows: 1, Pos: math.MaxInt, State: k}},
		"rows whose sum is one": {{Rows: math.MaxInt/2 + 1, State: k}, {Rows: math.MaxInt/2 + 1, State: k}, {Rows: math.MaxInt/2 + 1, State: k},
			{Rows: math.MaxInt/2 + 2, State: k}},
	} {
		r := npu.Run{Name: "r", Exec: e, Args: []npu.Buffer{x, nil}, Segments: segs}
		if err := checkPositions(&r); err == nil {
			t.Errorf("%s: not noticed", name)
		}
		if err := d.Submit(context.Background(), []npu.Run{r}); err == nil {
			t.Errorf("%s: executed", name)
		}
	}
}
