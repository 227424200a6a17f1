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

// Measure says how fast the environment's plan is: by the clock on a virtual array, and by time elsewhere, where it is the median of the repetitions after one that
// does not count: more of them in the phases whose figures are reported. Nothing is judged here, and what is timed is not what was checked.
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
	var list []Repetition
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
func (s *stopwatch) once(ctx context.Context) (Repetition, error) {
	if err := s.warmUp(ctx); err != nil {
		return Repetition{}, err
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

func (s *stopwatch) run(ctx context.Context) (Repetition, error) {
	session, err := s.env.Session(ctx)
	if err != nil {
		return Repetition{}, err
	}
	var stats model.Stats
	for _, err := range session.Generate(ctx, model.IDs(s.prompt), &model.GenerateOptions{MaxTokens: measuredTokens, Sampling: &model.Sampling{}, IgnoreEOS: true, Stats: &stats}) {
		if err != nil {
			return Repetition{}, err
		}
	}
	return Repetition{stats.TTFT.Seconds(), 1 / stats.TokensPerSecond()}, nil
}

// measured notes what repetitions of a plan alone say.
func (s *stopwatch) measured(list []Repetition) (Measurement, error) {
	m, err := s.measurement(list)
	if err != nil {
		return m, err
	}
	m.Others = s.others.shareOrNil()
	return m, s.env.note(KindMeasure, m)
}

// measurement is the median of all repetitions, with their spread and their range.
func (s *stopwatch) measurement(list []Repetition) (Measurement, error) {
	hash, err := s.env.planHash()
	if err != nil {
		return Measurement{}, err
	}
	var first, token []float64
	for _, r := range list {
		first, token = append(first, r.First), append(token, r.Token)
	}
	m := Measurement{Plan: hash, Device: s.env.d.info.Name, Positions: len(s.prompt), Clock: "wall", Repetitions: len(list)}
	m.TTFT, m.TTFTNoise = median(first)
	m.TTFTRange = [2]float64{first[0], first[len(first)-1]}
	middle, noise := median(token)
	m.TokensPerSec, m.DecodeNoise = 1/middle, noise
	m.TokenRange = [2]float64{token[0], token[len(token)-1]}
	return m, nil
}

// reports says whether the figures are those that somebody reads, and not only for telling a change from the plan before it.
func (e *Env) reports() bool { return e.phase >= Finalise }

// A model whose tokens take microseconds is repeated for longer, since a moment in which a thread does not run is as long as all of its repetitions.
const leastMeasured, mostRepetitions = 300 * time.Millisecond, 500

// disturbedTimes is how many times as many repetitions are made where other processes work on the
// machine, at most: they make repetitions slower, for seconds at a time.
const disturbedTimes = 3

// measuredPrompt is long enough to be limited by products and not by starting them, and short enough to be measured often.
const measuredPrompt = 256

// median sorts some times, and gives the middle and the spread: half the distance of the quartiles over
// the median.
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
	change, bound := percents(g, leastGain)
	return g > leastGain, fmt.Sprintf("%s predicted (%s %%, noise %s %%)", figuresOf(p, before, after), change, bound)
}

// figuresOf are the times of two plans in what a phase is about.
func figuresOf(p Phase, before, after Measurement) string {
	was, is := seconds(before.TTFT), seconds(after.TTFT)
	if p == Decode {
		was, is = seconds(1/before.TokensPerSec), seconds(1/after.TokensPerSec)
	}
	return fmt.Sprintf("%s %s -> %s", whatOf(p), was, is)
}

// whatOf names the time that a phase is about.
func whatOf(p Phase) string {
	if p == Decode {
		return "a token"
	}
	return "first token"
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
