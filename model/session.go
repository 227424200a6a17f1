package model

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/npukit/npukit/npu"
)

// Session is one conversation: it owns a KV cache and keeps what it has computed, so that a prompt that begins like the last one costs only its new
// part. A session generates one thing at a time; use one for each conversation. Close frees the cache; what is asked of the session from then on gives [ErrClosed].
type Session struct {
	m      *Model
	busy   sync.Mutex
	closed bool    // guarded by busy
	memory *memory // what it has computed

	last   *input          // of the last pass
	flying <-chan struct{} // closed when a pass that the session has left is over; nil where there is none
	logits []float32       // [picks, vocab] of the last pass

	predicted float64 // seconds by the plan's costs, of all passes of a generation
}

// NewSession starts an empty session. Close it when it is not needed any more.
func (m *Model) NewSession() *Session {
	return &Session{m: m, memory: &memory{cache: newCache(m.dev, m.plan)}}
}

// enter takes the session for one call, which gives it back with s.busy.Unlock.
func (s *Session) enter() error {
	if !s.busy.TryLock() {
		return ErrBusy
	}
	if s.closed {
		s.busy.Unlock()
		return ErrClosed
	}
	return nil
}

// Close frees the session's cache, or leaves it to the model for other sessions that begin alike: see [OpenOptions.PrefixBytes]. Closing again does nothing. A session that
// is generating is not closed: [ErrBusy]. After a call that was cancelled in a pass which goes on for other sessions, Close waits for the end of that pass; so it does where a
// device frees memory only between passes.
func (s *Session) Close() error {
	if !s.busy.TryLock() {
		return ErrBusy
	}
	defer s.busy.Unlock()
	if s.closed {
		return nil
	}
	s.away()
	if err := s.land(context.Background()); err != nil {
		return err
	}
	s.closed = true
	return s.m.prefixes.leave(s.memory)
}

// Forget drops what the session has computed and keeps its memory. What comes next is computed anew: nothing of it is taken from other sessions.
func (s *Session) Forget() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.busy.Unlock()
	s.memory.cut(0)
	s.memory.alone = true
	return nil
}

// keep shortens the cache to the common prefix with ids and returns its length. At least one id is left over to be computed, since its logits
// are wanted.
func (s *Session) keep(ids []int32) int {
	n := common(s.memory.ids, ids[:len(ids)-1])
	s.memory.cut(n)
	return n
}

