package sim

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
)

// CoherencyError reports a missing sync, found in debug mode.
type CoherencyError struct {
	Run, Program, Arg string        // the argument, and the run that reads the input or wrote the output
	Direction         npu.Direction // of the missing sync
	Offset            int           // first byte that is not synced
	Reader            string        // host program that read an output; "" if it was read through Bytes
}

func (e *CoherencyError) Error() string {
	if e.Direction == npu.ToDevice {
		return fmt.Sprintf("npu/sim: run %q of program %s reads argument %q, which the host changed "+
			"from byte %d on without a sync: call Sync(npu.ToDevice, ...) before Submit",
			e.Run, e.Program, e.Arg, e.Offset)
	}
	reader := "the host"
	if e.Reader != "" {
		reader += "'s program " + e.Reader
	}
	return fmt.Sprintf("npu/sim: %s read argument %q, written by run %q of program %s, without a "+
		"sync from byte %d on: call Sync(npu.FromDevice, ...) after Submit",
		reader, e.Arg, e.Run, e.Program, e.Offset)
}

// span is the bytes in [from, to).
type span struct{ from, to int }

// ranges is a sorted list of disjoint spans.
type ranges []span

// with returns r with the bytes [from, to) added, merging spans that touch.
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

// without returns r less the bytes [from, to).
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

// changed returns the offset of the first byte below n at which the host side differs from the
// device side, or -1 if there is none. It ignores dirty bytes.
func (b *buffer) changed(n int) int {
	if b.host == nil {
		return -1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	host, dev := b.host.Bytes(), b.dev.Bytes()
	for _, s := range (ranges{{0, min(n, b.size)}}).minus(b.dirty) {
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

// minus returns r less all spans of q.
func (r ranges) minus(q ranges) ranges {
	for _, s := range q {
		r = r.without(s.from, s.to)
	}
	return r
}

// firstCommon returns the first byte that is in both r and q, or -1 if there is none.
func (r ranges) firstCommon(q ranges) int {
	for _, s := range r {
		for _, t := range q {
			if from := max(s.from, t.from); from < min(s.to, t.to) {
				return from
			}
		}
	}
	return -1
}

// positions returns the byte ranges of positions [from, to) of a State argument in a buffer of the
// given size: the rows of every head, or the whole buffer if the argument has no position
// dimension.
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

// wrote records that a run writes bytes. It returns an error if the host has looked at an earlier
// output without syncing it.
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
		b.dirty = b.dirty.with(s.from, min(s.to, b.size))
	}
	return missed
}

// overwritten records that a host program writes bytes, which drops the device's version.
func (b *buffer) overwritten(r ranges) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dirty, b.looked, b.untouched = b.dirty.minus(r), b.looked.minus(r), false
}

// unread returns the error for dirty bytes from at on that reader has read.
func (b *buffer) unread(at int, reader string) *CoherencyError {
	return &CoherencyError{b.writer.run, b.writer.program, b.writer.arg, npu.FromDevice, at, reader}
}

// look records that the host sees all bytes. A buffer that has been synced in part is not recorded,
// because the caller may use only the synced bytes.
func (b *buffer) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.untouched {
		b.looked = b.dirty
	}
}

// read returns an error if a host program reads dirty bytes of r that are not in overwritten.
func (b *buffer) read(r, overwritten ranges, reader string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.dirty.minus(overwritten).firstCommon(r); at >= 0 {
		return b.unread(at, reader)
	}
	return nil
}
