package xdna

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/npukit/npukit/npu"
)

// object is memory of the device with a number that no other object of the device ever has: runs are found by the numbers of their arguments.
type object struct {
	memory
	id uint64
}

func (d *Device) object(m memory) object { return object{m, d.next.Add(1)} }

// buffer is memory that programs of the array and of the host both work on.
//
// The host's side is a buffer of the host's device. The array's side is, where the driver can map memory of the process, the same memory,
// and a sync moves nothing but what lies in caches. Where it cannot, the array's side is memory of its own and a sync copies.
type buffer struct {
	d     *Device
	size  int
	host  npu.Buffer
	array object
	copy  bool // the sides are different memory

	mu     sync.Mutex
	closed bool
}

var _ npu.HostVisible = (*buffer)(nil)

// Alloc makes a zeroed buffer. It is locked in memory: where the limit of that is too small, the error is [npu.ErrMemory] with advice.
func (d *Device) Alloc(ctx context.Context, bytes int) (npu.Buffer, error) {
	if err := d.usable(ctx); err != nil {
		return nil, err
	}
	if bytes < 1 || bytes > maxBytes {
		return nil, fmt.Errorf("npu/xdna: Alloc of %d bytes, want 1 to %d", bytes, maxBytes)
	}
	page := os.Getpagesize()
	host, err := d.host.Alloc(ctx, (bytes+page-1)/page*page)
	if err != nil {
		return nil, fmt.Errorf("npu/xdna: %w", err)
	}
	b := &buffer{d: d, size: bytes, host: host}
	if err := d.attach(b); err != nil {
		return nil, errors.Join(fmt.Errorf("npu/xdna: Alloc of %d bytes: %w", bytes, failure(err)), host.Close())
	}
	return b, nil
}

// attach gives a buffer its side on the array.
func (d *Device) attach(b *buffer) error {
	d.mu.Lock()
	b.copy = d.copies
	d.mu.Unlock()
	var m memory
	var refused error
	if !b.copy {
		m, refused = d.drv.wrap(b.host.Bytes())
	}
	if m == nil {
		var err error
		if m, err = d.drv.alloc(b.size); err != nil {
			return err
		}
		b.copy = true
	}
	b.array = d.object(m)
	if err := m.sync(npu.ToDevice, 0, b.size); err != nil { // whatever the device's side held
		return errors.Join(err, m.close())
	}
	if refused != nil { // and not memory in general
		d.mu.Lock()
		first := !d.copies
		d.copies = true
		d.mu.Unlock()
		if first {
			d.log.Warn("the kernel driver does not map memory of the process: syncs copy", "error", refused)
		}
	}
	return nil
}

func (b *buffer) Len() int { return b.size }

// Bytes is the host's view. After a cancelled Submit it waits until the device writes no more.
func (b *buffer) Bytes() []byte {
	b.d.landed()
	if mem := b.host.Bytes(); len(mem) >= b.size {
		return mem[:b.size]
	}
	return nil // closed
}

// HostBuffer is the host's side as a buffer of [Device.Host]. After a cancelled Submit it waits until the device writes no more.
func (b *buffer) HostBuffer() npu.Buffer {
	b.d.landed()
	return b.host
}

func (b *buffer) Sync(dir npu.Direction, offset, n int) error {
	b.d.landed()
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := checkSync(b.closed, dir, offset, n, b.size); err != nil || n == 0 {
		return err
	}
	if b.copy && dir == npu.ToDevice {
		copy(b.array.bytes()[offset:][:n], b.host.Bytes()[offset:][:n])
	}
	if err := b.array.sync(dir, offset, n); err != nil {
		return fmt.Errorf("npu/xdna: Sync: %w", failure(err))
	}
	if b.copy && dir == npu.FromDevice {
		copy(b.host.Bytes()[offset:][:n], b.array.bytes()[offset:][:n])
	}
	return nil
}

func checkSync(closed bool, dir npu.Direction, offset, n, size int) error {
	err := npu.CheckSync(dir, offset, n, size)
	if closed {
		err = npu.ErrClosed
	}
	if err != nil {
		return fmt.Errorf("npu/xdna: Sync: %w", err)
	}
	return nil
}

// Close waits for a running Submit.
func (b *buffer) Close() error {
	b.d.turn <- struct{}{}
	defer b.d.leave()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	b.d.contexts.forget(b.array.id)
	return errors.Join(b.array.close(), b.host.Close())
}
