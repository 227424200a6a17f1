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

// Session is one conversation. It owns a KV cache, so a prompt that starts like the last one costs
// only its new part. Close frees the cache.
//
// # Concurrency
//
// A session does one thing at a time: if a method is called while another one runs, or while the
// loop over Generate or Chat has not ended, it returns [ErrBusy]. After Close, calls return
// [ErrClosed]. Different sessions of a model run concurrently, each in its own goroutine, and share
// passes of the device. None of them waits for code of another session's caller: loops over tokens
// and callbacks of Score may take any time, and may use other sessions.
//
// A method whose context is cancelled returns within 100 ms. If the pass also has rows of other
// sessions, it goes on; the session's next call, and Close, wait for its end. The session then
// holds exactly the positions of the passes that ended before.
//
// # Prefix reuse
//
// A prompt reuses the keys and values of its longest prefix in the session's cache. If the whole
// prompt is cached, the last id is computed again for its logits. A session also copies keys and
// values from other sessions of the model: see [OpenOptions.PrefixBytes]. [Stats] counts both.
//
// On a device that takes any number of rows, reuse is exact by default if the reused positions were
// computed as parts of prompts: the logits are bit-identical to those of a new session. This covers
// the same prompt again, a prompt that differs from some position on, and one that starts like
// another session's. To be exact, the session computes some positions again, at most about twice
// [npu.Info.FewRows], because small and large passes may sum in another order.
//
// The exception is ids that the session generated, or that Step appended. Their positions were
// computed one by one, in small passes. A prompt that continues them, such as the next message of a
// conversation, reuses them nevertheless, because computing the answer again would delay the next
// one (see docs/speed.md). The logits can differ from a new session's in the last bits, and greedy
// text can differ where two tokens are almost equally likely. They still do not depend on other
// sessions.
//
// With [GenerateOptions.ExactReuse] a session reuses only positions that are bit-identical to a new
// session's, and computes the others again. Then every prompt is exact, on every device.
//
// With programs of fixed rows, as on an NPU, a session without ExactReuse takes the passes with the
// least predicted cost, and reuse need not be exact.
type Session struct {
	m      *Model
	busy   sync.Mutex
	closed bool      // guarded by busy
	seq    *sequence // computed positions
	client client
	logits []float32 // [picks, vocab] of the last pass

	predicted float64 // seconds of all passes of a generation, by the plan's costs
}

// NewSession returns an empty session, which the caller must close. It is safe for concurrent use.
func (m *Model) NewSession() *Session {
	return &Session{m: m, seq: &sequence{cache: newCache(m.dev, m.plan)}}
}

// acquire starts a call of an exported method. If it returns nil, the call must end with release.
func (s *Session) acquire() error {
	if !s.busy.TryLock() {
		return ErrBusy
	}
	if s.closed {
		s.busy.Unlock()
		return ErrClosed
	}
	return nil
}

// release ends a call.
func (s *Session) release() {
	s.releaseHold()
	s.busy.Unlock()
}

// releaseHold lets passes of other sessions start. It must be called before a caller's code runs.
func (s *Session) releaseHold() {
	s.m.exec.queue.release(&s.client)
	if testHookReleased != nil {
		testHookReleased(s)
	}
}

// testHookReleased, if not nil, is called whenever a session returns control to its caller.
var testHookReleased func(*Session)

// Close frees the session's cache, or adds it to the model's prefix cache: see
// [OpenOptions.PrefixBytes]. It returns [ErrBusy] if another method is in progress. Closing again
// does nothing. Close waits for the end of a pass that a cancelled call has abandoned, and for any
// running pass if the device frees memory only between passes.
func (s *Session) Close() error {
	if err := s.acquire(); err != nil {
		if errors.Is(err, ErrClosed) {
			return nil
		}
		return err
	}
	defer s.release()
	if err := s.waitAbandoned(context.Background()); err != nil {
		return err
	}
	s.closed = true
	return s.m.prefixes.release(s.seq)
}

