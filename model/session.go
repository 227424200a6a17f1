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

// Session is one conversation. It owns a KV cache and keeps what it has computed, so that a prompt
// that begins like the last one costs only its new part. Close frees the cache.
//
// # Concurrency
//
// A session does one thing at a time: a call of any of its methods while another is in progress, or
// while the loop over Generate or Chat has not ended, returns [ErrBusy]. After Close, calls return
// [ErrClosed]. Different sessions of a model work at the same time, each in a goroutine of its own,
// and share passes of the device. None of them waits for code of another's caller: loops over
// tokens and callbacks of Score may take any time, and may use other sessions.
//
// A method whose context is cancelled returns within 100 ms. If other sessions have rows in the same
// pass, that pass goes on; the session's next call, and Close, wait for its end. The session then
// holds exactly the positions whose passes ended before.
//
// # Reuse
//
// A prompt reuses the keys and values of its longest prefix that the session holds; if all of it is
// held, the last id is computed again for its logits. A session also copies keys and values that
// other sessions of the model hold: see [OpenOptions.PrefixBytes]. [Stats] counts both.
//
// On a device that takes any number of rows, reuse is exact by default if the reused positions were
// computed as parts of prompts: logits are bit for bit those of a new session. This covers the same
// prompt again, one that turns off in the middle, and one that starts like another session's. For
// this the session computes some positions again, at most about twice [npu.Info.FewRows], so that
// no pass is of another kind than a new session's.
//
// The exception is ids that the session generated itself or that Step appended. Their positions were
// computed one by one, by kernels that can sum in another order than those that read prompts. A
// prompt that continues them, such as the next turn of a conversation, reuses them all the same,
// because computing an answer again delays the first token of the next turn by 27 to 537 % (see
// docs/speed.md). Its logits can differ from a new session's in the last bits, and so can a greedy
// text where two tokens are almost equally likely. They still do not depend on what other sessions
// do.
//
// [GenerateOptions.ExactReuse] reuses only what a new session would compute to the bit, and computes
// the rest again. With it every prompt is exact, on every device.
//
// With programs of fixed rows, as on an NPU, a session without ExactReuse takes the passes of the
// least predicted cost, and no reuse is promised to be exact.
type Session struct {
	m      *Model
	busy   sync.Mutex
	closed bool      // guarded by busy
	seq    *sequence // what it has computed
	client client
	logits []float32 // [picks, vocab] of the last pass

	predicted float64 // seconds by the plan's costs, of all passes of a generation
}

// NewSession returns an empty session, which the caller must close. It is safe for concurrent use.
func (m *Model) NewSession() *Session {
	return &Session{m: m, seq: &sequence{cache: newCache(m.dev, m.plan)}}
}

// acquire starts a call of an exported method. If it succeeds, release must end the call.
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

// releaseHold lets other sessions run while this one does not come back at once. It must be called
// before a caller's code runs.
func (s *Session) releaseHold() {
	s.m.exec.queue.release(&s.client)
	if testHookReleased != nil {
		testHookReleased(s)
	}
}

// testHookReleased, if not nil, is called whenever a session gives control to its caller.
var testHookReleased func(*Session)

// Close frees the session's cache, or hands it to the model for other sessions: see
// [OpenOptions.PrefixBytes]. It returns [ErrBusy] while another method is in progress. Closing again
// does nothing. Close waits for the end of a pass that a cancelled call has left to other sessions,
// and of any running pass if the device frees memory only between passes.
func (s *Session) Close() error {
	if err := s.acquire(); err != nil {
		if errors.Is(err, ErrClosed) {
			return nil
		}
		return err
	}
	defer s.release()
	if err := s.waitLeft(context.Background()); err != nil {
		return err
	}
	s.closed = true
	return s.m.prefixes.release(s.seq)
}

// Forget drops what the session has computed and keeps its memory. The next prompt is computed from
// its first position: nothing of it is copied from other sessions either. Forget returns [ErrBusy]
// while another method is in progress.
func (s *Session) Forget() error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	s.seq.cut(0)
	s.seq.alone = true
	return nil
}

