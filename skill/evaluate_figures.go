package skill

import (
	"context"
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
	// measureTries and measureFor: other load only makes a machine slower, so that a measurement that does not agree is taken again.
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
	var best *Measurement
	off := math.Inf(1)
	bound := 0.0
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
		if now := apart(m, was); best == nil || now < off {
			m.Estimate = nil
			best, off, bound = &m, now, v.figureBound(m)
		}
		if off <= bound || m.Predicted {
			break
		}
	}
	v.report.Measured = best
	how := "measured"
	if best.Predicted {
		how = "predicted"
	}
	v.hold("figures", off <= bound, "%s again: first token %s, %.4g tokens/s on %s; performance.json has %s, %.4g on %s; they differ by %.3g %%, the bound is %.3g %%", how,
		seconds(best.TTFT), best.TokensPerSec, best.Device, seconds(was.TTFT), was.TokensPerSec, was.Device, 100*off, 100*bound)
	return nil
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

// apart is by how much two measurements differ, in the figure where that is more: 0.5 is half again as much time.
func apart(a, b Measurement) float64 {
	ratio := func(x, y float64) float64 {
		if !(x > 0 && y > 0) {
			return math.Inf(1)
		}
		return max(x/y, y/x) - 1
	}
	return max(ratio(a.TTFT, b.TTFT), ratio(a.TokensPerSec, b.TokensPerSec))
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
