package model

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// memory is what a session has computed: a cache with the tokens whose keys and values it holds. Other sessions may copy from it at any time, while the session is at work too:
// a pass writes behind the rows that ids tells of, and ids is shortened before rows are computed anew.
type memory struct {
	mu    sync.Mutex // held by the session to change ids, cache and its buffers, and by others who copy
	cache *cache
	ids   []int32 // one for each position

	// whole is how many of the positions from the first on were computed as a new session would compute them, in chunks of a prompt. Decoding has the same keys and values up to
	// the order of sums.
	whole int

	listed bool // others know of it
	alone  bool // what was forgotten is not to come back from others
}

// cut shortens what is held to n positions.
func (c *memory) cut(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids = c.ids[:n]
	c.whole = min(c.whole, n)
}

// add notes that the positions behind those held are there, in chunks of a prompt or not.
func (c *memory) add(ids []int32, chunk bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if chunk && c.whole == len(c.ids) {
		c.whole += len(ids)
	}
	c.ids = append(c.ids, ids...)
}

// free gives up the cache.
func (c *memory) free() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids, c.whole = nil, 0
	return c.cache.Close()
}

// common is the length of the prefix that two texts share.
func common(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// prefixes are the memories that sessions of a model may copy from: those of open sessions, and of closed ones within a limit, those closed last.
//
// Keys and values are copied, so that no two sessions share memory that one of them writes. A session takes only what it would have computed itself to the bit: rows of
// a prompt's chunks, and so many that the rest of its own prompt is cut into the same kinds of passes as without them. So a session's logits do not depend on which other
// sessions there are. Programs of fixed rows begin a prompt at position 0, and what follows on a copied prefix would be decoded one by one: their sessions take nothing.
type prefixes struct {
	limit int // bytes of kept; 0 for none, and nothing is taken from open sessions either

	mu     sync.Mutex
	open   map[*memory]bool
	kept   []*memory // the one closed last at the end
	bytes  int       // of the caches in kept
	closed bool
}

// leastShared is the fewest positions that are worth a copy: what a pass computes beside others in hardly more time.
const leastShared = 16

// list makes an open session's memory known to others.
func (p *prefixes) list(c *memory) {
	if p.limit == 0 || c.listed {
		return
	}
	c.listed = true
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[c] = true
}

// leave takes a session's memory. It is kept, if there is anything in it for others and room for it, and others go for it that were closed earlier or have no more than it.
func (p *prefixes) leave(c *memory) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	size := c.cache.bytes()
	text := c.ids[:c.whole] // nobody writes it any more
	held := func(o *memory) bool { return len(o.ids) >= len(text) && common(o.ids, text) == len(text) }
	if c.whole < leastShared || size > p.limit || p.closed || slices.ContainsFunc(p.kept, held) {
		return c.free()
	}
	c.cut(c.whole)
	var errs []error
	p.kept = slices.DeleteFunc(p.kept, func(o *memory) bool {
		less := common(o.ids, text) == len(o.ids)
		if less {
			errs = append(errs, p.evict(o))
		}
		return less
	})
	p.kept = append(p.kept, c)
	p.bytes += size
	for p.bytes > p.limit {
		errs = append(errs, p.evict(p.kept[0]))
		p.kept = slices.Delete(p.kept, 0, 1)
	}
	return errors.Join(errs...)
}

// evict frees a kept cache, after a session that copies from it. The caller takes it out of the list.
func (p *prefixes) evict(c *memory) error {
	p.bytes -= c.cache.bytes()
	return c.free()
}

// drop frees all kept caches, and reports whether there were any.
func (p *prefixes) drop() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.kept)
	for _, c := range p.kept {
		// A buffer that cannot be closed is lost whatever is done about it; whether there is memory now is for the caller to see.
		_ = p.evict(c)
	}
	p.kept = nil
	return n > 0
}

// close frees what is kept, and keeps nothing any more.
func (p *prefixes) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for _, c := range p.kept {
		errs = append(errs, p.evict(c))
	}
	p.kept = nil
	return errors.Join(errs...)
}

// longest is the memory that shares the longest prefix with a text, and its length.
func (p *prefixes) longest(ids []int32, except *memory) (best *memory, n int) {
	p.mu.Lock()
	all := slices.AppendSeq(slices.Clone(p.kept), maps.Keys(p.open))
	p.mu.Unlock()
	for _, c := range all {
		if c == except {
			continue
		}
		c.mu.Lock()
		if l := common(c.ids[:c.whole], ids); l > n {
			best, n = c, l
		}
		c.mu.Unlock()
	}
	return best, n
}

// share copies from another session what it has of ids behind what this one holds, and returns how many positions that are.
func (s *Session) share(ctx context.Context, ids []int32) (int, error) {
	p, e := s.m.prefixes, s.m.exec
	if alone := s.alone; alone || p.limit == 0 || s.m.plan.Prefill[0].Rows > 0 {
		s.alone = false
		return 0, nil
	}
	held := len(s.ids)
	fit := func(common int) int { return sharable(len(ids)-held, common-held, s.m.plan.Chunk, e.queue.few) }
	wanted := ids[:len(ids)-1] // the last one's logits are to be computed
	from, n := p.longest(wanted, s.memory)
	if fit(n) < leastShared {
		return 0, nil
	}
	if err := s.reserve(ctx, len(ids)); err != nil {
		return 0, err
	}
	from.mu.Lock()
	n = fit(common(from.ids[:from.whole], wanted)) // it may have become less
	var err error
	if n >= leastShared {
		err = s.cache.copy(from.cache, held, n)
	}
	from.mu.Unlock()
	if err != nil || n < leastShared {
		return 0, err
	}
	s.add(ids[held:held+n], true)
	return n, nil
}

// sharable is how many of the first shared of so many rows can be left out so that the others are still computed in the kinds of passes that they would be in: chunks, of
// which the last may have few rows.
func sharable(rows, shared, chunk, few int) int {
	last := func(rows int) int { return (rows-1)%chunk + 1 }
	if last(rows) <= few {
		return shared - shared%chunk
	}
	for shared > 0 && last(rows-shared) <= few {
		shared--
	}
	return shared
}
