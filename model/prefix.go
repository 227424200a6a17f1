package model

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
)

// sequence is the tokens that a session has computed, with the cache of their keys and values. Other
// sessions may copy from it at any time, also while the session computes: a pass writes after the
// rows that ids covers, and ids is shortened before rows are computed anew.
type sequence struct {
	// rows guards the rows of the cache. The session locks it to replace buffers or to give up rows,
	// others lock it for reading while they copy. It is locked before mu, and never while waiting for
	// a pass or for rows of another sequence.
	rows  sync.RWMutex
	cache *cache

	mu     sync.Mutex // guards ids and origin; only the session changes them
	ids    []int32    // one for each position
	origin origin
	prompt int // positions from the first on that are of prompts, not generated; the session's own

	listed bool // in prefixes.open
	alone  bool // the next prompt takes nothing from other sessions
}

// exact returns how many positions of a prompt others may copy: see [executor.exact].
func (s *sequence) exact(e *executor, ids []int32, want origin) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return e.exact(s.origin, want, common(s.ids, ids))
}

// cut shortens the sequence to n positions, after those who copy the others have finished.
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

// add appends ids whose positions have been computed as next says.
func (s *sequence) add(ids []int32, next origin, prompt bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if prompt && s.prompt == len(s.ids) {
		s.prompt += len(ids)
	}
	s.origin = next
	s.ids = append(s.ids, ids...)
}

// free closes the buffers of the cache. It does so without a lock held, because a device may delay
// it by whole passes.
func (s *sequence) free() error {
	s.cut(0)
	s.rows.Lock()
	old := s.cache.take()
	s.rows.Unlock()
	return closeAll(old)
}

// common is the length of the prefix that two sequences of ids share.
func common(a, b []int32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// prefixes are the sequences that sessions of a model may copy from: those of open sessions, and of
// closed ones up to a limit in bytes, the least recently closed evicted first.
//
// Keys and values are copied, so that no two sessions share memory that one of them writes. A
// session takes only what it would itself compute to the bit, so that its logits do not depend on
// which other sessions there are. With programs of fixed rows a prompt starts at position 0, and
// sessions take nothing.
type prefixes struct {
	limit int // bytes of kept; 0 keeps nothing and takes nothing from open sessions either

	mu     sync.Mutex // held to change the lists, never while a buffer is closed or rows are copied
	open   map[*sequence]bool
	kept   []*sequence // the last one closed at the end
	bytes  int         // of the caches in kept
	closed bool
}

// leastShared is the fewest positions worth a copy: a pass computes so many beside others in hardly
// more time.
const leastShared = 16

// list makes an open session's sequence known to others.
func (p *prefixes) list(s *sequence) {
	if p.limit == 0 || s.listed {
		return
	}
	s.listed = true
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[s] = true
}

// release takes over a closed session's sequence. It keeps what others can use if that is long
// enough and fits the limit, evicting sequences that it contains, then the oldest.
func (p *prefixes) release(s *sequence) error {
	s.cut(s.origin.many)
	return freeAll(p.keep(s))
}

// keep adds a sequence to the kept ones, and returns those that are to be freed.
func (p *prefixes) keep(s *sequence) (evicted []*sequence) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, s)
	size := s.cache.bytes()
	contains := func(o *sequence) bool { return len(o.ids) >= len(s.ids) && common(o.ids, s.ids) == len(s.ids) }
	if len(s.ids) < leastShared || size > p.limit || p.closed || slices.ContainsFunc(p.kept, contains) {
		return []*sequence{s}
	}
	evict := func(o *sequence) {
		p.bytes -= o.cache.bytes()
		evicted = append(evicted, o)
	}
	p.kept = slices.DeleteFunc(p.kept, func(o *sequence) bool {
		contained := common(o.ids, s.ids) == len(o.ids)
		if contained {
			evict(o)
		}
		return contained
	})
	p.kept = append(p.kept, s)
	p.bytes += size
	for p.bytes > p.limit {
		evict(p.kept[0])
		p.kept = slices.Delete(p.kept, 0, 1)
	}
	return evicted
}

// evict frees all kept caches, and reports whether there were any.
func (p *prefixes) evict() bool {
	all := p.empty(false)
	_ = freeAll(all) // a buffer that cannot be closed is lost; the caller finds out if there is memory
	return len(all) > 0
}

// close frees all kept caches. Nothing is kept afterwards.
func (p *prefixes) close() error { return freeAll(p.empty(true)) }

// empty removes all kept caches from the list.
func (p *prefixes) empty(closed bool) []*sequence {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.kept
	p.kept, p.bytes, p.closed = nil, 0, p.closed || closed
	return all
}

// freeAll frees sequences that are in no list any more, each after the sessions that copy from it.
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
	all := slices.AppendSeq(slices.Clone(p.kept), maps.Keys(p.open))
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

// reuse is what a session need not compute of a prompt.
type reuse struct {
	cached int // positions that its own cache held
	shared int // positions after these, copied from another session
	many   int // the rest is to be computed in passes of many rows up to here: see [origin]
}

// startPrompt makes the cache hold what can be reused of a prompt, as [Session] promises, and makes
// room for the prompt and some of its answer, of most tokens if that is not 0.
func (s *Session) startPrompt(ctx context.Context, ids []int32, exact bool, most int) (r reuse, err error) {
	if err := s.waitLeft(ctx); err != nil {
		return r, err
	}
	e, prefix := s.m.exec, ids[:len(ids)-1] // the logits of the last id are to be computed
	held := common(s.seq.ids, prefix)
	want := e.newOrigin(len(ids))
	keep := e.exact(s.seq.origin, want, held)
	if !exact && keep < held && (e.fixed() || held > s.seq.prompt) {
		if keep = held; e.choose(held, len(ids)-held, 0).fresh {
			keep = 0
		}
	} else {
		exact = true
		r.many = want.many
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

// share copies positions of a prompt from another session, after those that the session holds. It
// returns how many.
func (s *Session) share(ctx context.Context, prefix []int32, want origin) (int, error) {
	p, e := s.m.prefixes, s.m.exec
	if alone := s.seq.alone; alone || p.limit == 0 {
		s.seq.alone = false
		return 0, nil
	}
	held := len(s.seq.ids)
	from, n := p.longest(func(o *sequence) int { return o.exact(e, prefix, want) }, s.seq)
	if n-held < leastShared {
		return 0, nil
	}
	if err := s.reserve(ctx, len(prefix)+1); err != nil {
		return 0, err
	}
	from.rows.RLock()
	defer from.rows.RUnlock()
	n = from.exact(e, prefix, want) // it may have been shortened
	if n-held < leastShared {
		return 0, nil
	}
	if err := s.seq.cache.copy(ctx, from.cache, held, n-held); err != nil {
		return 0, err
	}
	s.seq.add(prefix[held:n], origin{many: n}, true)
	return n - held, nil
}
