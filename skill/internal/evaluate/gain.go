package evaluate

import (
	"context"
	"fmt"
	"math"

	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/timing"
)

// start is the plan with which a trajectory begins. What a deployment has gained is said against it, so that a start that is claimed slower than it is makes a gain out of nothing. A
// prediction is held to what the clock says. Of measured figures it is the share of the start's time that is left with the plan that is reported: both plans are timed in turns here as
// they were there, so that a machine that is slower, or busy, changes neither share.
type start struct {
	recipe         journal.Recipe
	claim          journal.Measurement // the start's, of performance.json
	took           *journal.Measurement
	first, token   figure
	beginsAsAlways bool
}

// start finds the first plan that the journal has measured, and makes it again from its recipe. Where the plan that is reported is that one, nothing is claimed, and start is nil. Claims
// that cannot be held to anything are refused: ok is false.
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
		v.hold("gain", false, "the recipe of the first plan makes one of SHA-256 %.16s, the journal has measured %.16s", hash, v.state.Measured[0].Value.Plan)
		return nil, false
	case claim == nil:
		v.hold("gain", false, "the trajectory begins with figures of another kind, or for other prompts, than those that are reported")
		return nil, false
	}
	usual, err := journal.Hash(journal.Naive(v.info, v.state.Subject.SeqLen))
	mine, err2 := journal.Hash(recipe)
	return &start{recipe: recipe, claim: *claim, beginsAsAlways: err == nil && err2 == nil && usual == mine}, true
}

// take takes the figures of the plan, and those of the start beside it.
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

// add holds the claim to what was just taken, where the plan itself is said to have been.
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

// judge says in the report what was found.
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
		v.hold("gain", s.same(), "predicted again, the trajectory's start (%s): first token %s, a token %s; %s has %s and %s", which, s.first, s.token, journal.FilePerformance, journal.Seconds(s.claim.TTFT),
			journal.Seconds(1/s.claim.TokensPerSec))
		return
	}
	again := ""
	if !s.same() {
		again = disturbed(was) + measureAgainAdvice
	}
	v.hold("gain", s.same(), "measured again in turns with the trajectory's start (%s), %d times: %s of its time to the first token are left, and %s of its time of a token; %s claims %.3g %% and "+
		"%.3g %%, and may claim %.3g %% less than the least%s", which, s.first.tries, s.first.shares(), s.token.shares(), journal.FilePerformance, 100*was.TTFT/s.claim.TTFT,
		100*s.claim.TokensPerSec/was.TokensPerSec, 100*(1-1/(1+s.first.fasterMost)), again)
}

// shares is what was seen where a figure is the share of a time.
func (f figure) shares() string {
	if f.least == f.most {
		return fmt.Sprintf("%.3g %%", 100*f.least)
	}
	return fmt.Sprintf("%.3g to %.3g %%", 100*f.least, 100*f.most)
}
