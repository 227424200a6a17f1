package cpu

import "sync"

// weightStore allocates the memory of a device's weights as pieces of large blocks. Huge pages are
// aligned to their size, so a matrix with a mapping of its own has small pages at both ends, and in
// a block it shares them with its neighbors. No piece is used twice, so all are zeros. The zero
// value is ready.
type weightStore struct {
	mu   sync.Mutex
	open *weightBlock // from which pieces are cut
}

// weightBlock is a mapping of which some pieces are in use.
type weightBlock struct {
	store  *weightStore
	mem    memory
	cut    int // bytes given to pieces
	pieces int // that are in use
}

// weightBlockBytes is the size of a block: address space, which takes no memory before it is
// written. A piece that does not fit in the rest of a block starts another.
const weightBlockBytes = 256 << 20

// alloc returns zeroed memory in huge pages, all of which the caller will use.
func (s *weightStore) alloc(bytes int) (memory, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := (max(bytes, 1) + alignment - 1) &^ (alignment - 1)
	b := s.open
	if b == nil || n > len(b.mem.m)-b.cut {
		m, err := newMemory(max(n, weightBlockBytes))
		if err != nil && n < weightBlockBytes {
			m, err = newMemory(n) // where address space is scarce
		}
		if err != nil {
			return memory{}, err
		}
		m.inHugePages()
		b = &weightBlock{store: s, mem: m}
		// Of two blocks the one with more room stays open.
		if old := s.open; old == nil || len(m.m)-n >= len(old.mem.m)-old.cut {
			s.open = b
		}
	}
	piece := b.mem.m[b.cut:][:bytes:n]
	b.cut += n
	b.pieces++
	return memory{m: piece, of: b}, nil
}

// release returns a piece, and the addresses with the last piece of the block.
func (b *weightBlock) release(piece []byte) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	if b.pieces--; b.pieces > 0 {
		discard(piece)
		return
	}
	if b.store.open == b {
		b.store.open = nil
	}
	b.mem.free()
}
