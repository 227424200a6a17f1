package model

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// sequence is the ids that a session has computed, with the cache of their keys and values. Other
// sessions may copy from it at any time, even while the session computes: a pass writes after the
// rows of ids, and ids is shortened before rows are computed again.
type sequence struct {
	// rows guards the rows of the cache. The session locks it to replace buffers or to drop rows;
	// others lock it for reading while they copy. It is locked before mu, and never while waiting
	// for a pass or for the rows of another sequence.
	rows  sync.RWMutex
	cache *cache

	mu     sync.Mutex // guards ids and origin; only the session changes them
	ids    []int32    // one per position
	origin origin
	prompt int // leading positions that are of prompts, not generated; only the session uses it

	listed bool // in prefixes.open
	alone  bool // the next prompt copies nothing from other sessions
}

// exact returns the number of positions of a prompt that others may copy: see [chooser.exact].
func (s *sequence) exact(e *executor, ids []int32, want origin) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.exact(s.origin, want, common(s.ids, ids))
}

// cut shortens the sequence to n positions, after other sessions have finished copying the rest.
func (s *sequence) cut(n int) {
	if n == len(s.ids) {
		return
	}
	s.rows.Lock()
	defer s.rows.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = s.ids[:n]
	s.origin.cut(n)
	s.prompt = min(s.prompt, n)
}

// add appends ids. next is the new origin.
func (s *sequence) add(ids []int32, next origin, prompt bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if prompt && s.prompt == len(s.ids) {
		s.prompt += len(ids)
	}
	s.origin = next
	s.ids = append(s.ids, ids...)
}

// free closes the buffers of the cache. It holds no lock meanwhile, because a device may delay it
// by whole passes.
func (s *sequence) free() error {
	s.cut(0)
	s.rows.Lock()
	old := s.cache.take()
	s.rows.Unlock()
	return closeAll(old)
}

// common returns the length of the common prefix of a and b.
func common(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// prefixes has the sequences that sessions of a model may copy from: those of open sessions, and
// the prefix cache, which has those of closed sessions up to a limit in bytes. The least recently
// closed is evicted first.
//
// Keys and values are copied, so no two sessions share memory that one of them writes. A session
// copies only positions that are bit-identical to its own results, so its logits do not depend on
// other sessions. With programs of fixed rows a prompt starts at position 0, and nothing is copied.
type prefixes struct {
	limit int // bytes of cached; if 0, nothing is copied from open sessions either

	mu     sync.Mutex // held to change the lists, never while a buffer is closed or rows are copied
	open   map[*sequence]bool
	cached []*sequence // in order of closing
	bytes  int         // of the caches in cached
	closed bool
}

// minShared is the smallest number of positions worth a copy. Fewer hardly make a pass longer.
const minShared = 16

// register makes an open session's sequence available to others.
func (p *prefixes) register(s *sequence) {
	if p.limit == 0 || s.listed {
		return
	}
	s.listed = true
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[s] = true
}

// release takes over a closed session's sequence. It caches the part that others can copy if that
// is long enough and fits the limit, and evicts sequences that it contains, then the oldest.
func (p *prefixes) release(s *sequence) error {
	s.cut(s.origin.large)
	return freeAll(p.insert(s))
}

// insert adds a sequence to the cache, and returns the sequences to free.
func (p *prefixes) insert(s *sequence) (evicted []*sequence) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, s)
	size := s.cache.bytes()
	contains := func(o *sequence) bool {
		return len(o.ids) >= len(s.ids) && common(o.ids, s.ids) == len(s.ids)
	}
	if len(s.ids) < minShared || size > p.limit || p.closed || slices.ContainsFunc(p.cached, contains) {
		return []*sequence{s}
	}
	evict := func(o *sequence) {
		p.bytes -= o.cache.bytes()
		evicted = append(evicted, o)
	}
	p.cached = slices.DeleteFunc(p.cached, func(o *sequence) bool {
		contained := common(o.ids, s.ids) == len(o.ids)
		if contained {
			evict(o)
		}
		return contained
	})
	p.cached = append(p.cached, s)
	p.bytes += size
	for p.bytes > p.limit {
		evict(p.cached[0])
		p.cached = slices.Delete(p.cached, 0, 1)
	}
	return evicted
}

