package skill

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var printed = regexp.MustCompile(`([0-9.e+-]+) (s|ms|us) -> ([0-9.e+-]+) (s|ms|us) measured ` +
	`\(([+-][0-9.]+) % in the median of [0-9]+ turns, noise ([0-9.]+) %`)

// checkPrinted holds the text of a comparison to its verdict: who reads nothing but the numbers comes
// to the same one.
func checkPrinted(t *testing.T, turns *Turns) {
	t.Helper()
	m := printed.FindStringSubmatch(turns.String())
	if m == nil {
		t.Fatalf("%q cannot be read", turns)
	}
	number := func(s string) float64 { return must(strconv.ParseFloat(s, 64)) }
	unit := map[string]float64{"s": 1, "ms": 1e-3, "us": 1e-6}
	before, after := number(m[1])*unit[m[2]], number(m[3])*unit[m[4]]
	change, noise := number(m[5]), number(m[6])
	if (-change > noise) != turns.Faster() {
		t.Errorf("%q: kept %v", turns, turns.Faster())
	}
	if ratio := 100 * (after/before - 1); math.Abs(ratio-change) > 0.01*(100+math.Abs(change)) { // three digits each
		t.Errorf("%q: the two times differ by %+.1f %%", turns, ratio)
	}
}

// What is printed of a comparison implies its verdict, in text, Markdown and JSON, on machines that
// drift and on busy ones, where repetitions of the same plan differ by ten times.
func TestPrintedFiguresImplyTheVerdict(t *testing.T) {
	machines := drifts()
	rng := rand.New(rand.NewPCG(1, 2))
	machines["busy: up to ten times as slow"] = func(int) float64 { return math.Pow(10, rng.Float64()) }
	machines["a burst over most of it"] = func(n int) float64 { return 1 + 9*float64(min(1, n/5)) }
	verdicts := map[bool]int{}
	for name, drift := range machines {
		for _, takes := range []float64{0.5, 0.78, 0.979, 0.9801, 1, 1.3} {
			for _, p := range []Phase{Prefill, Decode} {
				n := 0
				repeat := func(takes float64) func() (Repetition, error) {
					return func() (Repetition, error) {
						s := takes * drift(n)
						n++
						return Repetition{First: 0.019 * s, Token: 83e-6 * s}, nil
					}
				}
				list := must(takeTurns(nil, repeat(1), repeat(takes), func(have int) bool { return have < 9 },
					func(Turn) error { return nil }))
				others := 0.42
				pair := &Paired{Plan: "a", First: list.turns(firstOf), Token: list.turns(tokenOf)}
				pair.First.Others, pair.Token.Others = &others, &others
				checkPrinted(t, &pair.First)
				checkPrinted(t, &pair.Token)
				a := Attempt{Step: "change", Outcome: Rejected, Turns: pair.of(p), Recipe: Recipe{SeqLen: 40, Chunk: 16}}
				a.Before, a.After = measuredPair(list, pair)
				better, why := a.faster(p)
				if a.Why = why; better {
					a.Outcome = Kept
				}
				verdicts[better]++
				checkPages(t, name, p, a, pair)
			}
		}
	}
	if verdicts[true] < 10 || verdicts[false] < 10 {
		t.Errorf("verdicts %v: too few of one sort", verdicts)
	}
}

// measuredPair are the measurements of turns, as a deployment has them.
func measuredPair(list timings, pair *Paired) (before, after *Measurement) {
	was, is := list.repetitions()
	of := func(list []Repetition, first, token float64) *Measurement {
		var times []float64
		for _, r := range list {
			times = append(times, r.First)
		}
		m := &Measurement{Plan: "a", Positions: 24, Clock: "wall", TTFT: first, TokensPerSec: 1 / token,
			Repetitions: len(list), Others: pair.First.Others}
		_, m.TTFTNoise = median(times)
		m.TTFTRange = [2]float64{times[0], times[len(times)-1]}
		m.DecodeNoise, m.TokenRange = m.TTFTNoise, m.TTFTRange
		return m
	}
	return of(was, pair.First.Before, pair.Token.Before), of(is, pair.First.After, pair.Token.After)
}

