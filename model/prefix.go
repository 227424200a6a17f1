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
	rows  sync.RWMutex // of the cache: held by the session to change its buffers or to give up rows, and for reading by others who copy; taken before mu, and never while a pass is waited for
	cache *cache

	mu  sync.Mutex // held by the session to change ids and whole, by others to read them, and for no longer than that
	ids []int32    // one for each position

	// whole is how many of the positions from the first on were computed as a new session would compute them, in chunks of a prompt. Decoding has the same keys and values up to
	// the order of sums.
	whole int

	listed bool // others know of it
	alone  bool // what was forgotten is not to come back from others
}

// has is how many of ids from the first on others may copy.
func (c *memory) has(ids []int32) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return common(c.ids[:c.whole], ids)
}

// cut shortens what is held to n positions, after those who copy the others.
func (c *memory) cut(n int) {
	if n == len(c.ids) {
		return
	}
	c.rows.Lock()
	defer c.rows.Unlock()
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

// free gives up the cache. Its buffers are closed when nobody is kept from looking at the memory: a device may let that wait for whole passes.
func (c *memory) free() error {
	c.cut(0)
	c.rows.Lock()
	old := c.cache.take()
	c.rows.Unlock()
	return closeAll(old)
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

	mu     sync.Mutex // held to change what is listed here, and never while a buffer is closed or rows are copied
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
	c.cut(c.whole)
	return freeAll(p.take(c))
}

// take is leave's choice: it lists the memory among those kept, and returns what is to be freed.
func (p *prefixes) take(c *memory) (out []*memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
	size := c.cache.bytes()
	held := func(o *memory) bool { return len(o.ids) >= len(c.ids) && common(o.ids, c.ids) == len(c.ids) }
	if len(c.ids) < leastShared || size > p.limit || p.closed || slices.ContainsFunc(p.kept, held) {
		return []*memory{c}
	}
	evict := func(o *memory) {
		p.bytes -= o.cache.bytes()
		out = append(out, o)
	}
	p.kept = slices.DeleteFunc(p.kept, func(o *memory) bool {
		less := common(o.ids, c.ids) == len(o.ids)
		if less {
			evict(o)
		}
		return less
	})
	p.kept = append(p.kept, c)
	p.bytes += size
	for p.bytes > p.limit {
		evict(p.kept[0])
		p.kept = slices.Delete(p.kept, 0, 1)
	}
	return out
}

// drop frees all kept caches, and reports whether there were any.
func (p *prefixes) drop() bool {
	all := p.empty(false)
	// A buffer that cannot be closed is lost whatever is done about it; whether there is memory now is for the caller to see.
	_ = freeAll(all)
	return len(all) > 0
}

// close frees what is kept, and keeps nothing any more.
func (p *prefixes) close() error { return freeAll(p.empty(true)) }

// empty takes all kept caches out of the list, the last time or not.
func (p *prefixes) empty(closed bool) []*memory {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.kept
	p.kept, p.bytes, p.closed = nil, 0, p.closed || closed
	return all
}

// freeAll frees caches that are in no list any more, each after the sessions that copy from it.
func freeAll(all []*memory) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.free())
	}
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
		if l := c.has(ids); l > n {
			best, n = c, l
		}
	}
	return best, n
}

// share copies from another session what it has of ids behind what this one holds, and returns how many positions that are.
func (s *Session) share(ctx context.Context, ids []int32) (int, error) {
	p, e := s.m.prefixes, s.m.exec
	if alone := s.memory.alone; alone || p.limit == 0 {
		s.memory.alone = false
		return 0, nil
	}
	held := len(s.memory.ids)
	if s.memory.whole < held { // what others have behind it was computed on a prompt's rows, and these were decoded: in other bits
		return 0, nil
	}
	fit := func(common int) int { return sharable(len(ids)-held, common-held, s.m.plan.Chunk, e.queue.few) }
	wanted := ids[:len(ids)-1] // the last one's logits are to be computed
	from, n := p.longest(wanted, s.memory)
	if fit(n) < leastShared {
		return 0, nil
	}
	if err := s.reserve(ctx, len(ids)); err != nil {
		return 0, err
	}
	from.rows.RLock()
	defer from.rows.RUnlock()
	if n = fit(from.has(wanted)); n < leastShared { // it has become less
		return 0, nil
	}
	if err := s.memory.cache.copy(ctx, from.cache, held, n); err != nil {
		return 0, err
	}
	s.memory.add(ids[held:held+n], true)
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
