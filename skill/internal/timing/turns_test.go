package timing

import (
	"context"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
	"github.com/npukit/npukit/skill/internal/skilltest"
)

// Drifts returns machines that become slower or faster: the factor of a time at the n-th
// repetition.
func Drifts() map[string]func(n int) float64 {
	return map[string]func(n int) float64{
		"steady":                  func(int) float64 { return 1 },
		"slower by 3 % each time": func(n int) float64 { return math.Pow(1.03, float64(n)) },
		"faster by 3 % each time": func(n int) float64 { return math.Pow(0.97, float64(n)) },
		"slower in even steps":    func(n int) float64 { return 1 + 0.05*float64(n) },
		"half as fast from 7 on":  func(n int) float64 { return 1 + math.Floor(float64(min(n, 7))/7) },
		"twice as fast from 9 on": func(n int) float64 { return 1 - math.Floor(float64(min(n, 9))/9)/2 },
		"loaded for 2 repetitions": func(n int) float64 {
			if n == 4 || n == 5 {
				return 2.5
			}
			return 1
		},
	}
}

// Drift decides nothing: equal plans are never faster, and a plan that is 10 % faster always is.
// Measured one after the other, the same machines have other results.
func TestDriftDecidesNothing(t *testing.T) {
	const turns = 2*DefaultRepetitions - 1
	fooled := 0
	for name, drift := range Drifts() {
		for _, p := range []journal.Phase{journal.Prefill, journal.Decode} {
			for _, tc := range []struct {
				takes float64 // by the changed plan
				want  bool
			}{{1, false}, {0.90, true}, {1.10, false}} {
				n := 0
				repeat := func(takes float64) func() (journal.Repetition, error) {
					return func() (journal.Repetition, error) {
						s := takes * drift(n) * (1 + 0.002*float64(n%3-1)) // and a little noise
						n++
						return journal.Repetition{First: 100 * s, Token: s}, nil
					}
				}
				list, err := takeTurns(nil, repeat(1), repeat(tc.takes), func(have int) bool { return have < turns },
					func(journal.Turn) error { return nil })
				one, other := list.repetitions()
				if err != nil || len(other) != turns || len(one) != turns+1 {
					t.Fatalf("%d and %d repetitions, %v", len(one), len(other), err)
				}
				sum := (&journal.Paired{First: list.sum(firstOf), Token: list.sum(tokenOf)}).Of(p)
				if sum.Faster() != tc.want {
					t.Errorf("%s, %s, a plan that takes %g: kept %v, %s", name, p, tc.takes, !tc.want, sum)
				}
				CheckPrinted(t, sum)
				n = 0
				var after, before []float64
				for range turns {
					before = append(before, skilltest.Must(repeat(1)()).First)
				}
				for range turns {
					after = append(after, skilltest.Must(repeat(tc.takes)()).First)
				}
				was, noise := Median(before)
				is, more := Median(after)
				if kept := 1-is/was > max(journal.LeastSpread, noise+more); kept != tc.want {
					fooled++
				}
			}
		}
	}
	if fooled < 6 {
		t.Errorf("one after the other goes wrong in %d cases only: these machines show nothing", fooled)
	}
}

// Of few turns all must be faster, and of many nearly all.
func TestMostOf(t *testing.T) {
	for n, want := range map[int]int{1: 1, 3: 3, 5: 5, 7: 7, 9: 8, 15: 12, 27: 19} {
		if got := MostOf(n); got != want {
			t.Errorf("of %d turns %d, want %d", n, got, want)
		}
	}
	one := func(list ...float64) *journal.Turns {
		var x turnList
		for _, s := range list {
			x = append(x, journal.Turn{Before: [2]journal.Repetition{{First: 1, Token: 1}, {First: 1, Token: 1}},
				After: journal.Repetition{First: s, Token: s}})
		}
		sum := x.sum(tokenOf)
		return &sum
	}
	for name, tc := range map[string]struct {
		turns *journal.Turns
		want  bool
	}{
		"all of five":               {one(0.9, 0.9, 0.9, 0.9, 0.95), true},
		"four of five":              {one(0.9, 0.9, 0.9, 0.9, 1.01), false},
		"eight of nine":             {one(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 3), true},
		"seven of nine":             {one(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 1.01, 3), false},
		"all, by less than matters": {one(0.985, 0.985, 0.985, 0.985, 0.985), false},
	} {
		if tc.turns.Faster() != tc.want {
			t.Errorf("%s: %v, %s", name, !tc.want, tc.turns)
		}
		CheckPrinted(t, tc.turns)
	}
}

// drifting is a device whose runs take time by a clock, more or less of it the later they are.
type drifting struct {
	npu.Device
	start time.Time
	pace  func(since time.Duration) float64
}

func (d drifting) Host() npu.Device { return npu.HostOf(d.Device) }

func (d drifting) Submit(ctx context.Context, runs []npu.Run) error {
	time.Sleep(time.Duration(float64(len(runs)) * d.pace(time.Since(d.start)) * float64(time.Millisecond)))
	return d.Device.Submit(ctx, runs)
}

