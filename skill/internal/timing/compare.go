package timing

import (
	"context"
	"errors"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/skill/internal/journal"
)

// comparison is a comparison of two plans that is being made.
type comparison struct {
	timer   *Timer
	phase   journal.Phase
	note    journal.TurnsNote
	known   turnList // of processes before this one
	since   time.Time
	watch   *Watch
	shares  float64 // seconds of the machine that others took
	seconds float64 // of which shares is known
}

// Compare returns the speed of the plans of two recipes. On a virtual array both are predicted.
// Elsewhere the plans are timed in turns, and the figures of both are those of the median turn.
func (t *Timer) Compare(ctx context.Context, p journal.Phase, first, second journal.Recipe) (
	before, after journal.Measurement, err error) {
	if Virtual(t.Models.Info) {
		if before, err = t.Measure(ctx, p, first); err == nil {
			after, err = t.Measure(ctx, p, second)
		}
		return before, after, err
	}
	t.Step("measuring in turns")
	one, err := t.stopwatch(ctx, p, first)
	if err != nil {
		return before, after, err
	}
	other, err := t.stopwatch(ctx, p, second)
	if err != nil {
		return before, after, err
	}
	defer func() { err = errors.Join(err, t.Models.CloseBeside()) }()
	if err := openBoth(ctx, one, other); err != nil {
		return before, after, err
	}
	c, err := t.resume(one, other)
	if err != nil {
		return before, after, err
	}
	want := 2*t.Repetitions - 1 // of fewer turns none may be disturbed if a gain is to be seen
	more := func(turns int) bool {
		return turns < DisturbedTimes*want && one.others.disturbed() || one.more(turns, want)
	}
	list, err := takeTurns(c.known, func() (journal.Repetition, error) { return one.once(ctx) },
		func() (journal.Repetition, error) { return other.once(ctx) }, more, c.add)
	if err != nil {
		return before, after, err
	}
	return c.figures(list, one, other)
}

// openBoth opens the models of both plans, to be timed in turns. If the device has no room for
// both, neither stays open: each is then loaded for its turn, which takes longer and measures the
// same.
func openBoth(ctx context.Context, one, other *stopwatch) error {
	one.alternates, other.alternates = true, true
	m := one.Models
	if m.IsOpen(other.recipe) {
		one, other = other, one
	}
	err := one.warmUp(ctx)
	if err == nil {
		if err = m.OpenBeside(ctx, other.recipe); err == nil {
			err = other.warmUp(ctx)
		}
	}
	if errors.Is(err, npu.ErrMemory) || errors.Is(err, npu.ErrNoContext) {
		return m.Close()
	}
	return err
}

// resume begins a comparison with the turns that the journal has of it.
func (t *Timer) resume(one, other *stopwatch) (*comparison, error) {
	before, err := t.Models.Hash(one.recipe)
	if err != nil {
		return nil, err
	}
	after, err := t.Models.Hash(other.recipe)
	if err != nil {
		return nil, err
	}
	c := &comparison{
		timer: t, phase: one.phase, since: time.Now(), watch: NewWatch(),
		note: journal.TurnsNote{Before: before, After: after, Device: t.Models.Info.Name},
	}
	for _, n := range t.Log.State.TurnsOf(one.phase) {
		if n.Before == before && n.After == after && n.Device == c.note.Device {
			c.known = append(c.known, n.Turns...)
			c.addShare(n.Seconds, n.Others)
		}
	}
	return c, nil
}

func (c *comparison) addShare(seconds float64, others *float64) {
	if others != nil {
		c.shares, c.seconds = c.shares+seconds**others, c.seconds+seconds
	}
}

// add takes one more turn, and records the turns so far if they have taken long enough.
func (c *comparison) add(t journal.Turn) error {
	c.note.Turns = append(c.note.Turns, t)
	if time.Since(c.since) < c.timer.NoteEvery {
		return nil
	}
	c.endWatch()
	err := c.timer.Log.Append(journal.KindTurns, c.phase, c.note)
	c.note.Turns = nil
	c.since, c.watch = time.Now(), NewWatch()
	return err
}

// endWatch ends the time in which other processes were watched.
func (c *comparison) endWatch() {
	c.note.Seconds = time.Since(c.since).Seconds()
	c.note.Others = c.watch.shareOrNil()
	c.addShare(c.note.Seconds, c.note.Others)
}

// others returns the share of the machine that other processes took during the whole comparison,
// or nil if it is not known.
func (c *comparison) others() *float64 {
	c.endWatch()
	if c.seconds == 0 {
		return nil
	}
	share := c.shares / c.seconds
	return &share
}

// figures records the result of the turns, for both plans.
func (c *comparison) figures(list turnList, one, other *stopwatch) (before, after journal.Measurement, err error) {
	pair := &journal.Paired{Plan: c.note.Before, First: list.sum(firstOf), Token: list.sum(tokenOf)}
	pair.First.Others = c.others()
	pair.Token.Others = pair.First.Others
	was, is := list.repetitions()
	if before, err = one.measurement(was); err != nil {
		return before, after, err
	}
	if after, err = other.measurement(is); err != nil {
		return before, after, err
	}
	before.TTFT, before.TokensPerSec = pair.First.Before, 1/pair.Token.Before
	after.TTFT, after.TokensPerSec = pair.First.After, 1/pair.Token.After
	before.Others, after.Others, after.Paired = pair.First.Others, pair.First.Others, pair
	log := c.timer.Log
	if err = log.Append(journal.KindMeasure, c.phase, before); err == nil {
		err = log.Append(journal.KindMeasure, c.phase, after)
	}
	return before, after, err
}
