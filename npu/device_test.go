package npu

import (
	"strings"
	"testing"

	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

type loaded struct{ p *Program }

func (l loaded) Program() *Program { return l.p }
func (loaded) Close() error        { return nil }

// plain is a buffer that is only its size.
type plain int

func (b plain) Len() int                     { return int(b) }
func (plain) Bytes() []byte                  { return nil }
func (plain) Sync(Direction, int, int) error { return nil }
func (plain) Close() error                   { return nil }

// Check finds every way in which a run can differ from its program.
func TestRunCheck(t *testing.T) {
	p := NewProgram("p")
	x := p.In("x", dtype.F32, op.Rows, 8)
	cache := p.State("cache", dtype.BF16, 2, op.Capacity, 4)
	s := p.Scratch("s", dtype.F32, op.Rows, 8)
	y := p.Out("y", dtype.F32, op.Picks, 8)
	index := p.In("index", dtype.I32, op.Picks)
	p.Launch("cast", op.Cast{Rows: op.Rows, Width: 8}, x, s)
	p.Launch("write", op.KVWrite{Rows: op.Rows, KVHeads: 2, HeadDim: 4}, s, cache)
	p.Launch("pick", op.Pick{Picks: op.Picks, Rows: op.Rows, Width: 8}, index, s, y)
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	const position = 2 * 4 * 2 // bytes of the cache for one position
	good := func() Run {
		return Run{
			Name: "r", Exec: loaded{p}, Picks: 1,
			Args: []Buffer{plain(5 * 8 * 4), nil, nil, plain(8 * 4), plain(4)},
			Segments: []Segment{
				{Rows: 2, Pos: 3, State: []Buffer{plain(5 * position)}},
				{Rows: 3, Pos: 0, State: []Buffer{plain(3 * position)}},
			},
		}
	}
	r := good()
	if err := r.Check(); err != nil || r.rows() != 5 {
		t.Fatalf("a good run of %d rows: %v", r.rows(), err)
	}
	for want, spoil := range map[string]func(*Run){
		": no executable":                                       func(r *Run) { r.Exec = nil },
		"has 5 arguments, got 4 buffers":                        func(r *Run) { r.Args = r.Args[:4] },
		`argument "x": no buffer`:                               func(r *Run) { r.Args[0] = nil },
		`"x": F32 [rows 8] needs 160 bytes, the buffer has 159`: func(r *Run) { r.Args[0] = plain(159) },
		"segment 1 has 0 rows":                                  func(r *Run) { r.Segments[1].Rows = 0 },
		"segment 0 has 2 rows at position -1":                   func(r *Run) { r.Segments[0].Pos = -1 },
		"segment 0 needs 6 positions, its buffer holds 5":       func(r *Run) { r.Segments[0].Pos = 4 },
		"at position 9223372036854775807":                       func(r *Run) { r.Segments[0].Pos = 1<<63 - 1 },
		"no buffer in segment 1":                                func(r *Run) { r.Segments[1].State = nil },
		"segment 0 has 2": func(r *Run) {
			r.Segments[0].State = append(r.Segments[0].State, plain(8))
		},
		"the run has 0 rows": func(r *Run) { r.Segments = nil },
		": -1 picks":         func(r *Run) { r.Picks = -1 },
		"and 0 picks":        func(r *Run) { r.Picks = 0 },
	} {
		r := good()
		spoil(&r)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one about %q", err, want)
		}
	}
}