// Forget drops the cached positions, but not the memory of the cache. The next prompt is computed
// from its first position, without copying from other sessions either. Forget returns [ErrBusy] if
// another method is in progress.
func (s *Session) Forget() error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	s.seq.cut(0)
	s.seq.alone = true
	return nil
}

// waitAbandoned waits for the end of a pass that a cancelled call has abandoned, because the pass
// uses the cache.
func (s *Session) waitAbandoned(ctx context.Context) error {
	if s.client.abandoned == nil {
		return nil
	}
	select {
	case <-s.client.abandoned:
		s.client.abandoned = nil
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// request is the work for [Session.compute].
type request struct {
	ids     []int32
	decoded bool // the ids are not part of a prompt
	large   int  // positions below this one are computed in large passes: see [origin]
	hold    bool // hold the queue afterwards, until releaseHold: see [scheduler]

	every bool // pass the logits of all ids to emit, not only those of the last
	emit  func(pos int, logits []float32) error
}

// compute runs ids through the model, after those in the cache, in one or more passes. The logits
// are valid only during the call of emit.
func (s *Session) compute(ctx context.Context, r request) error {
	if err := s.waitAbandoned(ctx); err != nil {
		return err
	}
	ids := r.ids
	from := len(s.seq.ids) // the first position with wanted logits, if all are
	last := from + len(ids) - 1
	for len(ids) > 0 {
		c := s.m.exec.choose(len(s.seq.ids), len(ids), r.large)
		if c.restart { // compute the cached positions again, in one pass with the rest
			ids = slices.Concat(s.seq.ids, ids)
			s.seq.cut(0)
		}
		p := &s.m.exec.decode
		if c.prefill >= 0 {
			p = &s.m.exec.prefill[c.prefill]
		}
		n := c.rows
		if r.every && p.Rows == 0 {
			n = min(n, logitRows)
		}
		in := &input{ids: slices.Clone(ids[:n]), pos: len(s.seq.ids), cache: s.seq.cache}
		room := in.pos + len(ids)
		if s.seq.cache.padded {
			room = max(room, in.pos+p.Rows)
		}
		if err := s.reserve(ctx, room); err != nil {
			return err
		}
		var wanted []int // row numbers
		for row := range n {
			if pos := in.pos + row; pos == last || r.every && pos >= from {
				wanted = append(wanted, row)
			}
		}
		ids = ids[n:]
		computed := func() {
			s.seq.add(in.ids, s.m.exec.after(s.seq.origin, in.pos, n, c.prefill), !r.decoded)
			s.m.prefixes.register(s.seq)
			s.predicted += p.Cost
		}
		job := job{ctx: ctx, client: &s.client, pass: p, in: in, hold: r.hold && len(ids) == 0}
		if err := s.run(job, wanted, computed, r.emit); err != nil {
			return err
		}
	}
	return nil
}

// run runs a job, calls computed, and passes the logits of the wanted rows to emit. If there are
// many, it submits more jobs for the head alone.
func (s *Session) run(j job, wanted []int, computed func(), emit func(pos int, logits []float32) error,
) error {
	vocab := s.m.plan.Model.Vocab
	in := j.in
	for first := true; first || len(wanted) > 0; first = false {
		n := min(len(wanted), logitRows)
		in.picks, wanted = wanted[:n], wanted[n:]
		s.logits = slices.Grow(s.logits[:0], n*vocab)[:n*vocab]
		in.logits = s.logits
		next := j
		if err := s.m.exec.execute(&next); err != nil {
			return err
		}
		if first {
			computed()
		}
		for i, row := range in.picks {
			if err := emit(in.pos+row, s.logits[i*vocab:][:vocab]); err != nil {
				return err
			}
		}
	}
	return nil
}

// logitRows bounds the rows of logits in memory at once. 64 rows of a vocabulary of 152,000 take 39
// MB.
const logitRows = 64

// reservePrompt makes room for a prompt and part of its answer, of at most most tokens if that is
// not 0. Otherwise the first tokens of the answer would grow, and so copy, the cache of a long
// prompt. It returns nil if the device is out of memory, because the prompt may still fit.
func (s *Session) reservePrompt(ctx context.Context, prompt, most int) error {
	answer := max(firstCapacity, prompt/4)
	if most > 0 {
		answer = min(answer, most)
	}
	if err := s.reserve(ctx, min(prompt+answer, s.seq.cache.limit)); !outOfMemory(err) {
		return err
	}
	return nil
}

// reserve makes room in the cache. If the device is out of memory, it evicts the model's prefix
// cache and tries again.
func (s *Session) reserve(ctx context.Context, positions int) error {
	if positions <= s.seq.cache.capacity {
		return nil
	}
	grow := func() error {
		s.seq.rows.Lock() // waits for sessions that copy from the buffers
		old, err := s.seq.cache.reserve(ctx, positions, len(s.seq.ids))
		s.seq.rows.Unlock()
		return errors.Join(err, closeAll(old))
	}
	err := grow()
	if outOfMemory(err) && s.m.prefixes.evict() {
		err = grow()
	}
	return err
}

// outOfMemory reports whether the device or its host is out of memory.
func outOfMemory(err error) bool {
	return errors.Is(err, npu.ErrMemory) || errors.Is(err, syscall.ENOMEM)
}

// Step appends an id and returns the logits [vocab] after it, computed as in generation. They are
// valid until the session's next call. If the context is full, Step returns a [*ContextError]. If
// another method is in progress, it returns [ErrBusy].
func (s *Session) Step(ctx context.Context, id int32) ([]float32, error) {
	if err := s.acquire(); err != nil {
		return nil, err
	}
	defer s.release()
	if !s.m.hasID(id) {
		return nil, s.m.badID("id", id)
	}
	if len(s.seq.ids) >= s.m.Context() {
		return nil, &ContextError{len(s.seq.ids) + 1, s.m.Context(),
			fmt.Sprintf("model: there is no room for another token, the context is %d", s.m.Context())}
	}
	var logits []float32
	err := s.compute(ctx, request{ids: []int32{id}, decoded: true, hold: true,
		emit: func(_ int, row []float32) error {
			logits = row
			return nil
		}})
	return logits, err
}

// checkIDs returns an OptionError if an id is outside the vocabulary. Name is that of ids.
func (m *Model) checkIDs(name string, ids []int32) error {
	for i, id := range ids {
		if !m.hasID(id) {
			return m.badID(fmt.Sprintf("%s[%d]", name, i), id)
		}
	}
	return nil
}

func (m *Model) hasID(id int32) bool { return id >= 0 && int(id) < m.ck.Config().Vocab }

func (m *Model) badID(field string, id int32) error {
	return badOption(field, id, fmt.Sprintf("an id from 0 to %d", m.ck.Config().Vocab-1))
}

// Score computes ids from position 0 and calls emit with the logits at each position, which are
// those of the token after it: for teacher-forced comparisons and the likelihood of a text. The
// logits are valid only during the call. If emit returns an error, Score stops and returns it.
//
// If emit is nil, Score only fills the session, for [Session.Step]. The ids are then computed like
// a prompt of Generate. Otherwise passes have at most 64 rows, so that their logits fit into
// memory. If there are more ids than [Model.Context], Score returns a [*ContextError]. If another
// method is in progress, it returns [ErrBusy].
func (s *Session) Score(ctx context.Context, ids []int32, emit func(pos int, logits []float32) error) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	if err := s.m.checkIDs("ids", ids); err != nil {
		return err
	}
	if len(ids) > s.m.Context() {
		return &ContextError{len(ids), s.m.Context(),
			fmt.Sprintf("model: %d tokens cannot be scored, the context is %d", len(ids), s.m.Context())}
	}
	if err := s.waitAbandoned(ctx); err != nil {
		return err
	}
	s.seq.cut(0)
	r := request{ids: ids, every: emit != nil, emit: emit}
	if emit == nil {
		r.emit = func(int, []float32) error { return nil }
	}
	return s.compute(ctx, r)
}
