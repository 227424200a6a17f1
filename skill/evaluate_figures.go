package skill

import (
	"context"
	"fmt"
	"math"
	"time"
)

// Bounds of the difference between two measurements of the same plan, one by the deployment and one by the evaluator.
const (
	// sameClock is for predictions: the clock says the same again, but for the last digits.
	sameClock = 1e-6
	// fasterMost is by how much a claim may be faster than the evaluator's fastest repetition, which is the one that other load has disturbed least.
	fasterMost = 0.30
	// slowerMost is by how much a claim may be slower than the slowest median that the evaluator has seen: what a busy machine makes of an honest deployment. Other load makes
	// figures slower and never faster, and a claim that is worse than the truth takes nobody in.
	slowerMost = float64(busyFactor - 1)
	// measureTries and measureFor: figures that do not agree are taken again, and for longer where other processes work beside.
	measureTries        = 3
	measureFor, busyFor = 8 * time.Second, 40 * time.Second
	// busyFactor is by how much other processes are thought to slow every single repetition of busyFor, at most. A claim beyond that is refused even then.
	busyFactor = 4
)

// figuresSource says what the bounds were measured on.
const figuresSource = `Measured on two cores of a Xeon in a virtual machine, by npukit bench in processes one after the other (256 and 16
tokens of SmolLM2-135M, 48 and 16 of a model of two layers, 5 repetitions each): medians of two quiet processes are 2 and 5 % apart for SmolLM2-135M, their fastest repetitions 4 and 2 %, and
one repetition is up to 26 % slower than its median; of the model of two layers, whose token takes 70 us, the fastest are 8 and 32 % apart, and the medians up to a factor of 2.2. With other work on
both cores everything is 2 to 5 times slower.`

// measureAgain takes the figures again and compares them with what the deployment reports. Where a claim is faster than what can be reproduced, and other processes take a
// part of the machine, nothing can be said: that is [ErrBusy], and no verdict.
func (v *evaluation) measureAgain(ctx context.Context) error {
	was, ok := v.state.lastMeasured(v.state.Plan)
	if !ok {
		v.hold("figures", false, "the journal has no measurement of the plan")
		return nil
	}
	if performanceIs(v, &was) != nil {
		return nil // said before: there are no figures that could be compared
	}
	var first, token figure
	others, share, busy := watchOthers(), 0.0, false
	for try, started := 1, time.Now(); ; try++ {
		e := v.env.with(v.env.recipe)
		e.phase = Evaluation
		m, err := e.Measure(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			v.hold("figures", false, "they cannot be taken: %v", err)
			return nil
		}
		if m.Predicted != was.Predicted || m.Positions != was.Positions || m.Clock != was.Clock {
			v.hold("figures", false, "the deployment reports figures by clock %q over %d positions, predicted: %v; this device has clock %q, %d positions, predicted: %v",
				was.Clock, was.Positions, was.Predicted, m.Clock, m.Positions, m.Predicted)
			return nil
		}
		if m.Estimate = nil; v.report.Measured == nil {
			v.report.Measured = &m
		}
		faster, slower := v.figureBounds(m)
		if m.Predicted {
			m.leastTTFT, m.leastToken = m.TTFT, 1/m.TokensPerSec
		}
		first.add(m.leastTTFT, m.TTFT, was.TTFT, faster, slower)
		token.add(m.leastToken, 1/m.TokensPerSec, 1/was.TokensPerSec, faster, slower)
		if first.same() && token.same() || m.Predicted {
			break
		}
		share, _ = others.share()
		busy = share > busyShare
		took := time.Since(started)
		if try >= measureTries && (took > busyFor || took > measureFor && !busy || !first.explained() || !token.explained()) {
			break
		}
		v.step("measuring again: %s, %s", first, token)
	}
	if busy && (!first.same() || !token.same()) && first.explained() && token.explained() {
		return fmt.Errorf("%w: they took %.0f %% of it; first token %s, a token %s, and %s has %s and %s: evaluate again when it is quiet", ErrBusy, 100*share, first, token,
			FilePerformance, seconds(was.TTFT), seconds(1/was.TokensPerSec))
	}
	m := v.report.Measured
	how := fmt.Sprintf("measured again on %s, %d times", m.Device, first.tries)
	if m.Predicted {
		how = "predicted again"
	}
	v.hold("figures", first.same() && token.same(), "%s: first token %s, a token %s; %s has %s (%s) and %s (%s), the bound is %.3g %% faster and %.3g %% slower", how, first, token,
		FilePerformance, seconds(was.TTFT), first.distance(), seconds(1/was.TokensPerSec), token.distance(), 100*first.fasterMost, 100*first.slowerMost)
	return nil
}

