package xdna

import "errors"

// Norms, biases and small tables are some hundred buffers of a few kilobytes. Each as a buffer object of its own would be an entry in the
// driver's tables and a lock on a page, so they are cut from slabs.
const (
	slabBytes = 1 << 20
	slabPiece = 64 << 10 // larger ones are buffer objects themselves
	slabAlign = 4096     // of a piece: a page, so that no two share a cache line
)

// slab is a buffer object that pieces are cut from, from its start to its end. It is given back with its last piece.
type slab struct {
	whole  memory
	used   int
	pieces int // alive
}

// place finds memory for a weight. The function gives it back.
func (d *Device) place(n int) (memory, func() error, error) {
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
		return nil, nil, errors.Join(err, d.release(s))
	}
	s.used += room
	s.pieces++
	return m, func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		err := m.close()
		s.pieces--
		return errors.Join(err, d.release(s))
	}, nil
}

// release gives a slab without pieces back. The caller holds Device.mu.
func (d *Device) release(s *slab) error {
	if s.pieces > 0 {
		return nil
	}
	if d.slab == s {
		d.slab = nil
	}
	return s.whole.close()
}
