package sim

import (
	"context"
	"fmt"
	"sync"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/dtype"
)

// buffer has its memory twice: the host's view, and the device's, which programs work on. Only Sync copies between them, as on the chip,
// where a cache lies between. A weight has the device's side only.
type buffer struct {
	d         *Device
	size      int
	host, dev npu.Buffer   // of d.host, the software device; host is nil for a weight
	weight    *weight      // nil for other buffers
	used      []*converted // that a weight was made of

	mu        sync.Mutex
	closed    bool
	newer     ranges // what the device has written and nobody has synced
	writer    writer // who wrote last
	untouched bool   // no sync of any part has followed
	looked    ranges // what was in newer when the host looked at the buffer all the same, less what has been synced since
}

// writer says who wrote to a buffer last, for messages.
type writer struct{ run, program, arg string }

var _ npu.HostVisible = (*buffer)(nil)

// Alloc makes a zeroed buffer, on both sides. With Options.Memory or a fault it may be refused: [npu.ErrMemory].
func (d *Device) Alloc(ctx context.Context, bytes int) (npu.Buffer, error) {
	if err := d.usable(ctx); err != nil {
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

// Bytes is the host's view: of a weight, which nobody changes, the device's.
func (b *buffer) Bytes() []byte {
	if b.host == nil {
		return b.dev.Bytes()
	}
	b.look()
	return b.host.Bytes()
}

// HostBuffer is the host's side as a buffer of [Device.Host].
func (b *buffer) HostBuffer() npu.Buffer {
	switch {
	case b.host == nil:
		return b.dev
	case b.d.opts.Debug:
		return hostSide{b.host, b}
	}
	return b.host
}

// Sync copies n bytes from offset on to the other side.
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
	b.newer = b.newer.without(offset, offset+n)
	b.looked = b.looked.without(offset, offset+n)
	b.untouched = false
	b.d.clock.transferred(dir, n)
	return nil
}

// Close waits for a running Submit.
func (b *buffer) Close() error {
	b.d.turn <- struct{}{}
	defer b.d.unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	if b.host == nil {
		b.d.unshare(b.weight) // first: weights are known by their addresses, and what is given back may be another's at once
		err := b.dev.Close()
		b.d.forget(b.used)
		return err
	}
	b.d.unreserve(b.size)
	err := b.host.Close()
	if e := b.dev.Close(); err == nil {
		err = e
	}
	return err
}

// typ is the type of the elements: that of a weight is known, others have their argument's.
func (b *buffer) typ(a *npu.Arg) dtype.Type {
	if b.weight != nil {
		return dtype.BF16
	}
	return a.Type
}
