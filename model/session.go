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

	predicted float64 // seconds by the plan's costs, of all passes of a generation
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

// feed runs ids through the model after what the cache holds, in as many passes as it takes. With every set emit gets the logits of all of them, otherwise those of
// the last one. The logits are valid during the call only.
func (s *Session) feed(ctx context.Context, ids []int32, every bool, emit func(pos int, logits []float32) error) error {
	from := len(s.ids) // the first position whose logits may be wanted
	last := from + len(ids) - 1
	for len(ids) > 0 {
		c := s.m.plan.choose(len(s.ids), len(ids))
		if c.fresh { // what the cache holds is computed again, in one pass with the rest
			ids = slices.Concat(s.ids, ids)
			s.ids = s.ids[:0]
		}
		p := &s.m.exec.decode
		if c.prefill >= 0 {
			p = &s.m.exec.prefill[c.prefill]
		}
		n := c.rows
		if every && p.Rows == 0 {
			n = min(n, logitRows)
		}
		in := &input{ids: slices.Clone(ids[:n]), pos: len(s.ids), cache: s.cache}
		room := in.pos + len(ids)
		if s.cache.padded {
			room = max(room, in.pos+p.Rows)
		}
		if err := s.cache.reserve(ctx, room, in.pos); err != nil {
			return err
		}
		var wanted []int // rows
		for r := range n {
			if pos := in.pos + r; pos == last || every && pos >= from {
				wanted = append(wanted, r)
			}
		}
		s.ids = s.ids[:in.pos] // until the pass has succeeded
		if err := s.pass(ctx, p, in, wanted, emit); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

// pass makes one pass and gives the wanted rows' logits to emit, some at a time.
func (s *Session) pass(ctx context.Context, p *boundPass, in *input, wanted []int, emit func(pos int, logits []float32) error) error {
	vocab := s.m.plan.Model.Vocab
	for first := true; first || len(wanted) > 0; first = false {
		n := min(len(wanted), logitRows)
		in.picks, wanted = wanted[:n], wanted[n:]
		s.logits = slices.Grow(s.logits[:0], n*vocab)[:n*vocab]
		in.logits = s.logits
		if err := s.m.exec.pass(ctx, p, []*input{in}); err != nil {
			return err
		}
		if first {
			s.ids = append(s.ids, in.ids...)
			s.predicted += p.Cost
		}
		for i, row := range in.picks {
			if err := emit(in.pos+row, s.logits[i*vocab:][:vocab]); err != nil {
				return err
			}
		}
	}
	return nil
}

// logitRows bounds how many rows of logits are in memory at once: 64 rows of a vocabulary of 152,000 are 39 MB.
const logitRows = 64

// Step appends one id to what the session holds and returns the logits [vocab] after it, by the way that generation takes. They are valid until the session's next
// pass.
func (s *Session) Step(ctx context.Context, id int32) ([]float32, error) {
	if !s.busy.TryLock() {
		return nil, ErrBusy
	}
	defer s.busy.Unlock()
	if len(s.ids) >= s.m.Context() {
		return nil, fmt.Errorf("model: there is no room for another token, the context is %d", s.m.Context())
	}
	var logits []float32
	err := s.feed(ctx, []int32{id}, false, func(_ int, row []float32) error {
		logits = row
		return nil
	})
	return logits, err
}

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
