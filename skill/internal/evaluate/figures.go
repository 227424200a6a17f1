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
	"github.com/npukit/npukit/skill/internal/workspace"
)

// Bounds of the difference between a deployment's measurement of a plan and the evaluator's.
const (
	// sameClock is for predictions, which differ in the last digits only.
	sameClock = 1e-6
	// fasterMost is by how much a claim may be faster than the evaluator's fastest repetition,
	// which load has disturbed least.
	fasterMost = 0.30
	// Figures that do not agree are taken again: at least measureTries times and for measureFor,
	// or busyFor if other processes are busy.
	measureTries        = 3
	measureFor, busyFor = 8 * time.Second, 40 * time.Second
	// busyFactor is by how much other processes can slow down all repetitions of busyFor. A claim
	// that is faster than that fails even on a busy machine.
	busyFactor = 4
)

// measureAgainAdvice is for figures that the evaluator does not reproduce.
const measureAgainAdvice = "; deploy again, which measures again, when the machine is quiet"

// figuresSource is the source of the bounds.
const figuresSource = `Measured on two cores of a Xeon in a virtual machine, by npukit bench in processes one after the
other (256 and 16 tokens of SmolLM2-135M, 48 and 16 of a model of two layers, 5 repetitions each).
For SmolLM2-135M, the medians of two quiet processes differ by 2 and 5 %, their fastest repetitions by
4 and 2 %, and one repetition is up to 26 % slower than its median. For the model of two layers, whose
token takes 70 us, the fastest repetitions differ by 8 and 32 %, and the medians by up to a factor of
2.2. With other work on both cores everything is 2 to 5 times slower.`

// check takes the figures again and compares them with the deployment's. If a claim is faster than
// the evaluator can reproduce and other processes are busy, there is no verdict: check returns
// [ErrBusy].
func (v *figures) check(ctx context.Context) error {
	was, ok := v.state.LastMeasured(v.state.Plan)
	if !ok {
		v.hold("figures", false, "the journal has no measurement of the plan")
		return nil
	}
	for _, n := range v.state.Measured {
		if m := n.Value; !v.mayBeOf(m.Device) {
			v.hold("figures", false, "the journal has figures of %q: that is not what a device of kind %s calls "+
				"itself, and this one is %q%s", m.Device, v.info.Kind, v.info.Name, measureAgainAdvice)
			return nil
		}
	}
	claim, err := v.claimed(&was)
	if err != nil {
		return nil // another check has failed: there are no figures to compare
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
			v.hold("figures", false, "the deployment reports figures by clock %q over %d positions, predicted: %v; "+
				"this device has clock %q, %d positions, predicted: %v",
				was.Clock, was.Positions, was.Predicted, m.Clock, m.Positions, m.Predicted)
			return nil
		}
		m.Estimate = nil
		// The fastest by both figures is the one that load has disturbed least.
		if best := v.report.Measured; best == nil ||
			m.TTFT/m.TokensPerSec < best.TTFT/best.TokensPerSec {
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
			return fmt.Errorf(undecided+"the figures were measured on %s, and here on %s they are not found again: "+
				"%s: evaluate with the same kernels and threads, or deploy again here",
				was.Device, m.Device, notFound(first, token, began, was))
		}
		share, _ = others.Share()
		busy = share > timing.BusyShare
		took := time.Since(started)
		if try >= measureTries && (took > busyFor || took > measureFor && !busy || !first.explained() ||
			!token.explained() || !began.explained()) {
			break
		}
		v.step("measuring again: %s, %s", first, token)
	}
	if busy && !(first.same() && token.same() && began.same()) && first.explained() && token.explained() &&
		began.explained() {
		return fmt.Errorf("%w: they took %.0f %% of it; %s%s: evaluate again when it is quiet", ErrBusy, 100*share,
			notFound(first, token, began, was), disturbed(was))
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
		bound += "; note: what is claimed is slower than what is found here, as on a machine that was busy, and " +
			"takes nobody in"
	}
	again := disturbed(was) + measureAgainAdvice
	if first.same() && token.same() || m.Predicted {
		again = ""
	}
	v.hold("figures", first.same() && token.same(), "%s: first token %s, a token %s; %s has %s (%s) and %s (%s), %s%s",
		how, first, token,
		workspace.FilePerformance, journal.Seconds(was.TTFT), first.distance(), journal.Seconds(1/was.TokensPerSec),
		token.distance(), bound, again)
	v.judge(began, was)
	return nil
}

