package timing_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/npukit/npukit/internal/markdown"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/report"
	"github.com/npukit/npukit/skill/internal/skilltest"
	"github.com/npukit/npukit/skill/internal/timing"
)

// The printed figures of a comparison imply its verdict, in text, Markdown and JSON, on machines
// that drift and on busy ones, whose repetitions of the same plan differ by ten times.
func TestPrintedFiguresImplyTheVerdict(t *testing.T) {
	machines := timing.Drifts()
	rng := rand.New(rand.NewPCG(1, 2))
	machines["busy: up to ten times as slow"] = func(int) float64 { return math.Pow(10, rng.Float64()) }
	machines["a burst over most of it"] = func(n int) float64 { return 1 + 9*float64(min(1, n/5)) }
	verdicts := map[bool]int{}
	for name, drift := range machines {
		for _, takes := range []float64{0.5, 0.78, 0.979, 0.9801, 1, 1.3} {
			for _, p := range []journal.Phase{journal.Prefill, journal.Decode} {
				n := 0
				repeat := func(takes float64) func() (journal.Repetition, error) {
					return func() (journal.Repetition, error) {
						s := takes * drift(n)
						n++
						return journal.Repetition{First: 0.019 * s, Token: 83e-6 * s}, nil
					}
				}
				list, pair, err := timing.Turns(9, repeat(1), repeat(takes))
				if err != nil {
					t.Fatal(err)
				}
				others := 0.42
				pair.First.Others, pair.Token.Others = &others, &others
				timing.CheckPrinted(t, &pair.First)
				timing.CheckPrinted(t, &pair.Token)
				a := journal.Attempt{Step: "change", Outcome: journal.Rejected, Turns: pair.Of(p),
					Recipe: journal.Recipe{SeqLen: 40, Chunk: 16}}
				a.Before, a.After = measuredPair(list, &pair)
				better, why := timing.Faster(&a, p)
				if a.Why = why; better {
					a.Outcome = journal.Kept
				}
				verdicts[better]++
				checkPages(t, name, p, a, &pair)
			}
		}
	}
	if verdicts[true] < 10 || verdicts[false] < 10 {
		t.Errorf("verdicts %v: too few of one sort", verdicts)
	}
}

// measuredPair returns the measurements of turns, as a deployment has them.
func measuredPair(list []journal.Turn, pair *journal.Paired) (before, after *journal.Measurement) {
	was, is := timing.Repetitions(list)
	of := func(list []journal.Repetition, first, token float64) *journal.Measurement {
		var times []float64
		for _, r := range list {
			times = append(times, r.First)
		}
		m := &journal.Measurement{Plan: "a", Positions: 24, Clock: "wall", TTFT: first, TokensPerSec: 1 / token,
			Repetitions: len(list), Others: pair.First.Others}
		_, m.TTFTNoise = timing.Median(times)
		m.TTFTRange = [2]float64{times[0], times[len(times)-1]}
		m.DecodeNoise, m.TokenRange = m.TTFTNoise, m.TTFTRange
		return m
	}
	return of(was, pair.First.Before, pair.Token.Before), of(is, pair.First.After, pair.Token.After)
}

// checkPages compares the pages and the JSON of an attempt with its verdict.
func checkPages(t *testing.T, machine string, p journal.Phase, a journal.Attempt, pair *journal.Paired) {
	t.Helper()
	s := skilltest.Must(journal.Fold(nil))
	s.Subject = &journal.Subject{Name: "m", Device: "cpu"}
	after := *a.After
	after.Plan, after.Paired = "b", pair
	s.Plan = "b"
	s.Measured = []journal.Measured{{Phase: journal.Prefill, Value: *a.Before},
		{Phase: journal.Finalise, Value: *a.Before},
		{Phase: journal.Finalise, Value: after}}
	s.Attempts = []journal.Attempted{{Phase: p, Value: a}}
	if page := string(report.Trajectory(s)); !strings.Contains(page, markdown.Cell(a.Why)) ||
		!strings.Contains(page, "| "+a.Outcome+" |") {
		t.Errorf("%s: the trajectory has not %q:\n%s", machine, a.Why, page)
	}
	r := skilltest.Must(report.PerformanceOf(s))
	if err := r.Check(); err != nil {
		t.Errorf("%s: %v", machine, err)
	}
	page := string(report.PerformancePage(r))
	for _, want := range []string{"change | noise", "Spread of all 9 repetitions",
		"other processes took 42 % of the machine"} {
		if !strings.Contains(page, want) {
			t.Errorf("%s: no %q in\n%s", machine, want, page)
		}
	}
	for what, turns := range map[string]*journal.Turns{"time to the first token": &pair.First,
		"time of a token": &pair.Token} {
		change, noise := turns.Percents()
		row := fmt.Sprintf("| %s | %s | %s | %s %% | %s %% |", what, journal.Seconds(turns.Before),
			journal.Seconds(turns.After),
			change, noise)
		if !strings.Contains(page, row) {
			t.Errorf("%s: no %q in\n%s", machine, row, page)
		}
	}
	var again report.Performance
	if err := json.Unmarshal(skilltest.Must(json.Marshal(r)), &again); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		turns         journal.Turns
		before, after float64
	}{{again.Paired.First, again.First.TTFT, again.TTFT},
		{again.Paired.Token, 1 / again.First.TokensPerSec, 1 / again.TokensPerSec}} {
		if got := 1 - x.after/x.before; math.Abs(got-x.turns.Gain) > 1e-9 || (got > x.turns.Noise) != x.turns.Faster() {
			t.Errorf("%s: the figures of JSON gain %v, their comparison %+v", machine, got, x.turns)
		}
	}
}
