package sim

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// CoherencyError is a sync that is missing, found in debug mode.
type CoherencyError struct {
	Run, Program, Arg string        // whose argument it is: what reads an input, what wrote an output
	Direction         npu.Direction // of the missing sync
	Offset            int           // first byte of which it is missing
	Reader            string        // the host's program that read an output; "" when it was looked at through Bytes
}

func (e *CoherencyError) Error() string {
	if e.Direction == npu.ToDevice {
		return fmt.Sprintf("npu/sim: run %q of program %s reads argument %q, which the host has changed from byte %d on and "+
			"not synced to the device: "+
			"call Sync(npu.ToDevice, ...) before Submit", e.Run, e.Program, e.Arg, e.Offset)
	}
	reader := "the host"
	if e.Reader != "" {
		reader += "'s program " + e.Reader
	}
	return fmt.Sprintf("npu/sim: %s has looked at argument %q, which run %q of program %s had written, and "+
		"never synced it from the device from byte %d on: "+
		"call Sync(npu.FromDevice, ...) after Submit", reader, e.Arg, e.Run, e.Program, e.Offset)
}

// span is the bytes from from to to.
type span struct{ from, to int }

// ranges are spans in order, apart from each other.
type ranges []span

// with is r and one span more; with those that it touches it is one.
func (r ranges) with(from, to int) ranges {
	for _, s := range r {
		if s.from <= to && s.to >= from {
			from, to = min(from, s.from), max(to, s.to)
		}
	}
	out := r.without(from, to)
	i, _ := slices.BinarySearchFunc(out, from, func(s span, from int) int { return s.from - from })
	return slices.Insert(out, i, span{from, to})
}

// without is r less one span.
func (r ranges) without(from, to int) ranges {
	var out ranges
	for _, s := range r {
		if s.from < from {
			out = append(out, span{s.from, min(s.to, from)})
		}
		if s.to > to {
			out = append(out, span{max(s.from, to), s.to})
		}
	}
	return out
}

// changed reports where the host's side differs from what the device has seen, leaving out what the device itself has written since. It
// returns -1 if nowhere.
func (b *buffer) changed(n int) int {
	if b.host == nil {
		return -1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	host, dev := b.host.Bytes(), b.dev.Bytes()
	for _, s := range (ranges{{0, min(n, b.size)}}).minus(b.newer) {
		if !bytes.Equal(host[s.from:s.to], dev[s.from:s.to]) {
			at := s.from
			for host[at] == dev[at] {
				at++
			}
			return at
		}
	}
	return -1
}

// minus is r less all spans of q.
func (r ranges) minus(q ranges) ranges {
	for _, s := range q {
		r = r.without(s.from, s.to)
	}
	return r
}

// meets is the first byte that r and q both have, or -1.
func (r ranges) meets(q ranges) int {
	for _, s := range r {
		for _, t := range q {
			if from := max(s.from, t.from); from < min(s.to, t.to) {
				return from
			}
		}
	}
	return -1
}

// positions are the bytes of a State argument's positions from from to to, in a buffer of so many bytes: rows of every head, or all bytes
// where the argument has no positions.
func positions(a npu.Arg, bytes, from, to int) ranges {
	i := slices.Index(a.Shape, op.Capacity)
	if i < 0 {
		return ranges{{0, bytes}}
	}
	row := a.Type.Bytes((op.Size{}).Elements(a.Shape[i+1:]))
	all := npu.StateCapacity(a, bytes)
	from, to = min(from, all), min(to, all)
	var r ranges
	for head := range (op.Size{}).Elements(a.Shape[:i]) {
		if from < to {
			r = append(r, span{(head*all + from) * row, (head*all + to) * row})
		}
	}
	return r
}

// wrote notes that a run has written some bytes. It returns what the host has looked at of an earlier output and never synced.
func (b *buffer) wrote(w writer, written ranges) *CoherencyError {
	b.mu.Lock()
	defer b.mu.Unlock()
	var missed *CoherencyError
	if len(b.looked) > 0 {
		missed = b.unread(b.looked[0].from, "")
	}
	b.untouched, b.looked = true, nil
	b.writer = w
	for _, s := range written {
		b.newer = b.newer.with(s.from, min(s.to, b.size))
	}
	return missed
}

// overwritten notes that a program of the host writes some bytes: what the device had there is of no use any more.
func (b *buffer) overwritten(r ranges) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.newer, b.looked, b.untouched = b.newer.minus(r), b.looked.minus(r), false
}

// unread is the error for bytes from at on, which a reader has not got from the device.
func (b *buffer) unread(at int, reader string) *CoherencyError {
	return &CoherencyError{b.writer.run, b.writer.program, b.writer.arg, npu.FromDevice, at, reader}
}

// look notes that the host sees all bytes as they are. What has been synced in part is left alone: who does that knows which bytes it wants.
func (b *buffer) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.untouched {
		b.looked = b.newer
	}
}

// read reports that a program of the host reads bytes of which some have not been synced since the device wrote them, nor have been
// overwritten.
func (b *buffer) read(r, overwritten ranges, reader string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.newer.minus(overwritten).meets(r); at >= 0 {
		return b.unread(at, reader)
	}
	return nil
}
