package skill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/npukit/npukit/npu"
)

// Repetition is one timing of a plan, from an empty session.
type Repetition struct {
	First float64 `json:"first_s"` // s to the first token's logits
	Token float64 `json:"token_s"` // s of a token after it
}

// Turn is a repetition of a changed plan between two of the plan before it.
type Turn struct {
	Before [2]Repetition `json:"before"`
	After  Repetition    `json:"after"`
}

// Turns sums up how a changed plan was timed beside the one before it: before, after, before, after,
// and so on to a last before. Every repetition of the changed plan is compared with the two around it,
// so that load and a clock that drifts affect both alike, and decide nothing.
type Turns struct {
	Count int `json:"count"` // repetitions of the changed plan
	// Before and After are the two times in the median turn. Before is the geometric mean of the
	// repetitions around After, which is the time in between if the machine becomes slower or faster
	// by some share from one to the next. Gain follows from the two.
	Before float64 `json:"before_s"`
	After  float64 `json:"after_s"`
	Gain   float64 `json:"gain"` // 1 - After/Before: 0.2 is 20 % less time
	// Noise is what Gain must exceed for the change to be kept: how far the slowest turns lie below the
	// median, without as many of them as chance alone explains, and leastSpread at least.
	Noise float64 `json:"noise"`
	// Others is the share of the machine that other processes took meanwhile; nil where it is not known.
	Others *float64 `json:"others_share,omitempty"`
}

// Paired is how a plan compares with another one that was timed in turns with it.
type Paired struct {
	Plan  string `json:"plan_sha256"` // the other plan, which is the one before
	First Turns  `json:"first_token"`
	Token Turns  `json:"token"`
}

// of is what a phase is about.
func (p *Paired) of(phase Phase) *Turns {
	if phase == Decode {
		return &p.Token
	}
	return &p.First
}

// timings are the turns in which two plans were timed.
type timings []Turn

// takeTurns adds turns to those that are known for as long as more says so, and until there is one.
func takeTurns(known timings, before, after func() (Repetition, error), more func(turns int) bool,
	each func(Turn) error) (timings, error) {
	if len(known) > 0 && !more(len(known)) {
		return known, nil
	}
	last, err := before()
	for err == nil {
		t := Turn{Before: [2]Repetition{last}}
		if t.After, err = after(); err != nil {
			break
		}
		if last, err = before(); err != nil {
			break
		}
		t.Before[1] = last
		known = append(known, t)
		if err = each(t); err != nil || !more(len(known)) {
			break
		}
	}
	return known, err
}

// repetitions are those of each plan, each once: a turn shares one with the turn after it, unless the
// process was another one.
func (t timings) repetitions() (before, after []Repetition) {
	for i, x := range t {
		if i == 0 || t[i-1].Before[1] != x.Before[0] {
			before = append(before, x.Before[0])
		}
		before, after = append(before, x.Before[1]), append(after, x.After)
	}
	return before, after
}

// turns sums up one of the two times of all turns.
func (t timings) turns(time func(Repetition) float64) Turns {
	list := make([]Turns, len(t))
	for i, x := range t {
		b := math.Sqrt(time(x.Before[0]) * time(x.Before[1]))
		a := time(x.After)
		list[i] = Turns{Count: len(t), Before: b, After: a, Gain: 1 - a/b}
	}
	slices.SortFunc(list, func(a, b Turns) int { return cmp.Compare(a.Gain, b.Gain) })
	n := len(list)
	middle := list[n/2]
	middle.Noise = max(leastSpread, middle.Gain-list[n-mostlyOf(n)].Gain)
	return middle
}

func firstOf(r Repetition) float64 { return r.First }
func tokenOf(r Repetition) float64 { return r.Token }