// evict frees all cached sequences, and reports whether there were any.
func (p *prefixes) evict() bool {
	all := p.empty(false)
	_ = freeAll(all) // if a buffer cannot be closed, the caller's allocation tells whether there is memory
	return len(all) > 0
}

// close frees all cached sequences. From then on none is cached.
func (p *prefixes) close() error { return freeAll(p.empty(true)) }

// empty removes all sequences from the cache.
func (p *prefixes) empty(closed bool) []*sequence {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.cached
	p.cached, p.bytes, p.closed = nil, 0, p.closed || closed
	return all
}

// freeAll frees sequences that are in no list, each after sessions have finished copying from it.
func freeAll(all []*sequence) error {
	var errs []error
	for _, s := range all {
		errs = append(errs, s.free())
	}
	return errors.Join(errs...)
}

// longest returns the sequence, other than except, for which length is greatest, and that length.
func (p *prefixes) longest(length func(*sequence) int, except *sequence) (best *sequence, n int) {
	p.mu.Lock()
	all := slices.AppendSeq(slices.Clone(p.cached), maps.Keys(p.open))
	p.mu.Unlock()
	for _, s := range all {
		if s == except {
			continue
		}
		if l := length(s); l > n {
			best, n = s, l
		}
	}
	return best, n
}

// reuse is the part of a prompt that need not be computed.
type reuse struct {
	cached int // positions in the session's own cache
	shared int // positions after these, copied from another session
	large  int // up to this position the rest must be computed in large passes: see [origin]
}

// startPrompt fills the cache with the reusable part of a prompt, as described at [Session], and
// makes room for the prompt and part of its answer, of at most most tokens if that is not 0.
func (s *Session) startPrompt(ctx context.Context, ids []int32, exact bool, most int) (r reuse, err error) {
	if err := s.waitAbandoned(ctx); err != nil {
		return r, err
	}
	e, prefix := s.m.exec, ids[:len(ids)-1] // the last id is computed for its logits
	held := common(s.seq.ids, prefix)
	want := e.newOrigin(len(ids))
	keep := e.exact(s.seq.origin, want, held)
	if !exact && keep < held && (e.fixed() || held > s.seq.prompt) {
		if keep = held; e.choose(held, len(ids)-held, 0).restart {
			keep = 0
		}
	} else {
		exact = true
		r.large = want.large
	}
	s.seq.cut(keep)
	r.cached = keep
	if err := s.reservePrompt(ctx, len(ids), most); err != nil {
		return r, err
	}
	if exact {
		r.shared, err = s.share(ctx, prefix, want)
	}
	return r, err
}

// share copies positions of a prompt from another session, after the cached ones. It returns their
// number.
func (s *Session) share(ctx context.Context, prefix []int32, want origin) (int, error) {
	p, e := s.m.prefixes, s.m.exec
	if alone := s.seq.alone; alone || p.limit == 0 {
		s.seq.alone = false
		return 0, nil
	}
	held := len(s.seq.ids)
	from, n := p.longest(func(o *sequence) int { return o.exact(e, prefix, want) }, s.seq)
	if n-held < minShared {
		return 0, nil
	}
	if err := s.reserve(ctx, len(prefix)+1); err != nil {
		return 0, err
	}
	from.rows.RLock()
	defer from.rows.RUnlock()
	n = from.exact(e, prefix, want) // the session may have shortened it
	if n-held < minShared {
		return 0, nil
	}
	if err := s.seq.cache.copy(ctx, from.cache, held, n-held); err != nil {
		return 0, err
	}
	s.seq.add(prefix[held:n], origin{large: n}, true)
	return n - held, nil
}
