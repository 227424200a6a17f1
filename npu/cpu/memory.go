package cpu

import (
	"fmt"
	"runtime"
	"unsafe"

	mmap "github.com/edsrzf/mmap-go"

	"github.com/npukit/npukit/npu"
)

// memory is zeroed, page-aligned and outside the Go heap, so that C may keep its address and the
// collector ignores it.
type memory struct {
	m  mmap.MMap
	of *weightBlock // the block it is a piece of; nil if it is a mapping of its own
}

func newMemory(bytes int) (memory, error) {
	// COPY, because Linux clears private pages faster than the shared ones of RDWR. Windows has
	// none without a file.
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

// inHugePages requests huge pages, which take fewer TLB misses: decode gets up to 25 % faster, but
// some hosts take seconds to provide gigabytes of them. It is for memory all of which will be used.
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

// arena allocates memory that is released all at once. Allocations stay in place while it grows;
// after a release, memory that took several blocks is joined into one.
type arena struct {
	blocks []memory
	block  int // the current one
	used   int // bytes of it
}

// alignment of allocations: a cache line.
const alignment = 64

// arenaBlock is the least that an arena grows by.
const arenaBlock = 1 << 20

// alloc returns n bytes of undefined content.
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

// rewind releases all allocations without moving memory: their addresses stay readable.
func (a *arena) rewind() { a.block, a.used = 0, 0 }

// reset releases all allocations; their addresses become invalid.
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