// mostlyOf is how many of n turns must be faster, or a coin would do as well: all of 5, 8 of 9, 19 of 27. More than that fall on one side in less than byChance of all trials.
//
// Turns that share a repetition are no independent trials. Simulated with spreads of 2 and 10 %, with bursts over several repetitions and with long tails, a change that does
// nothing is kept in 0.05 to 5 % of all attempts; one that saves 30 % is kept in 76 to 100 % of those of 9 turns, and in more than 99 % of those of 27.
func mostlyOf(n int) int {
	const byChance = 1.0 / 30
	chance, tail := math.Pow(2, -float64(n)), 0.0 // of exactly m, and of m or more
	for m := n; m > n/2; m-- {
		if tail += chance; tail > byChance {
			return min(n, m+1)
		}
		chance *= float64(m) / float64(n-m+1)
	}
	return n/2 + 1
}

// Faster reports whether the changed plan is faster beyond noise.
func (t *Turns) Faster() bool { return t.Gain > max(leastSpread, t.Noise) }

// String gives the two times of the median turn, their difference, and the bound that it is held to.
func (t *Turns) String() string {
	gain, noise := percents(t.Gain, t.Noise)
	return fmt.Sprintf("%s -> %s measured (%s %% in the median of %d turns, noise %s %%; %s)", seconds(t.Before),
		seconds(t.After), gain, t.Count, noise, busyText(t.Others))
}

// Percents are the change of the time, with its sign, and the bound, both in percent. Rounded as they
// are, they still say whether the one exceeds the other.
func (t *Turns) Percents() (change, noise string) { return percents(t.Gain, t.Noise) }

func percents(gain, noise float64) (change, bound string) {
	percent := 0 - 100*gain // and no negative zero
	for digits := 1; ; digits++ {
		change = strconv.FormatFloat(percent, 'f', digits, 64)
		bound = strconv.FormatFloat(100*noise, 'f', digits, 64)
		c, errC := strconv.ParseFloat(change, 64)
		b, errB := strconv.ParseFloat(bound, 64)
		if errC != nil || errB != nil || digits == 9 || (-c > b) == (gain > noise) {
			break
		}
	}
	if percent >= 0 {
		change = "+" + change
	}
	return change, bound
}

// busyText says how busy the machine was.
func busyText(others *float64) string {
	if others == nil {
		return "how busy the machine was is not known"
	}
	return fmt.Sprintf("other processes took %.0f %% of the machine", 100**others)
}

// TurnsNote are turns of a comparison that is not complete: a process that goes on need not take them
// again.
type TurnsNote struct {
	Before string `json:"before_sha256"` // the plans
	After  string `json:"after_sha256"`
	Device string `json:"device"` // its name, with threads and kernels
	Turns  []Turn `json:"turns"`
	// Seconds is how long they took, and Others the share of the machine that other processes took.
	Seconds float64  `json:"seconds"`
	Others  *float64 `json:"others_share,omitempty"`
}

// noteEvery is how much work a process that is killed loses of a comparison, at most. What takes less
// is not interrupted by writing.
const noteEvery = 20 * time.Second

// comparison is a comparison in the making.
type comparison struct {
	env     *Env
	one     *stopwatch
	note    TurnsNote
	known   timings // of processes before this one
	since   time.Time
	watch   *othersWatch
	shares  float64 // seconds of the machine that others took, and of all that is known
	seconds float64
}

// compared begins a comparison with the turns that the journal has of it.
func (e *Env) compared(one *stopwatch, changed *Env) (*comparison, error) {
	before, err := e.planHash()
	if err != nil {
		return nil, err
	}
	after, err := changed.planHash()
	if err != nil {
		return nil, err
	}
	c := &comparison{env: e, one: one, note: TurnsNote{Before: before, After: after, Device: e.d.info.Name},
		since: time.Now(), watch: watchOthers()}
	for _, n := range e.d.state.turnsOf(e.phase) {
		if n.Before == before && n.After == after && n.Device == c.note.Device {
			c.known = append(c.known, n.Turns...)
			c.add(n.Seconds, n.Others)
		}
	}
	return c, nil
}

func (c *comparison) add(seconds float64, others *float64) {
	if others != nil {
		c.shares, c.seconds = c.shares+seconds**others, c.seconds+seconds
	}
}

