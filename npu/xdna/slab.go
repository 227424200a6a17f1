package xdna

import "errors"

// A model has hundreds of small weights, e.g. norms, biases and tables of a few kilobytes. They are
// allocated from slabs, because every buffer object takes an entry in the driver's tables and locks
// a page.
const (
	slabBytes = 1 << 20
	slabPiece = 64 << 10 // larger weights are buffer objects of their own
	slabAlign = 4096     // one page, so that no two pieces share a cache line
)

// slab is a buffer object from which pieces are allocated in order. It is freed with its last
// piece.
type slab struct {
	whole  memory
	used   int
	pieces int // not yet freed
}

// allocWeight returns memory for a weight, and a function that frees it.
func (d *Device) allocWeight(n int) (memory, func() error, error) {
	if n > slabPiece {
		m, err := d.drv.alloc(n)
		if err != nil {
			return nil, nil, err
		}
		return m, m.close, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	room := (n + slabAlign - 1) / slabAlign * slabAlign
	if d.slab == nil || d.slab.used+room > slabBytes {
		whole, err := d.drv.alloc(slabBytes)
		if err != nil {
			return nil, nil, err
		}
		d.slab = &slab{whole: whole}
	}
	s := d.slab
	m, err := s.whole.sub(s.used, n)
	if err != nil {
		return nil, nil, errors.Join(err, d.freeSlab(s))
	}
	s.used += room
	s.pieces++
	return m, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		err := m.close()
		s.pieces--
		return errors.Join(err, d.freeSlab(s))
	}, nil
}

// freeSlab closes s if it has no pieces. The caller must hold d.mu.
func (d *Device) freeSlab(s *slab) error {
	if s.pieces > 0 {
		return nil
	}
	if d.slab == s {
		d.slab = nil
	}
	return s.whole.close()
}
