package sim

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/npukit/npukit/npu"
)

// CoherencyError is a sync that is missing, found in debug mode.
type CoherencyError struct {
	Run, Program, Arg string
	Direction         npu.Direction // of the missing sync
	Offset            int           // first byte that differs, for an input
}

func (e *CoherencyError) Error() string {
	if e.Direction == npu.ToDevice {
		return fmt.Sprintf("npu/sim: run %q of program %s reads argument %q, which the host has changed from byte %d on and "+
			"not synced to the device: "+
			"call Sync(npu.ToDevice, ...) before Submit", e.Run, e.Program, e.Arg, e.Offset)
	}
	return fmt.Sprintf("npu/sim: the host has looked at argument %q, which run %q of program %s had written, and "+
		"never synced it from the device: "+
		"call Sync(npu.FromDevice, ...) after Submit", e.Arg, e.Run, e.Program)
}

// span is the bytes from from to to.
type span struct{ from, to int }

// ranges are spans in order, apart from each other.
type ranges []span

// with is r and one span more.
func (r ranges) with(from, to int) ranges {
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

// wrote notes that a run has written the first n bytes. In debug mode it reports an earlier output that the host has read unsynced.
func (b *buffer) wrote(w writer, n int) *CoherencyError {
	b.mu.Lock()
	defer b.mu.Unlock()
	var missed *CoherencyError
	if b.looked {
		missed = &CoherencyError{b.writer.run, b.writer.program, b.writer.arg, npu.FromDevice, 0}
	}
	b.unsynced, b.looked = true, false
	b.writer = w
	b.newer = b.newer.with(0, min(n, b.size))
	return missed
}
