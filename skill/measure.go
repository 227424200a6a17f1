package skill

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/npukit/npukit/model"
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

// Measure says how fast the environment's plan is: by the clock on a virtual array, and by time elsewhere, where it is the median of the fastest repetitions after one that
// does not count: of all in the phases that optimise, of more in those whose figures are reported. Nothing is judged here, and what is timed is not what was checked.
func (e *Env) Measure(ctx context.Context) (Measurement, error) {
	hash, err := e.planHash()
	if err != nil {
		return Measurement{}, err
	}
	if m, ok := e.d.state.lastMeasured(hash); ok && m.Predicted {
		return m, nil // a clock says the same again
	}
	e.step("measuring")
	m, err := e.predict()
	if e.d.info.Kind != "sim" {
		m, err = e.clocked(ctx)
	}
	if err != nil {
		return m, err
	}
	m.Plan, m.Device = hash, e.d.info.Name
	return m, e.note(KindMeasure, m)
}

// predict asks the clock.
func (e *Env) predict() (Measurement, error) {
	p, err := e.Plan()
	if err != nil || e.d.info.Kind != "sim" {
		return Measurement{}, err
	}
	clock := xdna2.NewClock(xdna2.HostNpukit())
	est, err := p.Estimate(clock)
	if err != nil {
		return Measurement{}, err
	}
	return Measurement{Positions: est.SeqLen, TTFT: est.TTFT, TokensPerSec: est.TokensPerSec, Predicted: true, Clock: clock.Host.Name, Note: est.HostNote, Estimate: est}, nil
}

// clocked measures from an empty session: a prompt's time to its last logits, and tokens behind it.
func (e *Env) clocked(ctx context.Context) (Measurement, error) {
	ids, err := e.ids(ctx)
	if err != nil {
		return Measurement{}, err
	}
	l, err := e.open(ctx)
	if err != nil {
		return Measurement{}, err
	}
	n := min(measuredPrompt, e.recipe.SeqLen-measuredTokens)
	if n < 1 {
		return Measurement{}, fmt.Errorf("skill: %d positions leave no room to measure anything", e.recipe.SeqLen)
	}
	prompt := model.IDs(slices.Repeat(ids, n/len(ids)+1)[:n])
	want := e.d.opts.Repetitions
	var first, rest []float64
	others := watchOthers()
	more := func(rep int) bool {
		return e.reports() && (rep <= disturbedTimes*want && others.disturb() || rep <= mostRepetitions && time.Since(others.started) < leastMeasured)
	}
	for rep := 0; rep <= want || more(rep); rep++ {
		if err := l.session.Forget(); err != nil {
			return Measurement{}, err
		}
		var stats model.Stats
		for _, err := range l.session.Generate(ctx, prompt, &model.GenerateOptions{MaxTokens: measuredTokens, Sampling: &model.Sampling{}, IgnoreEOS: true, Stats: &stats}) {
			if err != nil {
				return Measurement{}, err
			}
		}
		if rep > 0 {
			first, rest = append(first, stats.TTFT.Seconds()), append(rest, 1/stats.TokensPerSecond())
		}
	}
	m := Measurement{Positions: n, Clock: "wall", Repetitions: want}
	m.Others, _ = others.share()
	m.leastTTFT, m.leastToken = slices.Min(first), slices.Min(rest)
	m.TTFT, m.TTFTNoise = median(fastest(first, want))
	token, noise := median(fastest(rest, want))
	m.TokensPerSec, m.DecodeNoise = 1/token, noise
	return m, nil
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

// noise is what a gain must exceed.
func noise(p Phase, before, after Measurement) float64 {
	if before.Predicted && after.Predicted {
		return leastGain
	}
	if p == Decode {
		return max(leastSpread, before.DecodeNoise+after.DecodeNoise)
	}
	return max(leastSpread, before.TTFTNoise+after.TTFTNoise)
}

// faster decides whether a change is kept, in words too. A prediction and a measurement are never compared.
func faster(p Phase, before, after Measurement) (bool, string) {
	if before.Predicted != after.Predicted || before.Positions != after.Positions {
		return false, "one figure is predicted and the other measured, or they are of prompts of different lengths: nothing can be said"
	}
	what, was, is := "first token", seconds(before.TTFT), seconds(after.TTFT)
	if p == Decode {
		what, was, is = "a token", seconds(1/before.TokensPerSec), seconds(1/after.TokensPerSec)
	}
	g, n := gain(p, before, after), noise(p, before, after)
	how := "measured"
	if after.Predicted {
		how = "predicted"
	}
	return g > n, fmt.Sprintf("%s %s -> %s %s (%+.1f %%, noise %.1f %%)", what, was, is, how, -100*g, 100*n)
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
