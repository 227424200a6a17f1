package sim

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/npu/op"
)

// Without a sync each side sees its own copy.
func TestStale(t *testing.T) {
	s := newSums(t, nil)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.submit(t.Context()))
	if got := first(s.y); got != 0 {
		t.Errorf("the host sees %g before the output is synced", got)
	}
	must(s.y.Sync(npu.FromDevice, 0, s.y.Len()))
	if got := first(s.y); got != 3 {
		t.Errorf("1 + 2 = %g", got)
	}
	set(s.x, 0, 5)
	set(s.x, 1, 6)
	must(s.x.Sync(npu.ToDevice, 2, 2)) // element 1 only
	must(s.submit(t.Context()))
	must(s.y.Sync(npu.FromDevice, 0, 4))
	if y := dtype.BFloat16s(s.y.Bytes()); y[0].Float32() != 3 || y[1].Float32() != 8 {
		t.Errorf("%g and %g: the device must see the old 1 and the new 6, plus 2", y[0].Float32(),
			y[1].Float32())
	}
}

// Debug mode names the argument whose sync is missing, in either direction, and reports nothing if
// all syncs are made.
func TestMissingSync(t *testing.T) {
	s := newSums(t, &Options{Debug: true})
	for range 2 {
		if err := s.submit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.y.Sync(npu.FromDevice, 0, 2); err != nil {
			t.Fatal(err)
		}
		_ = first(s.y)
	}
	set(s.z, 7, 1)
	var missing *CoherencyError
	err := s.submit(t.Context())
	if !errors.As(err, &missing) || missing.Arg != "z" || missing.Direction != npu.ToDevice ||
		missing.Offset != 14 {
		t.Fatalf("changed input: %v, want a CoherencyError for z from byte 14 on", err)
	}
	if strings.Count(err.Error(), "npu/sim") != 1 {
		t.Errorf("the error has the package prefix twice: %v", err)
	}
	if err := s.z.Sync(npu.ToDevice, 0, s.z.Len()); err != nil {
		t.Fatal(err)
	}
	if err := s.submit(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = first(s.y)
	if err := s.submit(t.Context()); !errors.As(err, &missing) || missing.Arg != "y" ||
		missing.Direction != npu.FromDevice {
		t.Fatalf("unsynced output: %v, want a CoherencyError for y", err)
	}
	if err := s.submit(t.Context()); err != nil {
		t.Errorf("a missing sync must be reported once: %v", err)
	}
	if err := s.y.Sync(npu.FromDevice, 0, s.y.Len()); err != nil {
		t.Fatal(err)
	}
	set(s.y, 3, 9) // an output becomes an input
	err = s.d.Submit(t.Context(), []npu.Run{{Exec: s.e, Args: []npu.Buffer{s.y, s.z, s.x}}})
	if !errors.As(err, &missing) || missing.Arg != "x" || missing.Offset != 6 {
		t.Errorf("changed output: %v, want a CoherencyError for x from byte 6 on", err)
	}
}

// An output that is the next program's input needs no sync, and debug mode reports none.
func TestChained(t *testing.T) {
	s := newSums(t, &Options{Debug: true})
	runs := []npu.Run{
		{Exec: s.e, Args: []npu.Buffer{s.x, s.z, s.y}},
		{Exec: s.e, Args: []npu.Buffer{s.y, s.z, s.x}},
	}
	if err := s.d.Submit(t.Context(), runs); err != nil {
		t.Fatal(err)
	}
	if err := s.x.Sync(npu.FromDevice, 0, s.x.Len()); err != nil {
		t.Fatal(err)
	}
	if got := first(s.x); got != 5 {
		t.Errorf("1 + 2 + 2 = %g", got)
	}
}

// Programs of the host device use the host side of a buffer.
func TestHost(t *testing.T) {
	s := newSums(t, nil)
	h := npu.HostOf(s.d)
	if !h.Info().AnyRows || s.d.Info().AnyRows {
		t.Errorf("AnyRows: host %v, array %v", h.Info().AnyRows, s.d.Info().AnyRows)
	}
	e, err := h.Load(t.Context(), sum(sumWidth))
	if err != nil {
		t.Fatal(err)
	}
	args := []npu.Buffer{npu.HostBuffer(s.x), npu.HostBuffer(s.z), npu.HostBuffer(s.y)}
	if err := h.Submit(t.Context(), []npu.Run{{Exec: e, Args: args}}); err != nil {
		t.Fatal(err)
	}
	if got := first(s.y); got != 3 {
		t.Errorf("1 + 2 = %g on the host", got)
	}
	if err := s.y.Sync(npu.FromDevice, 0, 2); err != nil {
		t.Fatal(err)
	}
	if got := first(s.y); got != 0 {
		t.Errorf("the device has %g, which the host never synced", got)
	}
}

// A partial sync leaves the rest dirty. This is reported if the host called Bytes before any sync,
// and to the byte if a host program reads it.
func TestPartlyMissingSync(t *testing.T) {
	s := newSums(t, &Options{Debug: true})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.submit(t.Context()))
	_ = first(s.y)
	must(s.y.Sync(npu.FromDevice, 0, 6))
	var missing *CoherencyError
	if err := s.submit(t.Context()); !errors.As(err, &missing) || missing.Arg != "y" ||
		missing.Offset != 6 {
		t.Fatalf("partial sync: %v, want a CoherencyError for y from byte 6 on", err)
	}
	must(s.y.Sync(npu.FromDevice, 0, s.y.Len()))

	h := npu.HostOf(s.d)
	e, err := h.Load(t.Context(), sum(sumWidth))
	must(err)
	out, err := h.Alloc(t.Context(), s.y.Len())
	must(err)
	read := []npu.Run{{Exec: e, Args: []npu.Buffer{npu.HostBuffer(s.x), npu.HostBuffer(s.y), out}}}
	must(h.Submit(t.Context(), read))
	must(s.submit(t.Context()))
	must(s.y.Sync(npu.FromDevice, 0, 8))
	must(s.y.Sync(npu.FromDevice, 10, s.y.Len()-10))
	err = h.Submit(t.Context(), read)
	if !errors.As(err, &missing) || missing.Arg != "y" || missing.Offset != 8 || missing.Reader == "" {
		t.Fatalf("host program reads element 4: %v, want a CoherencyError for y at byte 8", err)
	}
	must(s.y.Sync(npu.FromDevice, 8, 2))
	must(h.Submit(t.Context(), read))
	if got := first(out); got != 4 {
		t.Errorf("1 + 3 = %g", got)
	}
}