// checkPages holds the pages and the JSON of an attempt to its verdict.
func checkPages(t *testing.T, machine string, p Phase, a Attempt, pair *Paired) {
	t.Helper()
	s := must(StateOf(nil))
	s.Subject = &Subject{Name: "m", Device: "cpu"}
	after := *a.After
	after.Plan, after.Paired = "b", pair
	s.Plan = "b"
	s.Measured = []Measured{{Phase: Prefill, Value: *a.Before}, {Phase: Finalise, Value: *a.Before},
		{Phase: Finalise, Value: after}}
	s.Attempts = []Attempted{{Phase: p, Value: a}}
	if page := string(trajectoryPage(s)); !strings.Contains(page, cell(a.Why)) ||
		!strings.Contains(page, "| "+a.Outcome+" |") {
		t.Errorf("%s: the trajectory has not %q:\n%s", machine, a.Why, page)
	}
	r := must((&Deployment{state: s}).Performance())
	if err := r.consistent(); err != nil {
		t.Errorf("%s: %v", machine, err)
	}
	page := string(performancePage(r))
	for _, want := range []string{"change | noise", "Spread of all 9 repetitions",
		"other processes took 42 % of the machine"} {
		if !strings.Contains(page, want) {
			t.Errorf("%s: no %q in\n%s", machine, want, page)
		}
	}
	for what, turns := range map[string]*Turns{"time to the first token": &pair.First, "time of a token": &pair.Token} {
		change, noise := turns.Percents()
		row := fmt.Sprintf("| %s | %s | %s | %s %% | %s %% |", what, seconds(turns.Before), seconds(turns.After),
			change, noise)
		if !strings.Contains(page, row) {
			t.Errorf("%s: no %q in\n%s", machine, row, page)
		}
	}
	var again Performance
	if err := json.Unmarshal(must(json.Marshal(r)), &again); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		turns         Turns
		before, after float64
	}{{again.Paired.First, again.First.TTFT, again.TTFT},
		{again.Paired.Token, 1 / again.First.TokensPerSec, 1 / again.TokensPerSec}} {
		if got := 1 - x.after/x.before; math.Abs(got-x.turns.Gain) > 1e-9 || (got > x.turns.Noise) != x.turns.Faster() {
			t.Errorf("%s: the figures of JSON gain %v, their comparison %+v", machine, got, x.turns)
		}
	}
}

// The spread is that of all repetitions, and not of those that look alike.
func TestSpreadOfAllRepetitions(t *testing.T) {
	d := deployment(t, tiny("smollm-mha"), openCPU(t), small(t))
	e := must(d.env(Finalise))
	s := &stopwatch{env: e, others: watchOthers()}
	var list []Repetition
	for i := range 15 {
		x := 0.001
		if i >= 6 {
			x *= 1 + float64(i)
		}
		list = append(list, Repetition{First: x, Token: x})
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	m := must(s.measurement(list))
	if m.TTFTNoise < 0.5 || m.TTFTRange != [2]float64{0.001, 0.015} || m.Repetitions != 15 ||
		m.TTFT != 0.008 || m.TokenRange != m.TTFTRange {
		t.Errorf("%+v", m)
	}
}

// Rounded percentages still compare as the numbers do.
func TestPercents(t *testing.T) {
	for _, tc := range []struct {
		gain, noise  float64
		change, want string
	}{
		{0.436, 0.02, "-43.6", "2.0"}, {0.02001, 0.02, "-2.001", "2.000"},
		{0.02, 0.02, "-2.0", "2.0"}, {-0.3, 0.02, "+30.0", "2.0"},
		{0, 0.02, "+0.0", "2.0"}, {0.0199, 0.02, "-2.0", "2.0"},
	} {
		if change, noise := percents(tc.gain, tc.noise); change != tc.change && change != "-0.0" || noise != tc.want {
			t.Errorf("%v, %v: %s and %s, want %s and %s", tc.gain, tc.noise, change, noise, tc.change, tc.want)
		}
	}
}

// Turns that a process before has taken are not taken again, and count as what they are.
func TestTurnsAreTakenUp(t *testing.T) {
	repeat := func(s float64) func() (Repetition, error) {
		return func() (Repetition, error) { return Repetition{s, s}, nil }
	}
	taken := 0
	each := func(Turn) error { taken++; return nil }
	want := func(have int) bool { return have < 9 }
	slow := must(takeTurns(nil, repeat(4), repeat(2), func(have int) bool { return have < 5 }, each))
	all := must(takeTurns(slow, repeat(2), repeat(1), want, each)) // on a machine that is twice as fast now
	sum := all.turns(firstOf)
	if taken != 9 || len(all) != 9 || math.Abs(sum.Gain-0.5) > 1e-12 || sum.Noise != leastSpread {
		t.Errorf("%d turns taken, %d in all, %+v", taken, len(all), sum)
	}
	if was, is := all.repetitions(); len(was) != 11 || len(is) != 9 {
		t.Errorf("%d and %d repetitions", len(was), len(is))
	}
	if again := must(takeTurns(all, repeat(2), repeat(1), want, each)); taken != 9 || !slices.Equal(again, all) {
		t.Errorf("%d turns taken of a comparison that is complete", taken)
	}
}
