package xrt

import (
	"io"
	"os"
	"runtime"
	"unsafe"
)

// Direction is the direction of a Sync.
type Direction int

// Directions of a Sync.
const (
	ToDevice   Direction = 0
	FromDevice Direction = 1
)

// maxBytes limits sizes to 1 PiB, so that the sum of offset and length cannot overflow.
const maxBytes = 1 << 50

// Buffer is memory that host and device can access (a buffer object, BO). It is page-aligned and
// locked.
type Buffer struct {
	object  *object
	cleanup runtime.Cleanup
	bytes   []byte
	address uint64
}

// Alloc returns a data buffer of n bytes in host memory. A DMA descriptor of the device can address
// 4 GiB of it. The error may be [ErrMemlock] or [ErrMemory].
func (d *Device) Alloc(n int) (*Buffer, error) {
	return d.newBuffer(n, func(dev unsafe.Pointer) (unsafe.Pointer, *failure) {
		return nativeBufferHost(dev, n)
	})
}

// AllocCacheable returns a buffer of n bytes in the device heap, for instruction streams. group
// must be that of the kernel's instruction argument, see [Kernel.Group]. The error may be
// [ErrMemory].
func (d *Device) AllocCacheable(n, group int) (*Buffer, error) {
	if group < 0 || int64(group) > 1<<32-1 {
		return nil, errorf("buffer of %d bytes: invalid memory group %d: use one from Kernel.Group",
			n, group)
	}
	return d.newBuffer(n, func(dev unsafe.Pointer) (unsafe.Pointer, *failure) {
		return nativeBufferCacheable(dev, n, uint32(group))
	})
}

// Wrap returns a buffer that uses existing memory, e.g. a mapped file. The memory must start and
// end on a page boundary. It must not be Go memory, because the garbage collector does not know
// that the device uses it, and it must stay mapped until the buffer is closed and no run uses it.
func (d *Device) Wrap(mem []byte) (*Buffer, error) {
	if len(mem) == 0 {
		return nil, errorf("wrap memory: 0 bytes")
	}
	if page := uintptr(os.Getpagesize()); uintptr(unsafe.Pointer(&mem[0]))%page != 0 ||
		uintptr(len(mem))%page != 0 {
		return nil, errorf("wrap memory at %p, %d bytes: both must be multiples of the page "+
			"size %d", &mem[0], len(mem), page)
	}
	return d.newBuffer(len(mem), func(dev unsafe.Pointer) (unsafe.Pointer, *failure) {
		return nativeBufferUser(dev, mem)
	})
}

// Sub returns a buffer for bytes [offset, offset+n) of b. It shares b's memory and keeps it alive.
func (b *Buffer) Sub(offset, n int) (*Buffer, error) {
	if err := b.check("sub-buffer", offset, n); err != nil {
		return nil, err
	}
	var sub *Buffer
	err := b.object.do(func(ptr unsafe.Pointer) (err error) {
		s, f := nativeBufferSub(ptr, offset, n)
		sub, err = wrapBuffer(s, f, n)
		return err
	})
	return sub, err
}

func (d *Device) newBuffer(n int, make func(unsafe.Pointer) (unsafe.Pointer, *failure)) (*Buffer, error) {
	if n <= 0 || int64(n) > maxBytes {
		return nil, errorf("buffer of %d bytes: want 1 byte to 1 PiB", n)
	}
	var b *Buffer
	err := d.object.do(func(dev unsafe.Pointer) (err error) {
		ptr, f := make(dev)
		b, err = wrapBuffer(ptr, f, n)
		return err
	})
	return b, err
}

func wrapBuffer(ptr unsafe.Pointer, f *failure, n int) (*Buffer, error) {
	if err := fail(f, "buffer of %d bytes", n); err != nil {
		return nil, err
	}
	mem, address, f := nativeBufferMap(ptr)
	if f != nil || mem == nil {
		nativeBufferFree(ptr)
		if f == nil {
			f = &failure{text: "XRT returned no mapping"}
		}
		return nil, fail(f, "map buffer of %d bytes", n)
	}
	b := &Buffer{object: newObject("buffer", ptr, nativeBufferFree),
		bytes: unsafe.Slice((*byte)(mem), n), address: address}
	b.cleanup = runtime.AddCleanup(b, (*object).close, b.object)
	return b, nil
}

// Close closes the buffer. Its memory is freed when no run and no sub-buffer uses it.
func (b *Buffer) Close() error {
	b.object.close()
	return nil
}

// Size returns the size in bytes.
func (b *Buffer) Size() int { return len(b.bytes) }

// Bytes returns the host's view of the buffer. The slice is valid until Close; accessing it
// afterwards faults. ReadAt and WriteAt return an error instead.
func (b *Buffer) Bytes() ([]byte, error) {
	if b.object.closed.Load() {
		return nil, b.object.errClosed()
	}
	b.cleanup.Stop() // the slice may outlive the Buffer
	return b.bytes, nil
}

// ReadAt implements [io.ReaderAt] on the host's view.
func (b *Buffer) ReadAt(p []byte, offset int64) (n int, err error) {
	err = b.object.do(func(unsafe.Pointer) error {
		if offset < 0 || offset > int64(len(b.bytes)) {
			return errorf("read from byte %d of a buffer of %d", offset, len(b.bytes))
		}
		if n = copy(p, b.bytes[offset:]); n < len(p) {
			return io.EOF
		}
		return nil
	})
	return n, err
}

// WriteAt implements [io.WriterAt] on the host's view. It writes nothing if p does not fit.
func (b *Buffer) WriteAt(p []byte, offset int64) (n int, err error) {
	err = b.object.do(func(unsafe.Pointer) error {
		if offset < 0 || offset > int64(len(b.bytes)) || int64(len(p)) > int64(len(b.bytes))-offset {
			return errorf("write %d bytes to byte %d of a buffer of %d", len(p), offset, len(b.bytes))
		}
		n = copy(b.bytes[offset:], p)
		return nil
	})
	return n, err
}

// Sync makes bytes [offset, offset+n) that one side wrote visible to the other side. Other bytes
// are unaffected.
func (b *Buffer) Sync(dir Direction, offset, n int) error {
	if dir != ToDevice && dir != FromDevice {
		return errorf("sync: direction %d is neither ToDevice nor FromDevice", dir)
	}
	if err := b.check("sync", offset, n); err != nil {
		return err
	}
	return b.object.do(func(ptr unsafe.Pointer) error {
		return fail(nativeBufferSync(ptr, dir == FromDevice, offset, n),
			"sync %d bytes from byte %d of a buffer of %d", n, offset, len(b.bytes))
	})
}

// check returns an error if the range is empty or outside the buffer. It avoids overflow of
// offset+n.
func (b *Buffer) check(op string, offset, n int) error {
	if offset < 0 || n <= 0 || offset > len(b.bytes) || n > len(b.bytes)-offset {
		return errorf("%s: %d bytes from byte %d of a buffer of %d", op, n, offset, len(b.bytes))
	}
	return nil
}
