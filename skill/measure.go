package skill

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/xdna2"
)

// Bounds of measurements.
const (
	leastGain = 0.001 // a predicted gain below a thousandth is no gain: the clock is not that good
	// leastSpread is the noise that a measurement has at least, whatever its own repetitions say: two runs of the same program on a quiet machine differ by some
	// 2 % when minutes lie between them.
	leastSpread = 0.02

	measuredTokens = 16 // decoded for one repetition
)

// isVirtual reports a device whose time is that of a clock: what it takes here is how long this machine needs to pretend.
func isVirtual(info npu.Info) bool { return info.Kind == "sim" }

// Measure says how fast the environment's plan is: by the clock on a virtual array, and by time elsewhere, where it is the median of the fastest repetitions after one that
// does not count: of all in the phases that optimise, of more in those whose figures are reported. Nothing is judged here, and what is timed is not what was checked.
func (e *Env) Measure(ctx context.Context) (Measurement, error) {
	if !isVirtual(e.d.info) {
		return e.clocked(ctx)
	}
	hash, err := e.planHash()
	if err != nil {
		return Measurement{}, err
	}
	if m, ok := e.d.state.lastMeasured(hash); ok && m.Predicted {
		return m, nil // the clock says the same again
	}
	m, err := e.predict()
	if err != nil {
		return m, err
	}
	m.Plan, m.Device = hash, e.d.info.Name
	return m, e.note(KindMeasure, m)
}

// predict asks the clock.
func (e *Env) predict() (Measurement, error) {
	p, err := e.Plan()
	if err != nil {
		return Measurement{}, err
	}
	clock := xdna2.NewClock(xdna2.HostNpukit())
	est, err := p.Estimate(clock)
	if err != nil {
		return Measurement{}, err
	}
	return Measurement{Positions: est.SeqLen, TTFT: est.TTFT, TokensPerSec: est.TokensPerSec, Predicted: true, Clock: clock.Host.Name, Note: est.HostNote, Estimate: est}, nil
}

// clocked measures one plan alone.
func (e *Env) clocked(ctx context.Context) (Measurement, error) {
	e.step("measuring")
	s, err := e.stopwatch(ctx)
	if err != nil {
		return Measurement{}, err
	}
	var list []repetition
	for want := e.d.opts.Repetitions; s.more(len(list), want); {
		r, err := s.once(ctx)
		if err != nil {
			return Measurement{}, err
		}
		list = append(list, r)
	}
	return s.measured(list)
}

// stopwatch times an environment's plan: from an empty session, a prompt's time to its last logits, and tokens behind it.
type stopwatch struct {
	env        *Env
	prompt     []int32
	others     *othersWatch
	alternates bool       // with another plan
	warm       *liveModel // that has worked once
}

func (e *Env) stopwatch(ctx context.Context) (*stopwatch, error) {
	ids, err := e.ids(ctx)
	if err != nil {
		return nil, err
	}
	n := min(measuredPrompt, e.recipe.SeqLen-measuredTokens)
	if n < 1 {
		return nil, fmt.Errorf("skill: %d positions leave no room to measure anything", e.recipe.SeqLen)
	}
	return &stopwatch{env: e, prompt: slices.Repeat(ids, n/len(ids)+1)[:n], others: watchOthers()}, nil
}

// more reports whether repetitions are missing.
func (s *stopwatch) more(have, want int) bool {
	if have < want || !s.env.reports() {
		return have < want
	}
	return have < disturbedTimes*want && s.others.disturb() || have < mostRepetitions && time.Since(s.others.started) < leastMeasured
}

// once is a repetition, behind one that does not count where the model has just been loaded, or where another one has had the contexts of an array.
func (s *stopwatch) once(ctx context.Context) (repetition, error) {
	if err := s.warmUp(ctx); err != nil {
		return repetition{}, err
	}
	return s.run(ctx)
}

func (s *stopwatch) warmUp(ctx context.Context) error {
	l, err := s.env.open(ctx)
	if err != nil || l == s.warm && !(s.alternates && s.env.d.info.Array != "") {
		return err
	}
	_, err = s.run(ctx)
	s.warm = l
	return err
}

