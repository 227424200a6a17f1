package xdna

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/npukit/npukit/npu"
)

// object is device memory with a unique ID. Runs are keyed by the IDs of their arguments.
type object struct {
	memory
	id uint64
}

func (d *Device) object(m memory) object { return object{m, d.next.Add(1)} }

// buffer is memory that array and host programs share.
//
// The host side is a buffer of the host device. If the driver can map process memory, the array
// side is the same memory, and Sync only flushes or invalidates caches. Otherwise the array side is
// separate memory, and Sync copies.
type buffer struct {
	d     *Device
	size  int
	host  npu.Buffer
	array object
	copy  bool // the sides are separate memory

	mu     sync.Mutex
	closed bool
}

var _ npu.HostVisible = (*buffer)(nil)

// Alloc returns a zeroed buffer. Its memory is locked; if the limit for locked memory is too low,
// the error wraps [npu.ErrMemory] and includes advice.
func (d *Device) Alloc(ctx context.Context, bytes int) (npu.Buffer, error) {
	if err := d.checkOpen(ctx); err != nil {
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
		return nil, errors.Join(fmt.Errorf("npu/xdna: Alloc of %d bytes: %w", bytes, failure(err)),
			host.Close())
	}
	return b, nil
}

// attach creates the array side of a buffer.
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
	if err := m.sync(npu.ToDevice, 0, b.size); err != nil { // the device side has undefined contents
		return errors.Join(err, m.close())
	}
	if refused != nil { // only wrapping failed, not allocation
		d.mu.Lock()
		first := !d.copies
		d.copies = true
		d.mu.Unlock()
		if first {
			d.log.Warn("the kernel driver cannot map process memory: syncs copy", "error", refused)
		}
	}
	return nil
}

func (b *buffer) Len() int { return b.size }

// Bytes returns the host's view. After a canceled Submit it waits until the device is idle.
func (b *buffer) Bytes() []byte {
	b.d.waitIdle()
	if mem := b.host.Bytes(); len(mem) >= b.size {
		return mem[:b.size]
	}
	return nil // closed
}

// HostBuffer returns the host side as a buffer of [Device.Host]. After a canceled Submit it waits
// until the device is idle.
func (b *buffer) HostBuffer() npu.Buffer {
	b.d.waitIdle()
	return b.host
}

func (b *buffer) Sync(dir npu.Direction, offset, n int) error {
	b.d.waitIdle()
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

// Close waits for a running Submit and frees the buffer.
func (b *buffer) Close() error {
	b.d.sem <- struct{}{}
	defer b.d.release()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	b.d.contexts.closeRunsOf(b.array.id)
	return errors.Join(b.array.close(), b.host.Close())
}
