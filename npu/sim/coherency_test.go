package sim

import (
	"errors"
	"testing"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// Without a sync each side goes on seeing what it saw.
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
		t.Errorf("the host sees %g before the output has been synced", got)
	}
	must(s.y.Sync(npu.FromDevice, 0, s.y.Len()))
	if got := first(s.y); got != 3 {
		t.Errorf("1 + 2 = %g", got)
	}
	set(s.x, 0, 5)
	set(s.x, 1, 6)
	must(s.x.Sync(npu.ToDevice, 2, 2)) // of element 1 alone
	must(s.submit(t.Context()))
	must(s.y.Sync(npu.FromDevice, 0, 4))
	if y := dtype.BFloat16s(s.y.Bytes()); y[0].Float32() != 3 || y[1].Float32() != 8 {
		t.Errorf("%g and %g: the device must see the old 1 and the new 6, plus 2", y[0].Float32(), y[1].Float32())
	}
}

// Debug mode names the argument whose sync is missing, in either direction, and is content with a runtime that syncs.
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
	if !errors.As(err, &missing) || missing.Arg != "z" || missing.Direction != npu.ToDevice || missing.Offset != 14 {
		t.Fatalf("an input was changed: %v, want a CoherencyError for z from byte 14 on", err)
	}
	if err := s.z.Sync(npu.ToDevice, 0, s.z.Len()); err != nil {
		t.Fatal(err)
	}
	if err := s.submit(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = first(s.y)
	if err := s.submit(t.Context()); !errors.As(err, &missing) || missing.Arg != "y" || missing.Direction != npu.FromDevice {
		t.Fatalf("an output was read: %v, want a CoherencyError for y", err)
	}
	if err := s.submit(t.Context()); err != nil {
		t.Errorf("a missing sync is reported once: %v", err)
	}
	if err := s.y.Sync(npu.FromDevice, 0, s.y.Len()); err != nil {
		t.Fatal(err)
	}
	set(s.y, 3, 9) // and now an output that becomes an input
	err = s.d.Submit(t.Context(), []npu.Run{{Exec: s.e, Args: []npu.Buffer{s.y, s.z, s.x}}})
	if !errors.As(err, &missing) || missing.Arg != "x" || missing.Offset != 6 {
		t.Errorf("an output was synced, changed and not synced back: %v, want a CoherencyError for x from byte 6 on", err)
	}
}

// An output that is the next program's input stays on the device: nothing is to be synced, and debug mode agrees.
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

// The host's device works on the host's side of a buffer.
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

// A sync of a part leaves the rest missing: it is found where the host looks at all before it syncs, and, to the byte, in what a program of the host reads.
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
	if err := s.submit(t.Context()); !errors.As(err, &missing) || missing.Arg != "y" || missing.Offset != 6 {
		t.Fatalf("the host looked at all and synced three elements: %v, want a CoherencyError for y from byte 6 on", err)
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
		t.Fatalf("element 4 was not synced and a program of the host reads it: %v, want a CoherencyError for y at byte 8", err)
	}
	must(s.y.Sync(npu.FromDevice, 8, 2))
	must(h.Submit(t.Context(), read))
	if got := first(out); got != 4 {
		t.Errorf("1 + 3 = %g", got)
	}
}