// Bytes that a host program writes belong to the host: reading them needs no sync, even in the same
// Submit, but the device needs one.
func TestHostOverwrites(t *testing.T) {
	s := newSums(t, &Options{Debug: true})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	h := npu.HostOf(s.d)
	whole, err := h.Load(t.Context(), sum(sumWidth))
	must(err)
	half, err := h.Load(t.Context(), sum(sumWidth/2))
	must(err)
	out, err := h.Alloc(t.Context(), s.y.Len())
	must(err)
	x, z, y := npu.HostBuffer(s.x), npu.HostBuffer(s.z), npu.HostBuffer(s.y)
	write := npu.Run{Exec: whole, Args: []npu.Buffer{x, z, y}}
	read := npu.Run{Exec: whole, Args: []npu.Buffer{x, y, out}}

	must(s.submit(t.Context()))
	must(h.Submit(t.Context(), []npu.Run{write}))
	must(h.Submit(t.Context(), []npu.Run{read}))
	if got := first(out); got != 4 {
		t.Errorf("1 + 3 = %g", got)
	}
	must(s.submit(t.Context()))
	must(h.Submit(t.Context(), []npu.Run{write, read}))

	var missing *CoherencyError
	must(s.submit(t.Context()))
	if err := h.Submit(t.Context(), []npu.Run{read, write}); !errors.As(err, &missing) ||
		missing.Arg != "y" || missing.Offset != 0 {
		t.Errorf("read before overwrite: %v, want a CoherencyError for y", err)
	}
	err = h.Submit(t.Context(), []npu.Run{{Exec: half, Args: []npu.Buffer{x, z, y}}, read})
	if !errors.As(err, &missing) || missing.Arg != "y" || missing.Offset != s.y.Len()/2 {
		t.Errorf("half overwritten: %v, want a CoherencyError for y from its middle on", err)
	}
	if err := h.Submit(t.Context(), []npu.Run{read}); !errors.As(err, &missing) || missing.Offset != 0 {
		t.Errorf("a failed Submit cleared dirty bytes: %v", err)
	}

	must(h.Submit(t.Context(), []npu.Run{write}))
	set(s.y, 5, 9)
	err = s.d.Submit(t.Context(), []npu.Run{{Exec: s.e, Args: []npu.Buffer{s.y, s.z, s.x}}})
	if !errors.As(err, &missing) || missing.Arg != "x" || missing.Direction != npu.ToDevice {
		t.Errorf("overwritten by the host, not synced: %v, want a CoherencyError for the device's "+
			"input", err)
	}
}

