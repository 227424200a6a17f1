package timing

import (
	"cmp"
	"math"
	"slices"

	"github.com/npukit/npukit/skill/internal/journal"
)

// turnList is the turns in which two plans were timed.
type turnList []journal.Turn

// takeTurns appends turns to known while more returns true, and until there is at least one. It
// calls each with every new turn.
func takeTurns(known turnList, before, after func() (journal.Repetition, error), more func(turns int) bool,
	each func(journal.Turn) error) (turnList, error) {
	if len(known) > 0 && !more(len(known)) {
		return known, nil
	}
	last, err := before()
	for err == nil {
		t := journal.Turn{Before: [2]journal.Repetition{last}}
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

// repetitions returns the repetitions of each plan. A turn shares one with the turn after it,
// unless another process took that turn; it is returned once.
func (t turnList) repetitions() (before, after []journal.Repetition) {
	for i, x := range t {
		if i == 0 || t[i-1].Before[1] != x.Before[0] {
			before = append(before, x.Before[0])
		}
		before, after = append(before, x.Before[1]), append(after, x.After)
	}
	return before, after
}

// sum sums up one of the two times of all turns.
func (t turnList) sum(time func(journal.Repetition) float64) journal.Turns {
	list := make([]journal.Turns, len(t))
	for i, x := range t {
		b := math.Sqrt(time(x.Before[0]) * time(x.Before[1]))
		a := time(x.After)
		list[i] = journal.Turns{Count: len(t), Before: b, After: a, Gain: 1 - a/b}
	}
	slices.SortFunc(list, func(a, b journal.Turns) int { return cmp.Compare(a.Gain, b.Gain) })
	n := len(list)
	middle := list[n/2]
	middle.Noise = max(journal.LeastSpread, middle.Gain-list[n-MostOf(n)].Gain)
	return middle
}

func firstOf(r journal.Repetition) float64 { return r.First }
func tokenOf(r journal.Repetition) float64 { return r.Token }

// MostOf returns how many of n turns must be faster to rule out chance: all of 5, 8 of 9, 19 of 27.
// A fair coin falls on one side more often than that in less than byChance of all trials.
//
// Turns that share a repetition are not independent trials. In simulations with spreads of 2 and
// 10 %, with bursts over several repetitions and with long tails, a change without effect is kept
// in 0.05 to 5 % of all attempts. One that saves 30 % is kept in 76 to 100 % of attempts of 9
// turns, and in more than 99 % of those of 27.
func MostOf(n int) int {
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
