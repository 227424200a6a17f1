package timing

import "github.com/npukit/npukit/skill/internal/journal"

// For tests of the pages that print turns.

// Turns takes n turns and returns how the plans compare, with the measurements of both.
func Turns(n int, before, after func() (journal.Repetition, error)) (list []journal.Turn, pair journal.Paired,
	err error) {
	turns, err := takeTurns(nil, before, after, func(have int) bool { return have < n },
		func(journal.Turn) error { return nil })
	return turns, journal.Paired{Plan: "a", First: turns.sum(firstOf), Token: turns.sum(tokenOf)}, err
}

// Repetitions returns the repetitions of both plans.
func Repetitions(list []journal.Turn) (before, after []journal.Repetition) {
	return turnList(list).repetitions()
}
