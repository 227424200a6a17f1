package cpu

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// buffer is memory that programs read and write. Host and device share it, so Sync has nothing to
// do.
type buffer struct {
	d    *Device
	data []byte
	size int     // of data, also when closed
	mem  memory  // its own memory, if any
	from *shared // the weight it was made from, if it is one

	grouped *groupedWeight // quantized blocks in groups
	bf12    *bf12Weight    // the weight in BF12
	late    bool           // data is not set: from.expanded returns it

	typ    dtype.Type  // of a Const's elements; Invalid if programs decide
	fixed  bool        // read-only
	closed atomic.Bool // set in d.turn
}

// maxAlloc bounds the size of a buffer.
const maxAlloc = 1 << 46

// Alloc returns a zeroed buffer, page-aligned and outside the Go heap. Its Close waits for a
// running Submit.
func (d *Device) Alloc(ctx context.Context, bytes int) (npu.Buffer, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("npu/cpu: %w", err)
	}
	if d.closed.Load() {
		return nil, fmt.Errorf("npu/cpu: Alloc: %w", npu.ErrClosed)
	}
	if bytes < 1 || bytes > maxAlloc {
		return nil, fmt.Errorf("npu/cpu: Alloc of %d bytes, want 1 to %d", bytes, maxAlloc)
	}
	m, err := newMemory(bytes)
	if err != nil {
		return nil, err
	}
	return &buffer{d: d, data: m.m[:bytes], size: bytes, mem: m}, nil
}

func (b *buffer) Len() int { return b.size }

func (b *buffer) Bytes() []byte {
	if !b.late {
		return b.data
	}
	data, err := b.from.expanded(context.Background(), b.d)
	if err != nil { // out of memory
		return nil
	}
	return data[:b.size]
}

func (b *buffer) Sync(dir npu.Direction, offset, n int) error {
	err := npu.CheckSync(dir, offset, n, b.size)
	if b.closed.Load() {
		err = npu.ErrClosed
	}
	if err != nil {
		return fmt.Errorf("npu/cpu: Sync: %w", err)
	}
	return nil
}

func (b *buffer) Close() error {
	b.d.turn <- struct{}{}
	defer b.d.unlock()
	if b.closed.Swap(true) {
		return nil
	}
	b.data, b.grouped, b.bf12, b.late = nil, nil, nil, false
	b.mem.free()
	if b.from != nil {
		b.from.release(b.d)
	}
	return nil
}

func (b *buffer) ptr() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b.data)) }
