package evaluate

import (
	"context"
	"fmt"
	"math"

	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/timing"
	"github.com/npukit/npukit/skill/internal/workspace"
)

// start is the first plan of the trajectory, which a deployment's gain refers to: a first plan that
// is claimed slower than it is would invent a gain. Predictions are compared with the clock.
// Measurements are compared by the share of the first plan's time that is left with the final plan.
// Both plans are timed in turns, so a slower or busy machine does not change the share.
type start struct {
	recipe         journal.Recipe
	claim          journal.Measurement // of the first plan, in performance.json
	took           *journal.Measurement
	first, token   figure
	beginsAsAlways bool
}

// start makes the first plan that was measured again, from its recipe. It returns nil if that is
// the final plan, since no gain is claimed then. It returns false for ok if the claim cannot be
// checked.
func (v *figures) start(claim *journal.Measurement) (s *start, ok bool) {
	if v.state.Measured[0].Value.Plan == v.state.Plan {
		return nil, true
	}
	recipe, ok := v.state.FirstRecipe()
	if !ok {
		v.hold("gain", false, "the journal has no recipe for the plan with which the trajectory begins")
		return nil, false
	}
	switch hash, err := v.bench.Models.Hash(recipe); {
	case err != nil:
		v.hold("gain", false, "the plan with which the trajectory begins cannot be made: %v", err)
		return nil, false
	case hash != v.state.Measured[0].Value.Plan:
		v.hold("gain", false, "the recipe of the first plan makes one of SHA-256 %.16s, the journal has "+
			"measured %.16s", hash, v.state.Measured[0].Value.Plan)
		return nil, false
	case claim == nil:
		v.hold("gain", false, "the trajectory begins with figures of another kind, or for other prompts, than "+
			"those that are reported")
		return nil, false
	}
	usual, err := journal.Hash(journal.Naive(v.info, v.state.Subject.SeqLen))
	mine, err2 := journal.Hash(recipe)
	return &start{recipe: recipe, claim: *claim, beginsAsAlways: err == nil && err2 == nil && usual == mine}, true
}

// take measures the plan, and the first plan in turns with it.
func (s *start) take(ctx context.Context, t *timing.Timer, plan journal.Recipe) (journal.Measurement, error) {
	if s == nil {
		return t.Measure(ctx, journal.Evaluation, plan)
	}
	began, m, err := t.Compare(ctx, journal.Evaluation, s.recipe, plan)
	if err != nil {
		return m, err
	}
	began.Estimate = nil
	s.took = &began
	return m, nil
}

// add compares the claim with a measurement.
func (s *start) add(m, was journal.Measurement, faster, slower float64) {
	if s == nil {
		return
	}
	if b := s.took; m.Predicted {
		s.first.add(b.TTFT, b.TTFT, s.claim.TTFT, faster, slower)
		s.token.add(1/b.TokensPerSec, 1/b.TokensPerSec, 1/s.claim.TokensPerSec, faster, slower)
	} else {
		first, token := m.TTFT/b.TTFT, b.TokensPerSec/m.TokensPerSec
		s.first.add(first, first, was.TTFT/s.claim.TTFT, faster, math.Inf(1))
		s.token.add(token, token, s.claim.TokensPerSec/was.TokensPerSec, faster, math.Inf(1))
	}
}

func (s *start) same() bool      { return s == nil || s.first.same() && s.token.same() }
func (s *start) explained() bool { return s == nil || s.first.explained() && s.token.explained() }

// judge adds the check of the gain to the report.
func (v *figures) judge(s *start, was journal.Measurement) {
	if s == nil {
		return
	}
	v.report.First = s.took
	which := "the plan with which every deployment begins"
	if !s.beginsAsAlways {
		which = "another plan than the one with which deployments begin: what was changed before it is in the journal"
	}
	if s.took.Predicted {
		v.hold("gain", s.same(), "predicted again, the trajectory's start (%s): first token %s, a token %s; %s "+
			"has %s and %s", which, s.first, s.token, workspace.FilePerformance, journal.Seconds(s.claim.TTFT),
			journal.Seconds(1/s.claim.TokensPerSec))
		return
	}
	again := ""
	if !s.same() {
		again = disturbed(was) + measureAgainAdvice
	}
	v.hold("gain", s.same(), "measured again in turns with the trajectory's start (%s), %d times: %s of its time "+
		"to the first token are left, and %s of its time of a token; %s claims %.3g %% and "+
		"%.3g %%, and may claim %.3g %% less than the least%s", which, s.first.tries, s.first.shares(),
		s.token.shares(), workspace.FilePerformance, 100*was.TTFT/s.claim.TTFT,
		100*s.claim.TokensPerSec/was.TokensPerSec, 100*(1-1/(1+s.first.fasterMost)), again)
}

// shares returns the range of a figure that is a share.
func (f figure) shares() string {
	if f.least == f.most {
		return fmt.Sprintf("%.3g %%", 100*f.least)
	}
	return fmt.Sprintf("%.3g to %.3g %%", 100*f.least, 100*f.most)
}