// notFound lists the claims that were not reproduced, with the figures found.
func notFound(first, token figure, began *start, was journal.Measurement) string {
	var list []string
	if !first.same() {
		list = append(list, fmt.Sprintf("first token %s, and %s has %s", first, workspace.FilePerformance,
			journal.Seconds(was.TTFT)))
	}
	if !token.same() {
		list = append(list, fmt.Sprintf("a token %s, and %s has %s", token, workspace.FilePerformance,
			journal.Seconds(1/was.TokensPerSec)))
	}
	if !began.same() {
		list = append(list, fmt.Sprintf("%s of the first plan's time to the first token are left, and %s of its "+
			"time of a token; %s claims %.3g %% and %.3g %%", began.first.shares(),
			began.token.shares(), workspace.FilePerformance, 100*was.TTFT/began.claim.TTFT,
			100*began.claim.TokensPerSec/was.TokensPerSec))
	}
	return strings.Join(list, "; ")
}

// disturbed returns a clause if other processes were busy during a measurement, or "".
func disturbed(m journal.Measurement) string {
	if m.Others == nil || *m.Others <= timing.BusyShare {
		return ""
	}
	return "; when the deployment measured it, " + journal.Busy(m.Others)
}

// figure is a time that was taken several times, to be compared with a claim.
type figure struct {
	tries                  int
	least, most            float64 // s: the fastest repetition and the slowest median
	faster, slower         float64 // relative distance of the claim from them
	fasterMost, slowerMost float64 // bounds of faster and slower
}

// add adds a measurement: its fastest repetition and its median.
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

// same reports whether the claim is within the bounds. Zero and infinite claims never are.
func (f figure) same() bool {
	return !math.IsInf(f.faster, 1) && f.faster <= f.fasterMost && f.slower <= f.slowerMost
}

// explained reports whether the claim is within the bounds, or would be if other processes had
// slowed down all of the evaluator's repetitions.
func (f figure) explained() bool {
	return f.same() || f.faster <= busyFactor*(1+fasterMost)-1
}

// distance returns the distance of the claim from the measurements.
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

// FiguresMarkdown describes how an evaluator checks figures.
func FiguresMarkdown() string {
	return fmt.Sprintf(`## Figures that are measured again

Predicted figures must be equal, except for the last digits. The evaluator measures the others again,
and a claim may be %.0f %% faster than its fastest repetition. Load has disturbed that one least: load
makes repetitions slower and never faster, so no claim is accepted that is faster than the machine. A
claim that is slower than what the evaluator measures passes with a note, since deployments on busy
machines are honest ones; the report has the evaluator's own figures. %s

Gains have the same bounds. The first plan is made again and timed in turns with the final one, as in
phase 6: the claimed share of its time that is left may be %.0f %% less than what is measured. A first
plan that is claimed slower than it is would invent a gain, and fails. If predicted, the first plan's
times must be equal.

If a claim is too fast by no more than load can explain (a factor of %d), and other processes took
more than %.0f %% of the machine while the evaluator measured for %.0f s, there is no verdict: the plan
stays as it was, and the error asks to evaluate again when the machine is quiet. Other processes are
seen on Linux only; elsewhere such a claim fails at once. If only figures have failed, the next
deployment measures them again in phase 6. Phase 6 makes up to %d times as many repetitions if other
processes are busy, and repeats for at least %v. Its figures are those of the median turn, or of the
median repetition if the first plan is the final one.`, 100*fasterMost, figuresSource,
		100*(1-1/(1+fasterMost)), busyFactor, 100*timing.BusyShare, busyFor.Seconds(), timing.DisturbedTimes,
		timing.MinMeasured)
}

// claimed replaces the journal's figures by those of performance.json, which people read. First are
// the figures of the first plan of the trajectory, or nil.
func (v *figures) claimed(m *journal.Measurement) (first *journal.Measurement, err error) {
	var p report.Performance
	data, err := v.read(workspace.FilePerformance)
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

// mayBeOf reports whether a device of this kind can have that name. Threads and kernels, in
// brackets at its end, do not count: "cpu" of "cpu (2 threads, avx512)". The driver chooses an
// array's name.
func (v *figures) mayBeOf(name string) bool {
	if v.info.Array != "" && !timing.Virtual(v.info) {
		return true
	}
	kind, _, _ := strings.Cut(v.info.Name, " (")
	given, _, _ := strings.Cut(name, " (")
	return given == kind
}

// figureBounds returns by how much a claim may be faster and slower. Measured claims may be slower
// without bound, as on a busy machine.
func (v *figures) figureBounds(m journal.Measurement) (faster, slower float64) {
	switch {
	case m.Predicted:
		return sameClock, sameClock
	case v.opts.Tolerance > 0:
		return v.opts.Tolerance, math.Inf(1)
	}
	return fasterMost, math.Inf(1)
}

// figures takes the figures again and compares them with the deployment's.
type figures struct{ *evaluation }
