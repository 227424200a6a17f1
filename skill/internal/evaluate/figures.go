package evaluate

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/report"
	"github.com/npukit/npukit/skill/internal/timing"
)

// Bounds of the difference between two measurements of the same plan, one by the deployment and one by the evaluator.
const (
	// sameClock is for predictions: the clock says the same again, but for the last digits.
	sameClock = 1e-6
	// fasterMost is by how much a claim may be faster than the evaluator's fastest repetition, which is the one that other load has disturbed least.
	fasterMost = 0.30
	// measureTries and measureFor: figures that do not agree are taken again, and for longer where other processes work beside.
	measureTries        = 3
	measureFor, busyFor = 8 * time.Second, 40 * time.Second
	// busyFactor is by how much other processes are thought to slow every single repetition of busyFor, at most. A claim beyond that is refused even then.
	busyFactor = 4
)

// measureAgainAdvice is for figures that cannot be reproduced.
const measureAgainAdvice = "; deploy again, which measures again, when the machine is quiet"

// figuresSource says what the bounds were measured on.
const figuresSource = `Measured on two cores of a Xeon in a virtual machine, by npukit bench in processes one after the other (256 and 16
tokens of SmolLM2-135M, 48 and 16 of a model of two layers, 5 repetitions each): medians of two quiet processes are 2 and 5 % apart for SmolLM2-135M, their fastest repetitions 4 and 2 %, and
one repetition is up to 26 % slower than its median; of the model of two layers, whose token takes 70 us, the fastest are 8 and 32 % apart, and the medians up to a factor of 2.2. With other work on
both cores everything is 2 to 5 times slower.`

// measureAgain takes the figures again and compares them with what the deployment reports. Where a claim is faster than what can be reproduced, and other processes take a
// part of the machine, nothing can be said: that is [ErrBusy], and no verdict.
func (v *figures) check(ctx context.Context) error {
	was, ok := v.state.LastMeasured(v.state.Plan)
	if !ok {
		v.hold("figures", false, "the journal has no measurement of the plan")
		return nil
	}
	for _, n := range v.state.Measured {
		if m := n.Value; !v.mayBeOf(m.Device) {
			v.hold("figures", false, "the journal has figures of %q: that is not what a device of kind %s calls itself, and this one is %q%s", m.Device, v.info.Kind, v.info.Name, measureAgainAdvice)
			return nil
		}
	}
	claim, err := v.claimed(&was)
	if err != nil {
		return nil // said before: there are no figures that could be compared
	}
	began, ok := v.start(claim)
	if !ok {
		return nil
	}
	var first, token figure
	others, share, busy := timing.NewWatch(), 0.0, false
	for try, started := 1, time.Now(); ; try++ {
		m, err := began.take(ctx, v.timer, v.bench.Recipe)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return v.cannot(err, "figures", "they cannot be taken")
		}
		if m.Predicted != was.Predicted || m.Positions != was.Positions || m.Clock != was.Clock {
			v.hold("figures", false, "the deployment reports figures by clock %q over %d positions, predicted: %v; this device has clock %q, %d positions, predicted: %v",
				was.Clock, was.Positions, was.Predicted, m.Clock, m.Positions, m.Predicted)
			return nil
		}
		m.Estimate = nil
		if best := v.report.Measured; best == nil || m.TTFT/m.TokensPerSec < best.TTFT/best.TokensPerSec { // the fastest, by both figures: the one that load has disturbed least
			v.report.Measured = &m
		}
		faster, slower := v.figureBounds(m)
		if m.Predicted {
			m.TTFTRange[0], m.TokenRange[0] = m.TTFT, 1/m.TokensPerSec
		}
		first.add(m.TTFTRange[0], m.TTFT, was.TTFT, faster, slower)
		token.add(m.TokenRange[0], 1/m.TokensPerSec, 1/was.TokensPerSec, faster, slower)
		began.add(m, was, faster, slower)
		if first.same() && token.same() && began.same() || m.Predicted {
			break
		}
		if m.Device != was.Device {
			return fmt.Errorf(undecided+"the figures were measured on %s, and here on %s they are not found again: %s: evaluate with the same kernels and threads, or deploy again here",
				was.Device, m.Device, notFound(first, token, began, was))
		}
		share, _ = others.Share()
		busy = share > timing.BusyShare
		took := time.Since(started)
		if try >= measureTries && (took > busyFor || took > measureFor && !busy || !first.explained() || !token.explained() || !began.explained()) {
			break
		}
		v.step("measuring again: %s, %s", first, token)
	}
	if busy && !(first.same() && token.same() && began.same()) && first.explained() && token.explained() && began.explained() {
		return fmt.Errorf("%w: they took %.0f %% of it; %s%s: evaluate again when it is quiet", ErrBusy, 100*share, notFound(first, token, began, was), disturbed(was))
	}
	m := v.report.Measured
	how := fmt.Sprintf("measured again on %s, %d times", m.Device, first.tries)
	if m.Predicted {
		how = "predicted again"
	}
	bound := fmt.Sprintf("the bound is %.3g %% faster", 100*first.fasterMost)
	switch {
	case m.Predicted:
		bound += fmt.Sprintf(" and %.3g %% slower", 100*first.slowerMost)
	case max(first.slower, token.slower) > fasterMost:
		bound += "; note: what is claimed is slower than what is found here, as on a machine that was busy, and takes nobody in"
	}
	again := disturbed(was) + measureAgainAdvice
	if first.same() && token.same() || m.Predicted {
		again = ""
	}
	v.hold("figures", first.same() && token.same(), "%s: first token %s, a token %s; %s has %s (%s) and %s (%s), %s%s", how, first, token,
		journal.FilePerformance, journal.Seconds(was.TTFT), first.distance(), journal.Seconds(1/was.TokensPerSec), token.distance(), bound, again)
	v.judge(began, was)
	return nil
}