// figure is a time that was taken several times, to be compared with one that is claimed.
type figure struct {
	tries                  int
	least, most            float64 // s: the fastest repetition, and the slowest median
	faster, slower         float64 // relative: how far the claim lies outside of them
	fasterMost, slowerMost float64 // what is allowed
}

// add takes the time once more: its fastest repetition, and its median.
func (f *figure) add(least, middle, claimed, fasterMost, slowerMost float64) {
	if f.tries++; f.tries == 1 {
		f.least, f.most = least, middle
	}
	f.least, f.most, f.fasterMost, f.slowerMost = min(f.least, least), max(f.most, middle), fasterMost, slowerMost
	f.faster, f.slower = math.Inf(1), math.Inf(1)
	if f.least > 0 && claimed > 0 {
		f.faster, f.slower = max(0, f.least/claimed-1), max(0, claimed/f.most-1)
	}
}

// same reports whether the claim is what was seen, but for the bounds.
func (f figure) same() bool { return f.faster <= f.fasterMost && f.slower <= f.slowerMost }

// explained reports whether the claim is what was seen, or would be if other processes slowed all of the evaluator's repetitions.
func (f figure) explained() bool {
	return f.same() || f.faster <= busyFactor*(1+fasterMost)-1 && f.slower <= f.slowerMost
}

// distance says how far the claim lies outside of what was seen.
func (f figure) distance() string {
	if f.slower > f.faster {
		return fmt.Sprintf("%.3g %% slower", 100*f.slower)
	}
	return fmt.Sprintf("%.3g %% faster", 100*f.faster)
}

func (f figure) String() string {
	if f.least == f.most {
		return seconds(f.least)
	}
	return seconds(f.least) + " to " + seconds(f.most)
}

// figuresMarkdown says how figures are held to what an evaluator sees.
func figuresMarkdown() string {
	return fmt.Sprintf(`## Figures that are measured again

Predicted figures must be the same but for the last digits. Measured ones are taken again by the evaluator, and a claim may be %.0f %% faster than its fastest repetition, and %.0f %%
slower than the slowest median that it has seen. The fastest repetition is the one that other work on the machine has disturbed least: load makes repetitions slower and never faster,
so that a machine that is busy now does not refuse an honest claim, and none that is faster than the machine ever was is accepted. %s

Where a claim is too fast by no more than load could explain (a factor of %d), and other processes took more than %.0f %% of the machine while the evaluator measured for %.0f s, there is no
verdict: the plan stays as it was, and whoever asked is told to evaluate again when it is quiet. Phase 6 makes up to %d times as many repetitions where others work, repeats for at
least %v what takes less, and keeps the fastest.`, 100*fasterMost, 100*slowerMost, figuresSource, busyFactor, 100*busyShare, busyFor.Seconds(), disturbedTimes, leastMeasured)
}

// performanceIs puts the figures of performance.json in the place of the journal's: those are what people read.
func performanceIs(v *evaluation, m *Measurement) error {
	var p Performance
	data, err := v.read(FilePerformance)
	if err == nil {
		err = strict(data, &p)
	}
	if err != nil {
		return err
	}
	m.TTFT, m.TokensPerSec, m.TTFTNoise, m.DecodeNoise = p.TTFT, p.TokensPerSec, p.TTFTNoise, p.DecodeNoise
	m.Predicted, m.Positions, m.Clock = p.Predicted, p.Positions, p.Clock
	return nil
}

// figureBounds are by how much a claim may be faster and slower than what was seen.
func (v *evaluation) figureBounds(m Measurement) (faster, slower float64) {
	switch {
	case m.Predicted:
		return sameClock, sameClock
	case v.opts.tolerance > 0:
		return v.opts.tolerance, v.opts.tolerance
	}
	return fasterMost, slowerMost
}