func (s *stopwatch) run(ctx context.Context) (repetition, error) {
	session, err := s.env.Session(ctx)
	if err != nil {
		return repetition{}, err
	}
	var stats model.Stats
	for _, err := range session.Generate(ctx, model.IDs(s.prompt), &model.GenerateOptions{MaxTokens: measuredTokens, Sampling: &model.Sampling{}, IgnoreEOS: true, Stats: &stats}) {
		if err != nil {
			return repetition{}, err
		}
	}
	return repetition{stats.TTFT.Seconds(), 1 / stats.TokensPerSecond()}, nil
}

// measured notes what repetitions say: the median of the fastest.
func (s *stopwatch) measured(list []repetition) (Measurement, error) {
	hash, err := s.env.planHash()
	if err != nil {
		return Measurement{}, err
	}
	var first, rest []float64
	for _, r := range list {
		first, rest = append(first, r.first), append(rest, r.token)
	}
	want := s.env.d.opts.Repetitions
	m := Measurement{Plan: hash, Device: s.env.d.info.Name, Positions: len(s.prompt), Clock: "wall", Repetitions: want}
	m.Others, _ = s.others.share()
	m.leastTTFT, m.leastToken = slices.Min(first), slices.Min(rest)
	m.TTFT, m.TTFTNoise = median(fastest(first, want))
	token, noise := median(fastest(rest, want))
	m.TokensPerSec, m.DecodeNoise = 1/token, noise
	return m, s.env.note(KindMeasure, m)
}

// reports says whether the figures are those that somebody reads, and not only for telling a change from the plan before it.
func (e *Env) reports() bool { return e.phase >= Finalise }

// A model whose tokens take microseconds is repeated for longer, since a moment in which a thread does not run is as long as all of its repetitions.
const leastMeasured, mostRepetitions = 300 * time.Millisecond, 500

// disturbedTimes is how many times as many repetitions are made where other processes work on the machine, at most: they make repetitions slower, for seconds at a time, and never
// faster, so that the fastest of many are those that were disturbed least.
const disturbedTimes = 3

// fastest are the n shortest times.
func fastest(list []float64, n int) []float64 {
	slices.Sort(list)
	return list[:min(n, len(list))]
}

// measuredPrompt is long enough to be limited by products and not by starting them, and short enough to be measured often.
const measuredPrompt = 256

// median gives the middle of some times, and their spread: half the distance of the quartiles over the median.
func median(list []float64) (middle, spread float64) {
	slices.Sort(list)
	n := len(list)
	middle = list[n/2]
	return middle, (list[3*n/4] - list[n/4]) / 2 / middle
}

// gain is by how much after is faster than before in what a phase is about: 0.2 is 20 % less time.
func gain(p Phase, before, after Measurement) float64 {
	if p == Decode {
		return 1 - before.TokensPerSec/after.TokensPerSec
	}
	return 1 - after.TTFT/before.TTFT
}

// faster decides by two predictions whether a change is kept, in words too. What is measured is decided by its turns.
func faster(p Phase, before, after Measurement) (bool, string) {
	if !before.Predicted || !after.Predicted || before.Positions != after.Positions {
		return false, "one figure is not predicted, or they are of prompts of different lengths: nothing can be said"
	}
	g := gain(p, before, after)
	return g > leastGain, fmt.Sprintf("%s predicted (%+.1f %%, noise %.1f %%)", figuresOf(p, before, after), -100*g, 100*leastGain)
}

// figuresOf are the times of two plans in what a phase is about.
func figuresOf(p Phase, before, after Measurement) string {
	what, was, is := "first token", seconds(before.TTFT), seconds(after.TTFT)
	if p == Decode {
		what, was, is = "a token", seconds(1/before.TokensPerSec), seconds(1/after.TokensPerSec)
	}
	return fmt.Sprintf("%s %s -> %s", what, was, is)
}

// seconds writes a time for people.
func seconds(s float64) string {
	switch {
	case s >= 1:
		return fmt.Sprintf("%.3g s", s)
	case s >= 1e-3:
		return fmt.Sprintf("%.3g ms", s*1e3)
	}
	return fmt.Sprintf("%.3g us", s*1e6)
}