// waitLeft waits for the end of a pass that a cancelled call has left, and that uses the cache.
func (s *Session) waitLeft(ctx context.Context) error {
	if s.client.left == nil {
		return nil
	}
	select {
	case <-s.client.left:
		s.client.left = nil
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// request is what [Session.compute] computes.
type request struct {
	ids     []int32
	decoded bool // the ids are not of a prompt
	many    int  // positions before this one are computed in passes of many rows: see [origin]
	hold    bool // the queue is held afterwards, until releaseHold: see [scheduler]

	every bool // logits of all ids are wanted, not only those of the last
	emit  func(pos int, logits []float32) error
}

// compute runs ids through the model, after those that the session holds, in as many passes as it
// takes. The logits that emit gets are valid during its call only.
func (s *Session) compute(ctx context.Context, r request) error {
	if err := s.waitLeft(ctx); err != nil {
		return err
	}
	ids := r.ids
	from := len(s.seq.ids) // the first position whose logits may be wanted
	last := from + len(ids) - 1
	for len(ids) > 0 {
		c := s.m.exec.choose(len(s.seq.ids), len(ids), r.many)
		if c.fresh { // what the cache holds is computed again, in one pass with the rest
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
		var wanted []int // rows
		for row := range n {
			if pos := in.pos + row; pos == last || r.every && pos >= from {
				wanted = append(wanted, row)
			}
		}
		ids = ids[n:]
		computed := func() {
			s.seq.add(in.ids, s.m.exec.after(s.seq.origin, in.pos, n, c.prefill), !r.decoded)
			s.m.prefixes.list(s.seq)
			s.predicted += p.Cost
		}
		job := job{ctx: ctx, client: &s.client, pass: p, in: in, hold: r.hold && len(ids) == 0}
		if err := s.run(job, wanted, computed, r.emit); err != nil {
			return err
		}
	}
	return nil
}

// run runs a job, calls computed, and gives the logits of the wanted rows to emit. If they are many,
// it takes further jobs for the head alone.
func (s *Session) run(j job, wanted []int, computed func(), emit func(pos int, logits []float32) error) error {
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

// logitRows bounds how many rows of logits are in memory at once: 64 rows of a vocabulary of 152,000
// are 39 MB.
const logitRows = 64

// reservePrompt makes room for a prompt and some of its answer, at most most tokens if that is not
// 0, so that the cache of a long prompt does not grow, which copies it, with the first tokens. It
// succeeds if a device has no memory for so much, because the prompt may still fit.
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

// reserve makes room in the cache. If the device has none, it evicts what the model keeps of closed
// sessions and tries again.
func (s *Session) reserve(ctx context.Context, positions int) error {
	if positions <= s.seq.cache.capacity {
		return nil
	}
	grow := func() error {
		s.seq.rows.Lock() // after those who copy from the buffers
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

// outOfMemory reports whether a device, or the machine that it is part of, has no memory left.
func outOfMemory(err error) bool {
	return errors.Is(err, npu.ErrMemory) || errors.Is(err, syscall.ENOMEM)
}

// Step appends an id to what the session holds and returns the logits [vocab] after it, computed as
// in generation. They are valid until the session's next call. If the context is full, it returns a
// [*ContextError]; if another method is in progress, [ErrBusy].
func (s *Session) Step(ctx context.Context, id int32) ([]float32, error) {
	if err := s.acquire(); err != nil {
		return nil, err
	}
	defer s.release()
	if err := s.m.checkIDs([]int32{id}); err != nil {
		return nil, err
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

// checkIDs returns an OptionError if an id is outside of the vocabulary.
func (m *Model) checkIDs(ids []int32) error {
	vocab := m.ck.Config().Vocab
	for i, id := range ids {
		if id < 0 || int(id) >= vocab {
			return badOption(fmt.Sprintf("ids[%d]", i), id, fmt.Sprintf("an id from 0 to %d", vocab-1))
		}
	}
	return nil
}

// Score computes ids from position 0 on and calls emit with each position's logits, which are those
// for the token after it: for teacher-forced comparisons and the likelihood of a text. The logits are
// valid during the call only. An error of emit ends Score, which returns it.
//
// If emit is nil, Score only fills the session, for [Session.Step]. The ids are then read like a
// prompt of Generate, and otherwise in passes of at most 64 rows, so that their logits fit into
// memory. If there are more ids than [Model.Context], Score returns a [*ContextError]; if another
// method is in progress, [ErrBusy].
func (s *Session) Score(ctx context.Context, ids []int32, emit func(pos int, logits []float32) error) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.release()
	if err := s.m.checkIDs(ids); err != nil {
		return err
	}
	if len(ids) > s.m.Context() {
		return &ContextError{len(ids), s.m.Context(),
			fmt.Sprintf("model: %d tokens cannot be scored, the context is %d", len(ids), s.m.Context())}
	}
	if err := s.waitLeft(ctx); err != nil {
		return err
	}
	s.seq.cut(0)
	r := request{ids: ids, every: emit != nil, emit: emit}
	if emit == nil {
		r.emit = func(int, []float32) error { return nil }
	}
	return s.compute(ctx, r)
}
