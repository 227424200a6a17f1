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
	// sameMachine is for measurements on one machine, minutes or days apart: clock frequency, other load and the placement of memory change them by up to a fifth on
	// shared machines. A claim that is half again as good as what can be reproduced is false wherever it comes from.
	sameMachine, sameMachineMost = 0.30, 0.50
	// measureTries and measureFor: other load makes a machine slower for seconds, so that figures that do not agree are taken again; a claim must lie within what was seen.
	measureTries = 3
	measureFor   = 8 * time.Second
)

// measureAgain takes the figures again and compares them with what the deployment reports.
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
	for try, started := 0, time.Now(); try < measureTries || time.Since(started) < measureFor; try++ {
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
		bound := v.figureBound(m)
		first.add(m.TTFT, was.TTFT, bound)
		token.add(1/m.TokensPerSec, 1/was.TokensPerSec, bound)
		if first.same() && token.same() || m.Predicted {
			break
		}
	}
	m := v.report.Measured
	how := fmt.Sprintf("measured again on %s, %d times", m.Device, first.tries)
	if m.Predicted {
		how = "predicted again"
	}
	v.hold("figures", first.same() && token.same(), "%s: first token %s, a token %s; %s has %s (%.3g %% off) and %s (%.3g %% off), the bound is %.3g %%", how, first, token,
		FilePerformance, seconds(was.TTFT), 100*first.off, seconds(1/was.TokensPerSec), 100*token.off, 100*first.bound)
	return nil
}

// figure is a time that was taken several times, to be compared with one that is claimed.
type figure struct {
	tries       int
	least, most float64 // s
	bound, off  float64 // relative: what is allowed, and how far the claim lies outside what was seen
}

// add takes the time once more.
func (f *figure) add(is, claimed, bound float64) {
	if f.tries++; f.tries == 1 {
		f.least, f.most = is, is
	}
	f.least, f.most, f.bound = min(f.least, is), max(f.most, is), max(f.bound, bound)
	f.off = math.Inf(1)
	if f.least > 0 && claimed > 0 {
		f.off = max(0, f.least/claimed-1, claimed/f.most-1)
	}
}

// same reports whether the claim is what was seen, but for the bound.
func (f figure) same() bool { return f.off <= f.bound }

func (f figure) String() string {
	if f.tries < 2 {
		return seconds(f.least)
	}
	return seconds(f.least) + " to " + seconds(f.most)
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

// figureBound is the noise that is allowed.
func (v *evaluation) figureBound(a Measurement) float64 {
	if v.opts.tolerance > 0 && !a.Predicted {
		return v.opts.tolerance
	}
	if a.Predicted {
		return sameClock
	}
	own := max(a.TTFTNoise, a.DecodeNoise) // what a journal claims its noise was counts for nothing
	return min(max(sameMachine, 4*own), sameMachineMost)
}
