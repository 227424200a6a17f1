package skill

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/npu/dtype"
)

// drifts are machines that become slower or faster while they are measured: how much of a time is needed at the n-th repetition.
func drifts() map[string]func(n int) float64 {
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

// What drifts decides nothing: of two plans that are alike none is faster, and one that is 10 % faster is, whatever the machine does meanwhile. Measured one after the other, the
// same machines say otherwise.
func TestDriftDecidesNothing(t *testing.T) {
	const turns = 2*defaultRepetitions - 1
	fooled := 0
	for name, drift := range drifts() {
		for _, p := range []Phase{Prefill, Decode} {
			for _, tc := range []struct {
				takes float64 // by the changed plan
				want  bool
			}{{1, false}, {0.90, true}, {1.10, false}} {
				n := 0
				repeat := func(takes float64) func() (Repetition, error) {
					return func() (Repetition, error) {
						s := takes * drift(n) * (1 + 0.002*float64(n%3-1)) // and a little noise
						n++
						return Repetition{First: 100 * s, Token: s}, nil
					}
				}
				list, err := takeTurns(nil, repeat(1), repeat(tc.takes), func(have int) bool { return have < turns },
					func(Turn) error { return nil })
				one, other := list.repetitions()
				if err != nil || len(other) != turns || len(one) != turns+1 {
					t.Fatalf("%d and %d repetitions, %v", len(one), len(other), err)
				}
				sum := (&Paired{First: list.turns(firstOf), Token: list.turns(tokenOf)}).of(p)
				if sum.Faster() != tc.want {
					t.Errorf("%s, %s, a plan that takes %g: kept %v, %s", name, p, tc.takes, !tc.want, sum)
				}
				checkPrinted(t, sum)
				n = 0
				var after, before []float64
				for range turns {
					before = append(before, must(repeat(1)()).First)
				}
				for range turns {
					after = append(after, must(repeat(tc.takes)()).First)
				}
				was, noise := median(before)
				is, more := median(after)
				if kept := 1-is/was > max(leastSpread, noise+more); kept != tc.want {
					fooled++
				}
			}
		}
	}
	if fooled < 6 {
		t.Errorf("one after the other goes wrong in %d cases only: these machines show nothing", fooled)
	}
}

// Of few turns all must be faster, of many nearly all: less than one of thirty coins does as well.
func TestMostlyOf(t *testing.T) {
	for n, want := range map[int]int{1: 1, 3: 3, 5: 5, 7: 7, 9: 8, 15: 12, 27: 19} {
		if got := mostlyOf(n); got != want {
			t.Errorf("of %d turns %d, want %d", n, got, want)
		}
	}
	one := func(list ...float64) *Turns {
		var x timings
		for _, s := range list {
			x = append(x, Turn{Before: [2]Repetition{{1, 1}, {1, 1}}, After: Repetition{s, s}})
		}
		sum := x.turns(tokenOf)
		return &sum
	}
	for name, tc := range map[string]struct {
		turns *Turns
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
		checkPrinted(t, tc.turns)
	}
}

// drifting is a device whose runs take time by the clock, more of it or less the later it is. It computes nothing else than the device in it.
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

// A deployment on a machine that drifts, by a clock that nothing else moves: a change that does nothing is not kept where everything becomes faster, and one that saves passes is kept
// where everything becomes slower.
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
				d, err := NewDeployment(tiny("smollm-mha"), dev, small(t))
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				e, err := d.env(Prefill)
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				for _, tc := range []struct {
					name          string
					before, after func(r *Recipe)
					kept          bool
				}{
					{"FP16 keys and values", func(*Recipe) {}, func(r *Recipe) { r.Cache = dtype.F16 }, false}, // as many runs
					{"short chunks", func(*Recipe) {}, func(r *Recipe) { r.Chunk = 4 }, false},
					{"long chunks", func(r *Recipe) { r.Chunk = 4 }, func(r *Recipe) { r.Chunk = 40 }, true},
				} {
					before, a := e.Recipe(), Attempt{Recipe: e.Recipe()}
					tc.before(&before)
					tc.after(&a.Recipe)
					if err := e.with(before).timed(t.Context(), e.with(a.Recipe), &a); err != nil {
						t.Fatal(err)
					}
					if better, why := a.faster(Prefill); better != tc.kept {
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

// The trajectory says how it was measured, and the journal keeps what decided.
func TestTurnsAreWrittenDown(t *testing.T) {
	opts := small(t)
	d := deployment(t, tiny("smollm-mha"), openCPU(t), opts)
	if err := d.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	measured := 0
	for _, a := range d.State().Attempts {
		if a.Value.After == nil {
			continue
		}
		measured++
		if turns := a.Value.Turns; turns == nil || turns.Count < 2*opts.Repetitions-1 || !strings.Contains(a.Value.Why, "turns, noise") {
			t.Errorf("%s: %+v, %q", a.Value.Step, turns, a.Value.Why)
		}
		var again Attempt
		if err := json.Unmarshal(must(json.Marshal(a.Value)), &again); err != nil || !reflect.DeepEqual(again.Turns, a.Value.Turns) {
			t.Errorf("read again: %+v, %v", again.Turns, err)
		}
	}
	page := string(must(os.ReadFile(d.ws.path("perf_opt_traj.md"))))
	if measured == 0 || !strings.Contains(page, "timed in turns") {
		t.Errorf("%d attempts were measured; the trajectory:\n%s", measured, page)
	}
}
