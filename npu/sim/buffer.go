package sim

import (
	"context"
	"fmt"
	"sync"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// buffer holds its contents twice: the host's copy and the device's, which programs use. Only Sync
// copies between them, as a cache flush does on the hardware. A weight has only the device copy.
type buffer struct {
	d         *Device
	size      int
	host, dev npu.Buffer   // allocated on d.host, the software device; host is nil for a weight
	weight    *weight      // nil for other buffers
	used      []*converted // tensors that a weight was converted from

	mu        sync.Mutex
	closed    bool
	dirty     ranges // bytes that the device has written and nobody has synced
	writer    writer // last run that wrote the buffer
	untouched bool   // no part has been synced since the last write
	looked    ranges // dirty bytes at the host's last call to Bytes, less those synced since
}

// writer identifies the run that last wrote a buffer, for messages.
type writer struct{ run, program, arg string }

var _ npu.HostVisible = (*buffer)(nil)

// Alloc returns a zeroed buffer. It returns [npu.ErrMemory] if Options.Memory is exceeded or a
// fault is injected.
func (d *Device) Alloc(ctx context.Context, bytes int) (npu.Buffer, error) {
	if err := d.checkOpen(ctx); err != nil {
		return nil, err
	}
	if err := d.reserve(bytes); err != nil {
		return nil, err
	}
	b := &buffer{d: d, size: bytes}
	var err error
	if b.dev, err = d.host.Alloc(ctx, bytes); err == nil {
		if b.host, err = d.host.Alloc(ctx, bytes); err == nil {
			return b, nil
		}
		err = fmt.Errorf("%w (%w)", err, b.dev.Close())
	}
	d.unreserve(bytes)
	return nil, fmt.Errorf("npu/sim: %w", err)
}

func (b *buffer) Len() int { return b.size }

// Bytes returns the host's copy. For a weight, which is read-only, it returns the device's.
func (b *buffer) Bytes() []byte {
	if b.host == nil {
		return b.dev.Bytes()
	}
	b.look()
	return b.host.Bytes()
}

// HostBuffer returns the host side as a buffer of [Device.Host].
func (b *buffer) HostBuffer() npu.Buffer {
	switch {
	case b.host == nil:
		return b.dev
	case b.d.opts.Debug:
		return hostSide{b.host, b}
	}
	return b.host
}

// Sync copies n bytes starting at offset to the other side.
func (b *buffer) Sync(dir npu.Direction, offset, n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := npu.CheckSync(dir, offset, n, b.size)
	if b.closed {
		err = npu.ErrClosed
	}
	if err != nil {
		return fmt.Errorf("npu/sim: Sync: %w", err)
	}
	if b.host == nil {
		return nil
	}
	host, dev := b.host.Bytes()[offset:][:n], b.dev.Bytes()[offset:][:n]
	if dir == npu.ToDevice {
		copy(dev, host)
	} else {
		copy(host, dev)
	}
	b.dirty = b.dirty.without(offset, offset+n)
	b.looked = b.looked.without(offset, offset+n)
	b.untouched = false
	b.d.clock.transferred(dir, n)
	return nil
}

// Close waits for a running Submit and frees the buffer.
func (b *buffer) Close() error {
	b.d.sem <- struct{}{}
	defer b.d.unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	if b.host == nil {
		// before Close, as weights are keyed by address and freed memory can be reused at once
		b.d.weights.release(b.weight)
		err := b.dev.Close()
		b.d.weights.releaseConverted(b.used)
		return err
	}
	b.d.unreserve(b.size)
	err := b.host.Close()
	if e := b.dev.Close(); err == nil {
		err = e
	}
	return err
}

// typ returns the element type. A weight is always BF16; other buffers have the type of the
// argument that they are bound to.
func (b *buffer) typ(a *npu.Arg) dtype.Type {
	if b.weight != nil {
		return dtype.BF16
	}
	return a.Type
}
