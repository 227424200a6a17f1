package model

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Session is one conversation: it owns a KV cache and keeps what it has computed, so that a prompt that begins like the last one costs only its new
// part. A session generates one thing at a time; use one for each conversation. Close frees the cache.
type Session struct {
	m     *Model
	busy  sync.Mutex
	cache *cache
	ids   []int32 // tokens whose keys and values are in the cache, one for each position

	logits []float32 // [picks, vocab] of the last pass
}

// NewSession starts an empty session.
func (m *Model) NewSession() *Session {
	return &Session{m: m, cache: newCache(m.dev, m.plan)}
}

// Close frees the session's cache. Closing again does nothing. A session that is generating is not closed: [ErrBusy].
func (s *Session) Close() error {
	if !s.busy.TryLock() {
		return ErrBusy
	}
	defer s.busy.Unlock()
	s.ids = nil
	return s.cache.Close()
}

// Forget drops what the session has computed and keeps its memory.
func (s *Session) Forget() error {
	if !s.busy.TryLock() {
		return ErrBusy
	}
	defer s.busy.Unlock()
	s.ids = s.ids[:0]
	return nil
}

// keep shortens the cache to the common prefix with ids and returns its length. At least one id is left over to be computed, since its logits
// are wanted.
func (s *Session) keep(ids []int32) int {
	n := 0
	for n < len(s.ids) && n < len(ids)-1 && s.ids[n] == ids[n] {
		n++
	}
	s.ids = s.ids[:n]
	return n
}

// feed runs ids through the model, in chunks, after what the cache holds. With every set emit gets the logits of all of them, otherwise those of the
// last one. The logits are valid during the call only.
func (s *Session) feed(ctx context.Context, ids []int32, every bool, emit func(pos int, logits []float32) error) error {
	ph := prefill
	if len(ids) == 1 {
		ph = decode
	}
	if err := s.cache.reserve(ctx, len(s.ids)+len(ids), len(s.ids)); err != nil {
		return err
	}
	for len(ids) > 0 {
		n := min(len(ids), s.m.plan.Chunk)
		if every {
			n = min(n, logitRows)
		}
		in := input{ids: ids[:n], pos: len(s.ids), cache: s.cache}
		switch {
		case every:
			for r := range n {
				in.picks = append(in.picks, r)
			}
		case n == len(ids):
			in.picks = []int{n - 1}
		}
		vocab := s.m.plan.Model.Vocab
		s.logits = slices.Grow(s.logits[:0], len(in.picks)*vocab)[:len(in.picks)*vocab]
		in.logits = s.logits
		if err := s.m.exec.pass(ctx, ph, []input{in}); err != nil {
			return err
		}
		s.ids = append(s.ids, ids[:n]...)
		for i, row := range in.picks {
			if err := emit(in.pos+row, s.logits[i*vocab:][:vocab]); err != nil {
				return err
			}
		}
		ids = ids[n:]
	}
	return nil
}

// logitRows bounds how many rows of logits are in memory at once: 64 rows of a vocabulary of 152,000 are 39 MB.
const logitRows = 64

// Score runs ids through the model from position 0 on and gives each position's logits, those for the token after it, to emit. It is what teacher-forced
// comparisons and the likelihood of a text are made of. The logits are valid during the call only.
func (s *Session) Score(ctx context.Context, ids []int32, emit func(pos int, logits []float32) error) error {
	if !s.busy.TryLock() {
		return ErrBusy
	}
	defer s.busy.Unlock()
	if len(ids) > s.m.Context() {
		return fmt.Errorf("model: %d tokens cannot be scored, the context is %d", len(ids), s.m.Context())
	}
	s.ids = s.ids[:0]
	return s.feed(ctx, ids, true, emit)
}