// each notes turns when they have taken some time.
func (c *comparison) each(t Turn) error {
	c.note.Turns = append(c.note.Turns, t)
	if time.Since(c.since) < c.env.d.opts.noteEvery() {
		return nil
	}
	c.lap()
	err := c.env.note(KindTurns, c.note)
	c.note.Turns = nil
	c.since, c.watch = time.Now(), watchOthers()
	return err
}

// lap ends the time in which others were watched.
func (c *comparison) lap() {
	c.note.Seconds = time.Since(c.since).Seconds()
	c.note.Others = c.watch.shareOrNil()
	c.add(c.note.Seconds, c.note.Others)
}

// others is the share of the machine that other processes took over the whole comparison.
func (c *comparison) others() *float64 {
	c.lap()
	if c.seconds == 0 {
		return nil
	}
	share := c.shares / c.seconds
	return &share
}

// compare says how fast this plan is and how fast a changed one: by the clock on a virtual array, where there are no turns; elsewhere they are timed in turns, and the figures of both
// are those of the median turn.
func (e *Env) compare(ctx context.Context, changed *Env) (before, after Measurement, err error) {
	if isVirtual(e.d.info) {
		if before, err = e.Measure(ctx); err == nil {
			after, err = changed.Measure(ctx)
		}
		return before, after, err
	}
	e.step("measuring in turns")
	one, err := e.stopwatch(ctx)
	if err != nil {
		return before, after, err
	}
	other, err := changed.stopwatch(ctx)
	if err != nil {
		return before, after, err
	}
	defer func() { err = errors.Join(err, e.closeBeside()) }()
	if err := one.beside(ctx, other); err != nil {
		return before, after, err
	}
	c, err := e.compared(one, changed)
	if err != nil {
		return before, after, err
	}
	want := 2*e.d.opts.Repetitions - 1 // some more: of few turns, not one may be disturbed if a gain is to be seen
	list, err := takeTurns(c.known, func() (Repetition, error) { return one.once(ctx) },
		func() (Repetition, error) { return other.once(ctx) }, func(turns int) bool {
			return turns < disturbedTimes*want && one.others.disturb() || one.more(turns, want)
		}, c.each)
	if err != nil {
		return before, after, err
	}
	return c.figures(list, one, other)
}

// figures notes what the turns have come to, for both plans.
func (c *comparison) figures(list timings, one, other *stopwatch) (before, after Measurement, err error) {
	pair := &Paired{Plan: c.note.Before, First: list.turns(firstOf), Token: list.turns(tokenOf)}
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
	if err = one.env.note(KindMeasure, before); err == nil {
		err = other.env.note(KindMeasure, after)
	}
	return before, after, err
}

// beside opens another plan's model beside this one, for both to be timed in turns. Where the device has no room for both, neither stays open: each is then loaded for its turn,
// which takes longer and says the same.
func (s *stopwatch) beside(ctx context.Context, other *stopwatch) error {
	s.alternates, other.alternates = true, true
	one, two := s, other
	if p, err := two.env.planned(); err == nil && s.env.d.live != nil && s.env.d.live.hash == p.hash {
		one, two = two, one // that one is open already
	}
	err := one.warmUp(ctx)
	if err == nil {
		if err = two.env.openBeside(ctx); err == nil {
			err = two.warmUp(ctx)
		}
	}
	if errors.Is(err, npu.ErrMemory) || errors.Is(err, npu.ErrNoContext) {
		return s.env.closeModel()
	}
	return err
}

// turnsMarkdown says how changes are measured.
func turnsMarkdown(spread float64) string {
	return fmt.Sprintf(`Where times are measured, the plan before a change and the plan with it are timed in turns: before, after,
before, after, and so on to a last before. Each repetition of the changed plan is held to the two beside it, so that load and a clock that drifts strike both alike. A change is kept when
the median of the turns is faster by more than %.2g %%, and when nearly all turns are faster: as many as a coin would show in one of 30 trials at most (8 of 9, %d of %d). There are %d turns,
and up to %d times as many where other processes work. The times that are given are those of the median turn, so that they are what the verdict rests on.`, 100*spread, mostlyOf(27), 27, 2*defaultRepetitions-1, disturbedTimes)
}