// land waits for a pass that the session has left and that still uses its cache.
func (s *Session) land(ctx context.Context) error {
	if s.flying != nil {
		select {
		case <-s.flying:
			s.flying = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// away tells the scheduler not to wait for the session: see [executor.away].
func (s *Session) away() {
	if s.last != nil {
		s.m.exec.away(s.last)
	}
}

// feed runs ids through the model after what the cache holds, in as many passes as it takes. With every set emit gets the logits of all of them, otherwise those of
// the last one. The logits are valid during the call only. Behind the last pass other sessions wait for this one until it is fed again or [Session.away] is called.
func (s *Session) feed(ctx context.Context, ids []int32, every bool, emit func(pos int, logits []float32) error) error {
	if err := s.land(ctx); err != nil {
		return err
	}
	from := len(s.memory.ids) // the first position whose logits may be wanted
	last := from + len(ids) - 1
	for len(ids) > 0 {
		c := s.m.plan.choose(len(s.memory.ids), len(ids))
		if c.fresh { // what the cache holds is computed again, in one pass with the rest
			ids = slices.Concat(s.memory.ids, ids)
			s.memory.cut(0)
		}
		p := &s.m.exec.decode
		if c.prefill >= 0 {
			p = &s.m.exec.prefill[c.prefill]
		}
		n := c.rows
		if every && p.Rows == 0 {
			n = min(n, logitRows)
		}
		in := &input{ids: slices.Clone(ids[:n]), pos: len(s.memory.ids), cache: s.memory.cache}
		room := in.pos + len(ids)
		if s.memory.cache.padded {
			room = max(room, in.pos+p.Rows)
		}
		if err := s.reserve(ctx, room); err != nil {
			return err
		}
		var wanted []int // rows
		for r := range n {
			if pos := in.pos + r; pos == last || every && pos >= from {
				wanted = append(wanted, r)
			}
		}
		ids = ids[n:]
		if err := s.pass(ctx, p, in, wanted, !every && len(ids) == 0, emit); err != nil {
			return err
		}
	}
	return nil
}

// expect makes room for a prompt and some of its answer, most tokens at most if that is not 0. A cache is copied when it grows, and one of a long prompt would else be copied,
// and so be there twice, as soon as tokens come. Where there is no memory for so much the prompt may still have enough.
func (s *Session) expect(ctx context.Context, prompt, most int) error {
	answer := max(firstCapacity, prompt/4)
	if most > 0 {
		answer = min(answer, most)
	}
	if err := s.reserve(ctx, min(prompt+answer, s.memory.cache.limit)); !refused(err) {
		return err
	}
	return nil
}

// reserve makes room in the cache. What the model keeps of closed sessions makes way where a device has no room.
func (s *Session) reserve(ctx context.Context, positions int) error {
	if positions <= s.memory.cache.capacity {
		return nil
	}
	grow := func() error {
		s.memory.rows.Lock() // after those who copy from the buffers
		old, err := s.memory.cache.reserve(ctx, positions, len(s.memory.ids))
		s.memory.rows.Unlock()
		return errors.Join(err, closeAll(old))
	}
	err := grow()
	if refused(err) && s.m.prefixes.drop() {
		err = grow()
	}
	return err
}

// refused says that a device, or the machine it is made of, has not so much memory left.
func refused(err error) bool { return errors.Is(err, npu.ErrMemory) || errors.Is(err, syscall.ENOMEM) }

// pass makes one pass and gives the wanted rows' logits to emit, some at a time. Quick says that emit is short and the package's own.
func (s *Session) pass(ctx context.Context, p *boundPass, in *input, wanted []int, quick bool, emit func(pos int, logits []float32) error) error {
	vocab := s.m.plan.Model.Vocab
	for first := true; first || len(wanted) > 0; first = false {
		n := min(len(wanted), logitRows)
		in.picks, wanted = wanted[:n], wanted[n:]
		s.logits = slices.Grow(s.logits[:0], n*vocab)[:n*vocab]
		in.logits = s.logits
		before := s.last
		s.last = in
		if err := s.m.exec.pass(ctx, p, in, before, quick); err != nil {
			s.flying = in.flying
			return err
		}
		if first {
			s.memory.add(in.ids, p.Rows == 0 && len(in.ids) > s.m.exec.queue.few)
			s.m.prefixes.list(s.memory)
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
// pass. Where there is no room for it the error is a [*ContextError].
func (s *Session) Step(ctx context.Context, id int32) ([]float32, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.busy.Unlock()
	defer s.away()
	if len(s.memory.ids) >= s.m.Context() {
		return nil, &ContextError{len(s.memory.ids) + 1, s.m.Context(), fmt.Sprintf("model: there is no room for another token, the context is %d", s.m.Context())}
	}
	var logits []float32
	err := s.feed(ctx, []int32{id}, false, func(_ int, row []float32) error {
		logits = row
		return nil
	})
	return logits, err
}

// Score runs ids through the model from position 0 on and gives each position's logits, those for the token after it, to emit. It is what teacher-forced
// comparisons and the likelihood of a text are made of. The logits are valid during the call only. Emit may be nil where only the session's state is wanted, for
// [Session.Step]: then the ids are read as generation reads a prompt, in passes of many rows, and otherwise in passes of few enough that their logits fit into memory.
// More ids than [Model.Context] are a [*ContextError].
func (s *Session) Score(ctx context.Context, ids []int32, emit func(pos int, logits []float32) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.busy.Unlock()
	if len(ids) > s.m.Context() {
		return &ContextError{len(ids), s.m.Context(), fmt.Sprintf("model: %d tokens cannot be scored, the context is %d", len(ids), s.m.Context())}
	}
	s.memory.cut(0)
	if emit == nil {
		return s.feed(ctx, ids, false, func(int, []float32) error { return nil })
	}
	return s.feed(ctx, ids, true, emit)
}
