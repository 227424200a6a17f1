package xdna

import (
	"errors"
	"sync"
)

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

// slabs allocates the memory of weights.
type slabs struct {
	drv driver

	mu   sync.Mutex
	last *slab // pieces are allocated from; nil for none
}

// alloc returns memory for a weight, and a function that frees it.
func (l *slabs) alloc(n int) (memory, func() error, error) {
	if n > slabPiece {
		m, err := l.drv.alloc(n)
		if err != nil {
			return nil, nil, err
		}
		return m, m.close, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	room := (n + slabAlign - 1) / slabAlign * slabAlign
	if l.last == nil || l.last.used+room > slabBytes {
		whole, err := l.drv.alloc(slabBytes)
		if err != nil {
			return nil, nil, err
		}
		l.last = &slab{whole: whole}
	}
	s := l.last
	m, err := s.whole.sub(s.used, n)
	if err != nil {
		return nil, nil, errors.Join(err, l.free(s))
	}
	s.used += room
	s.pieces++
	return m, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		err := m.close()
		s.pieces--
		return errors.Join(err, l.free(s))
	}, nil
}

// free closes s if it has no pieces. The caller must hold l.mu.
func (l *slabs) free(s *slab) error {
	if s.pieces > 0 {
		return nil
	}
	if l.last == s {
		l.last = nil
	}
	return s.whole.close()
}
