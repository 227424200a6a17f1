package xrt

import (
	"io"
	"os"
	"runtime"
	"unsafe"
)

// Direction is the way of a Sync.
type Direction int

// The two ways of a Sync.
const (
	ToDevice   Direction = 0
	FromDevice Direction = 1
)

// maxBytes bounds sizes, so that sums of offset and length do not overflow: 1 PiB, which no machine with an NPU has.
const maxBytes = 1 << 50

// Buffer is memory that host and device both reach (a buffer object, BO). It is page-aligned and locked.
type Buffer struct {
	object  *object
	cleanup runtime.Cleanup
	bytes   []byte
	address uint64
}

// Alloc makes a buffer of n bytes in host memory that the device reads and writes: for data. A single descriptor of the device's DMA
// reaches 4 GiB of it. Errors: [ErrMemlock], [ErrMemory].
func (d *Device) Alloc(n int) (*Buffer, error) {
	return d.newBuffer(n, func(dev unsafe.Pointer) (unsafe.Pointer, *failure) { return nativeBufferHost(dev, n) })
}

// AllocCacheable makes a buffer of n bytes in the device's heap, which is where instruction streams live. The group is that of the kernel's
// instruction argument, [Kernel.Group]. Error: [ErrMemory].
func (d *Device) AllocCacheable(n, group int) (*Buffer, error) {
	if group < 0 || int64(group) > 1<<32-1 {
		return nil, errorf("buffer of %d bytes: memory group %d is not one that Kernel.Group returns", n, group)
	}
	return d.newBuffer(n, func(dev unsafe.Pointer) (unsafe.Pointer, *failure) {
		return nativeBufferCacheable(dev, n, uint32(group))
	})
}

// Wrap makes a buffer of memory that the program already has, such as a mapped file: the device reads and writes it in place. The memory
// must start and end on a page boundary, must not be Go's (the collector does not know that the device uses it), and must stay
// mapped until the buffer is closed and no run uses it.
func (d *Device) Wrap(mem []byte) (*Buffer, error) {
	if len(mem) == 0 {
		return nil, errorf("wrap memory: 0 bytes")
	}
	if page := uintptr(os.Getpagesize()); uintptr(unsafe.Pointer(&mem[0]))%page != 0 || uintptr(len(mem))%page != 0 {
		return nil, errorf("wrap memory at %p, %d bytes: both must be multiples of the page size %d", &mem[0], len(mem), page)
	}
	return d.newBuffer(len(mem), func(dev unsafe.Pointer) (unsafe.Pointer, *failure) { return nativeBufferUser(dev, mem) })
}

// Sub makes a buffer of n bytes that are part of b, from offset on. It shares b's memory and keeps it.
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
		return nil, errorf("buffer of %d bytes: a buffer has between 1 byte and 1 PiB", n)
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
			f = &failure{text: "XRT gave no mapping"}
		}
		return nil, fail(f, "map buffer of %d bytes", n)
	}
	b := &Buffer{object: newObject("buffer", ptr, nativeBufferFree), bytes: unsafe.Slice((*byte)(mem), n), address: address}
	b.cleanup = runtime.AddCleanup(b, (*object).close, b.object)
	return b, nil
}

// Close gives the memory back once no run has it as an argument and no sub-buffer is open.
func (b *Buffer) Close() error {
	b.object.close()
	return nil
}

// Size is the size in bytes, as asked for.
func (b *Buffer) Size() int { return len(b.bytes) }

// Address is where the device sees the buffer.
func (b *Buffer) Address() uint64 { return b.address }

// Bytes is the host's view of the buffer. It is valid until Close: like a mapped file that was unmapped, the slice of a closed buffer
// faults when it is touched. ReadAt and WriteAt have no such trap.
func (b *Buffer) Bytes() ([]byte, error) {
	if b.object.closed.Load() {
		return nil, b.object.errClosed()
	}
	b.cleanup.Stop() // the collector sees the Buffer, not who holds the slice
	return b.bytes, nil
}

// ReadAt copies from the host's view, as [io.ReaderAt].
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

// WriteAt copies into the host's view, as [io.WriterAt]. What does not fit is refused whole.
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

// Sync makes n bytes from offset on, as one side wrote them, visible to the other. Bytes outside of the range stay as that side last saw them.
func (b *Buffer) Sync(dir Direction, offset, n int) error {
	if dir != ToDevice && dir != FromDevice {
		return errorf("sync: direction %d is neither ToDevice nor FromDevice", dir)
	}
	if err := b.check("sync", offset, n); err != nil {
		return err
	}
	return b.object.do(func(ptr unsafe.Pointer) error {
		return fail(nativeBufferSync(ptr, dir == FromDevice, offset, n), "sync %d bytes from byte %d of a buffer of %d", n, offset, len(b.bytes))
	})
}

// check refuses ranges that are empty or leave the buffer, without adding offset and length.
func (b *Buffer) check(what string, offset, n int) error {
	if offset < 0 || n <= 0 || offset > len(b.bytes) || n > len(b.bytes)-offset {
		return errorf("%s: %d bytes from byte %d of a buffer of %d", what, n, offset, len(b.bytes))
	}
	return nil
}
