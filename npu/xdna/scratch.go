package xdna

import "errors"

// scratch is device memory that only array programs use.
type scratch struct {
	object
	size int // 0 if not allocated
}

// scratchPool is the memory of Scratch arguments. Programs run one at a time, so all of them share
// it, and it is never synced. Guarded by Device.sem.
type scratchPool struct {
	d      *Device
	byRank []scratch
}

// get returns memory for the Scratch arguments of a rank. If it must grow, the runs that use the old
// memory are closed; this happens while a Submit is checked, before any of its runs is bound.
func (p *scratchPool) get(rank, bytes int) (object, error) {
	for len(p.byRank) <= rank {
		p.byRank = append(p.byRank, scratch{})
	}
	s := &p.byRank[rank]
	if s.size >= bytes {
		return s.object, nil
	}
	if err := p.drop(s); err != nil {
		return object{}, err
	}
	m, err := p.d.drv.alloc(bytes)
	if err != nil {
		return object{}, err
	}
	*s = scratch{p.d.object(m), bytes}
	return s.object, nil
}

func (p *scratchPool) drop(s *scratch) error {
	if s.size == 0 {
		return nil
	}
	p.d.contexts.closeRunsOf(s.id)
	old := *s
	*s = scratch{}
	return old.close()
}

func (p *scratchPool) close() error {
	var errs []error
	for i := range p.byRank {
		errs = append(errs, p.drop(&p.byRank[i]))
	}
	return errors.Join(errs...)
}