// A host program that reads a cache needs a sync of the positions that it reads, in every head.
func TestMissingSyncOfState(t *testing.T) {
	const heads, dim = 2, 64
	const capacity = sumWidth / heads / dim
	s := newSums(t, &Options{Debug: true})
	h := npu.HostOf(s.d)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	load := func(p *npu.Program) npu.Executable {
		t.Helper()
		e, err := h.Load(t.Context(), p)
		must(err)
		return e
	}
	row := func() npu.Buffer {
		t.Helper()
		b, err := h.Alloc(t.Context(), 2*heads*dim)
		must(err)
		return b
	}
	p := npu.NewProgram("store")
	p.Launch("kv", op.KVWrite{Rows: op.Rows, KVHeads: heads, HeadDim: dim},
		p.In("x", dtype.BF16, op.Rows, heads*dim),
		p.State("cache", dtype.BF16, heads, op.Capacity, dim))
	store := load(p)
	p = npu.NewProgram("attend")
	p.Launch("attention", op.Attention{Rows: op.Rows, Heads: heads, KVHeads: heads, HeadDim: dim,
		Cached: true},
		p.In("q", dtype.BF16, op.Rows, heads*dim), p.State("k", dtype.BF16, heads, op.Capacity, dim),
		p.State("v", dtype.BF16, heads, op.Capacity, dim), p.Out("dst", dtype.BF16, op.Rows, heads*dim))
	attend := load(p)
	x, dst := row(), row()
	write := func(pos int) npu.Run {
		return npu.Run{Exec: store, Args: []npu.Buffer{x, nil}, Segments: []npu.Segment{
			{Rows: 1, Pos: pos, State: []npu.Buffer{npu.HostBuffer(s.y)}}}}
	}
	read := func(pos int) npu.Run {
		return npu.Run{Exec: attend, Args: []npu.Buffer{x, nil, nil, dst}, Segments: []npu.Segment{
			{Rows: 1, Pos: pos, State: []npu.Buffer{npu.HostBuffer(s.x), npu.HostBuffer(s.y)}}}}
	}
	const position, head = 2 * dim, 2 * dim * capacity // bytes
	syncs := func(positions ...int) {
		t.Helper()
		for _, i := range positions {
			for k := range heads {
				must(s.y.Sync(npu.FromDevice, k*head+i*position, position))
			}
		}
	}
	missing := func(at int, runs ...npu.Run) {
		t.Helper()
		var e *CoherencyError
		if err := h.Submit(t.Context(), runs); !errors.As(err, &e) || e.Arg != "y" ||
			e.Offset != at || e.Reader != "attend" {
			t.Errorf("%v, want a CoherencyError for y at byte %d", err, at)
		}
	}

	must(s.submit(t.Context()))
	missing(0, read(0))
	syncs(0, 1)
	must(h.Submit(t.Context(), []npu.Run{read(1)}))
	missing(2*position, read(2))
	missing(2*position, read(4))
	must(s.y.Sync(npu.FromDevice, 2*position, position))
	missing(head+2*position, read(2))
	must(h.Submit(t.Context(), []npu.Run{write(2), read(2)}))
	must(h.Submit(t.Context(), []npu.Run{read(2)}))
	missing(3*position, write(2), read(3))
}

// positions returns the bytes of every head.
func TestPositions(t *testing.T) {
	a := npu.Arg{Type: dtype.BF16, Shape: []int{3, op.Capacity, 4}}
	if got, want := positions(a, 3*10*8, 2, 5), (ranges{{16, 40}, {96, 120},
		{176, 200}}); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := positions(a, 3*10*8, 10, 12); got != nil {
		t.Errorf("positions past the end: %v, want none", got)
	}
	if got := (ranges{{0, 4}, {8, 12}}).with(4, 8); !slices.Equal(got, ranges{{0, 12}}) {
		t.Errorf("%v, want one span", got)
	}
}