// notFound says of the claims that were not found again what was found.
func notFound(first, token figure, began *start, was journal.Measurement) string {
	var list []string
	if !first.same() {
		list = append(list, fmt.Sprintf("first token %s, and %s has %s", first, journal.FilePerformance, journal.Seconds(was.TTFT)))
	}
	if !token.same() {
		list = append(list, fmt.Sprintf("a token %s, and %s has %s", token, journal.FilePerformance, journal.Seconds(1/was.TokensPerSec)))
	}
	if !began.same() {
		list = append(list, fmt.Sprintf("%s of the first plan's time to the first token are left, and %s of its time of a token; %s claims %.3g %% and %.3g %%", began.first.shares(),
			began.token.shares(), journal.FilePerformance, 100*was.TTFT/began.claim.TTFT, 100*began.claim.TokensPerSec/was.TokensPerSec))
	}
	return strings.Join(list, "; ")
}

// disturbed says that other processes worked while it was measured, or nothing.
func disturbed(m journal.Measurement) string {
	if m.Others == nil || *m.Others <= timing.BusyShare {
		return ""
	}
	return "; when the deployment measured it, " + journal.Busy(m.Others)
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
	if f.least > 0 && claimed > 0 && !math.IsInf(claimed, 1) {
		f.faster, f.slower = max(0, f.least/claimed-1), max(0, claimed/f.most-1)
	}
}

// same reports whether the claim is what was seen, but for the bounds. One of nothing, or of no end, is never.
func (f figure) same() bool {
	return !math.IsInf(f.faster, 1) && f.faster <= f.fasterMost && f.slower <= f.slowerMost
}

// explained reports whether the claim is what was seen, or would be if other processes slowed all of the evaluator's repetitions.
func (f figure) explained() bool {
	return f.same() || f.faster <= busyFactor*(1+fasterMost)-1
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
		return journal.Seconds(f.least)
	}
	return journal.Seconds(f.least) + " to " + journal.Seconds(f.most)
}

// FiguresMarkdown says how figures are held to what an evaluator sees.
func FiguresMarkdown() string {
	return fmt.Sprintf(`## Figures that are measured again

Predicted figures must be the same but for the last digits. Measured ones are taken again by the evaluator, and a claim may be %.0f %% faster than its fastest repetition. That one is
what other work on the machine has disturbed least: load makes repetitions slower and never faster, so that none is accepted that is faster than the machine ever was. A claim that is
slower than what the evaluator sees passes with a note: a deployment on a busy machine is an honest one, what is worse than the truth takes nobody in, and the report has the
evaluator's own figures. %s

What was gained is held to the same bounds. The first plan is made again and timed in turns with the one that is reported, as phase 6 does: the claimed share of its time that is left may be
%.0f %% less than what is found. A start that is claimed slower than it is makes a gain out of nothing, and is refused. Predicted, the first plan's times must be the same.

Where a claim is too fast by no more than load could explain (a factor of %d), and other processes took more than %.0f %% of the machine while the evaluator measured for %.0f s, there is no
verdict: the plan stays as it was, and whoever asked is told to evaluate again when it is quiet. Other work is seen on Linux only; elsewhere such a claim is refused at once. A
deployment that only its figures have kept from acceptance measures them again, in phase 6, when it is deployed again. Phase 6 makes up to %d times as many repetitions where others work, and repeats for at
least %v what takes less. Its figures are those of the median turn, or of the median repetition where the first plan is the one that is reported.`, 100*fasterMost, figuresSource, 100*(1-1/(1+fasterMost)), busyFactor, 100*timing.BusyShare, busyFor.Seconds(), timing.DisturbedTimes, timing.MinMeasured)
}

// claimed puts the figures of performance.json in the place of the journal's: those are what people read. First are those of the plan with which the trajectory begins, or nil.
func (v *figures) claimed(m *journal.Measurement) (first *journal.Measurement, err error) {
	var p report.Performance
	data, err := v.read(journal.FilePerformance)
	if err == nil {
		err = strict(data, &p)
	}
	if err != nil {
		return nil, err
	}
	m.TTFT, m.TokensPerSec, m.TTFTNoise, m.DecodeNoise = p.TTFT, p.TokensPerSec, p.TTFTNoise, p.DecodeNoise
	m.Predicted, m.Positions, m.Clock = p.Predicted, p.Positions, p.Clock
	return p.First, nil
}

// mayBeOf reports whether a name is one that a device of this kind has with any threads and kernels, which stand in brackets at its end: "cpu" of "cpu (2 threads, avx512)" is for all of
// them. What an array is called is its driver's to say.
func (v *figures) mayBeOf(name string) bool {
	if v.info.Array != "" && !timing.Virtual(v.info) {
		return true
	}
	kind, _, _ := strings.Cut(v.info.Name, " (")
	given, _, _ := strings.Cut(name, " (")
	return given == kind
}

// figureBounds are by how much a claim may be faster and slower than what was seen. A measured one may be as slow as it likes: a busy machine makes it so, and a claim that is
// worse than the truth takes nobody in.
func (v *figures) figureBounds(m journal.Measurement) (faster, slower float64) {
	switch {
	case m.Predicted:
		return sameClock, sameClock
	case v.opts.Tolerance > 0:
		return v.opts.Tolerance, math.Inf(1)
	}
	return fasterMost, math.Inf(1)
}

// figures takes the figures again and compares them with what the deployment reports.
type figures struct{ *evaluation }
