package cpu

import (
	"fmt"
	"runtime"
	"unsafe"

	mmap "github.com/edsrzf/mmap-go"

	"github.com/npukit/npukit/npu"
)

// memory is zeroed, page-aligned and outside the Go heap, so that C may keep its address and the collector never looks at it.
type memory struct {
	m  mmap.MMap
	of *weightBlock // that it is a piece of, nil where it is a mapping of its own
}

func newMemory(bytes int) (memory, error) {
	// COPY, because Linux clears private pages faster than those that processes could share, which RDWR asks for. Windows has no such pages without a file.
	prot := mmap.COPY
	if runtime.GOOS == "windows" {
		prot = mmap.RDWR
	}
	m, err := mmap.MapRegion(nil, max(bytes, 1), prot, mmap.ANON, 0)
	if err != nil {
		return memory{}, fmt.Errorf("npu/cpu: cannot get %d bytes: %w: %w", bytes, npu.ErrMemory, err)
	}
	return memory{m: m}, nil
}

// inHugePages asks for large pages, of which a processor finds the addresses sooner: a virtual Xeon of the fourth generation or later reads 36 GB/s from them and 28 from small ones, and decodes
// quantised models of a billion parameters 14 to 25 % faster. A virtual EPYC of the fifth generation decodes 3 to 10 % faster and takes seconds more to get some gigabytes
// of them from the host. It is for memory all of which will be used.
func (m memory) inHugePages() { adviseHuge(m.m) }

func (m memory) ptr() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(m.m)) }

func (m memory) free() {
	switch {
	case m.of != nil:
		m.of.release(m.m)
	case m.m != nil:
		// The only failure is an address that is not mapped, and this one is.
		_ = m.m.Unmap()
	}
}

// arena hands out pieces of memory that are all given back at once. Pieces stay where they are while it grows; once everything has been given
// back, what was needed in several blocks is joined into one.
type arena struct {
	blocks []memory
	block  int // the one being cut
	used   int // bytes of it
}

// alignment of pieces: a cache line.
const alignment = 64

// arenaBlock is the least that an arena grows by.
const arenaBlock = 1 << 20

// alloc gives n bytes of undefined content.
func (a *arena) alloc(n int) (unsafe.Pointer, error) {
	if n < 0 || n > maxAlloc {
		return nil, fmt.Errorf("npu/cpu: %d bytes of memory, want 0 to %d", n, maxAlloc)
	}
	n = (n + alignment - 1) &^ (alignment - 1)
	for ; a.block < len(a.blocks); a.block, a.used = a.block+1, 0 {
		if b := a.blocks[a.block]; a.used+n <= len(b.m) {
			p := unsafe.Add(b.ptr(), a.used)
			a.used += n
			return p, nil
		}
	}
	m, err := newMemory(max(n, arenaBlock))
	if err != nil {
		return nil, err
	}
	a.blocks = append(a.blocks, m)
	a.used = n
	return m.ptr(), nil
}

// rewind gives all pieces back without moving memory: addresses handed out stay readable.
func (a *arena) rewind() { a.block, a.used = 0, 0 }

// reset gives all pieces back; no address handed out may be used any more.
func (a *arena) reset() error {
	a.rewind()
	if len(a.blocks) < 2 {
		return nil
	}
	total := 0
	for _, b := range a.blocks {
		total += len(b.m)
	}
	a.free()
	m, err := newMemory(total)
	if err != nil {
		return err
	}
	a.blocks = []memory{m}
	return nil
}

func (a *arena) free() {
	for _, b := range a.blocks {
		b.free()
	}
	a.blocks = nil
	a.rewind()
}