// On a machine whose clock drifts, a change without effect is not kept if everything becomes
// faster, and one that saves passes is kept if everything becomes slower.
func TestDriftingDevice(t *testing.T) {
	for name, pace := range map[string]func(since time.Duration) float64{
		"faster and faster": func(d time.Duration) float64 { return 1 / (1 + d.Seconds()) },
		"slower and slower": func(d time.Duration) float64 { return 1 + d.Seconds()/4 },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				base, err := cpu.Open(&cpu.Options{Threads: 1})
				if err != nil {
					t.Fatal(err)
				}
				defer base.Close()
				dev := drifting{base, time.Now(), pace}
				timer := newTimer(t, skilltest.Tiny("smollm-mha"), dev)
				defer timer.Models.Close()
				first := journal.Naive(dev.Info(), 40)
				began := time.Now()
				for _, tc := range []struct {
					name          string
					before, after func(r *journal.Recipe)
					kept          bool
				}{
					{"FP16 keys and values", func(*journal.Recipe) {}, func(r *journal.Recipe) { r.Cache = dtype.F16 },
						false}, // as many runs
					{"short chunks", func(*journal.Recipe) {}, func(r *journal.Recipe) { r.Chunk = 4 }, false},
					{"long chunks", func(r *journal.Recipe) { r.Chunk = 4 }, func(r *journal.Recipe) { r.Chunk = 40 },
						true},
				} {
					before, a := first, journal.Attempt{Recipe: first}
					tc.before(&before)
					tc.after(&a.Recipe)
					was, is, err := timer.Compare(t.Context(), journal.Prefill, before, a.Recipe)
					if err != nil {
						t.Fatal(err)
					}
					a.Turns, a.Before, a.After = is.Paired.Of(journal.Prefill), &was, &is
					if better, why := Faster(&a, journal.Prefill); better != tc.kept {
						t.Errorf("%s: kept %v, %s", tc.name, better, why)
					}
				}
				if now, was := pace(time.Since(dev.start)), pace(began.Sub(dev.start)); max(now/was, was/now) < 1.5 {
					t.Errorf("the pace was %.3g and is %.3g: this machine hardly drifts", was, now)
				}
			})
		})
	}
}

// Turns that an earlier process has taken are not taken again, and count.
func TestTurnsAreTakenUp(t *testing.T) {
	repeat := func(s float64) func() (journal.Repetition, error) {
		return func() (journal.Repetition, error) { return journal.Repetition{First: s, Token: s}, nil }
	}
	taken := 0
	each := func(journal.Turn) error { taken++; return nil }
	want := func(have int) bool { return have < 9 }
	slow := skilltest.Must(takeTurns(nil, repeat(4), repeat(2), func(have int) bool { return have < 5 }, each))
	all := skilltest.Must(takeTurns(slow, repeat(2), repeat(1), want, each)) // on a machine that is twice as fast now
	sum := all.sum(firstOf)
	if taken != 9 || len(all) != 9 || math.Abs(sum.Gain-0.5) > 1e-12 || sum.Noise != journal.LeastSpread {
		t.Errorf("%d turns taken, %d in all, %+v", taken, len(all), sum)
	}
	if was, is := all.repetitions(); len(was) != 11 || len(is) != 9 {
		t.Errorf("%d and %d repetitions", len(was), len(is))
	}
	if again := skilltest.Must(takeTurns(all, repeat(2), repeat(1), want, each)); taken != 9 ||
		!slices.Equal(again, all) {
		t.Errorf("%d turns taken of a comparison that is complete", taken)
	}
}

// The spread is that of all repetitions.
func TestSpreadOfAllRepetitions(t *testing.T) {
	dev := skilltest.OpenCPU(t)
	s := &stopwatch{Timer: newTimer(t, skilltest.Tiny("smollm-mha"), dev), recipe: journal.Naive(dev.Info(), 40)}
	var list []journal.Repetition
	for i := range 15 {
		x := 0.001
		if i >= 6 {
			x *= 1 + float64(i)
		}
		list = append(list, journal.Repetition{First: x, Token: x})
	}
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	m := skilltest.Must(s.measurement(list))
	if m.TTFTNoise < 0.5 || m.TTFTRange != [2]float64{0.001, 0.015} || m.Repetitions != 15 ||
		m.TTFT != 0.008 || m.TokenRange != m.TTFTRange {
		t.Errorf("%+v", m)
	}
}

var printed = regexp.MustCompile(`([0-9.e+-]+) (s|ms|us) -> ([0-9.e+-]+) (s|ms|us) measured ` +
	`\(([+-][0-9.]+) % in the median of [0-9]+ turns, noise ([0-9.]+) %`)

// CheckPrinted checks that the printed numbers of a comparison imply its verdict.
func CheckPrinted(t *testing.T, turns *journal.Turns) {
	t.Helper()
	m := printed.FindStringSubmatch(turns.String())
	if m == nil {
		t.Fatalf("%q cannot be read", turns)
	}
	number := func(s string) float64 { return skilltest.Must(strconv.ParseFloat(s, 64)) }
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

// newTimer returns a timer of a checkpoint's models that records nothing.
func newTimer(t *testing.T, path string, dev npu.Device) *Timer {
	t.Helper()
	ck, err := checkpoint.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ck.Close() })
	ids := func(context.Context) ([]int32, error) { return []int32{1, 2, 3, 4, 5, 6, 7, 8}, nil }
	return &Timer{
		Models: models.New(ck, dev, t.Logf), Log: journal.Discard(skilltest.Must(journal.Fold(nil))), IDs: ids,
		Step:        t.Logf,
		Repetitions: 3, NoteEvery: NoteEvery,
	}
}
