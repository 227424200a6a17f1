package skill

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/npukit/npukit/npu"
)

// Turns says how a changed plan was timed beside the one before it: before, after, before, after, and so on to a last before. Every repetition of the changed plan stands
// between two of the other, so that load and a clock that drifts strike both alike, and decide nothing.
type Turns struct {
	Count int     `json:"count"` // repetitions of the changed plan
	Gain  float64 `json:"gain"`  // median over the turns, of what the phase is about: 0.2 is 20 % less time
	// Noise is how far the slowest turns lie below the median, without as many of them as chance alone explains: a gain that exceeds it is one in nearly all turns.
	Noise float64 `json:"noise"`
}

// repetition is one timing of a plan, from an empty session.
type repetition struct{ first, token float64 } // s: to the first token's logits, and of a token behind it

// timings are repetitions of two plans, taken in turns.
type timings struct{ before, after []repetition } // before has one more, at the end

// takeTurns times two plans in turns, for as long as more says so, and at least once.
func takeTurns(before, after func() (repetition, error), more func(turns int) bool) (timings, error) {
	var t timings
	r, err := before()
	for t.before = append(t.before, r); err == nil && (len(t.after) == 0 || more(len(t.after))); {
		if r, err = after(); err != nil {
			break
		}
		t.after = append(t.after, r)
		r, err = before()
		t.before = append(t.before, r)
	}
	return t, err
}

// gains are those of each turn, sorted: a repetition of the changed plan against the two beside it. Their geometric mean is the time in between when the machine becomes
// slower or faster by some share from one to the next.
func (t timings) gains(p Phase) []float64 {
	of := func(r repetition) float64 {
		if p == Decode {
			return r.token
		}
		return r.first
	}
	list := make([]float64, len(t.after))
	for i, r := range t.after {
		list[i] = 1 - of(r)/math.Sqrt(of(t.before[i])*of(t.before[i+1]))
	}
	slices.Sort(list)
	return list
}

// turns sums up what a phase is about.
func (t timings) turns(p Phase) *Turns {
	g := t.gains(p)
	n := len(g)
	middle := g[n/2]
	return &Turns{Count: n, Gain: middle, Noise: middle - g[n-mostlyOf(n)]}
}

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

// faster decides whether a change is kept, in words too.
func (t *Turns) faster(p Phase, before, after Measurement) (bool, string) {
	n := max(leastSpread, t.Noise)
	return t.Gain > n, fmt.Sprintf("%s measured (%+.1f %% in %d turns, noise %.1f %%)", figuresOf(p, before, after), -100*t.Gain, t.Count, 100*n)
}

// compare says how fast this plan is and how fast a changed one: by the clock on a virtual array, where there are no turns; elsewhere they are timed in turns.
func (e *Env) compare(ctx context.Context, changed *Env) (before, after Measurement, t *Turns, err error) {
	if isVirtual(e.d.info) {
		if before, err = e.Measure(ctx); err == nil {
			after, err = changed.Measure(ctx)
		}
		return before, after, nil, err
	}
	e.step("measuring in turns")
	one, err := e.stopwatch(ctx)
	if err != nil {
		return before, after, nil, err
	}
	other, err := changed.stopwatch(ctx)
	if err != nil {
		return before, after, nil, err
	}
	defer func() { err = errors.Join(err, e.closeBeside()) }()
	if err := one.beside(ctx, other); err != nil {
		return before, after, nil, err
	}
	want := 2*e.d.opts.Repetitions - 1 // some more: of few turns, not one may be disturbed if a gain is to be seen
	list, err := takeTurns(func() (repetition, error) { return one.once(ctx) }, func() (repetition, error) { return other.once(ctx) }, func(turns int) bool {
		return turns < disturbedTimes*want && one.others.disturb() || one.more(turns, want)
	})
	if err != nil {
		return before, after, nil, err
	}
	if before, err = one.measured(list.before); err == nil {
		after, err = other.measured(list.after)
	}
	return before, after, list.turns(e.phase), err
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
and up to %d times as many where other processes work.`, 100*spread, mostlyOf(27), 27, 2*defaultRepetitions-1, disturbedTimes)
}
