// Package timing takes the speed of plans: by the clock on a virtual array, and in turns of two
// plans on a device whose time is real.
package timing

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/xdna2"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/models"
)

const (
	measuredTokens = 16 // decoded in one repetition

	// DefaultRepetitions is how often speed is measured.
	DefaultRepetitions = 5

	// measuredPrompt is long enough for products to dominate the time, and short enough to be
	// measured often.
	measuredPrompt = 256

	// MinMeasured is how long repetitions of a reported figure go on, at least. A model whose
	// tokens take microseconds is repeated more often, since a moment in which a thread does not
	// run is as long as all of its repetitions. maxRepetitions bounds that.
	MinMeasured    = 300 * time.Millisecond
	maxRepetitions = 500

	// DisturbedTimes is how many times as many repetitions are made while other processes are busy,
	// at most. They slow down repetitions for seconds at a time.
	DisturbedTimes = 3

	// NoteEvery is how much of a comparison is lost if the process is killed, at most. Comparisons
	// that take less are not interrupted by writing.
	NoteEvery = 20 * time.Second
)

// Virtual reports whether a device's time is that of a clock. The time that it takes here is how
// long this machine needs to emulate it.
func Virtual(info npu.Info) bool { return info.Kind == "sim" }

// Timer takes the speed of a deployment's plans and records it.
type Timer struct {
	Models      *models.Models
	Log         *journal.Log
	IDs         func(ctx context.Context) ([]int32, error) // the prompt, repeated as needed
	Step        func(format string, args ...any)           // reports the next step
	Repetitions int
	NoteEvery   time.Duration // how much of a comparison may be lost
}

// Measure returns the speed of a recipe's plan: as the clock predicts it on a virtual array, and
// elsewhere the median of repetitions after one that does not count. Phases that report figures
// repeat more often. Measure judges nothing.
func (t *Timer) Measure(ctx context.Context, p journal.Phase, r journal.Recipe) (journal.Measurement, error) {
	if !Virtual(t.Models.Info) {
		return t.measure(ctx, p, r)
	}
	hash, err := t.Models.Hash(r)
	if err != nil {
		return journal.Measurement{}, err
	}
	if m, ok := t.Log.State.LastMeasured(hash); ok && m.Predicted {
		return m, nil // the clock would return the same
	}
	m, err := t.predict(r)
	if err != nil {
		return m, err
	}
	m.Plan, m.Device = hash, t.Models.Info.Name
	return m, t.Log.Append(journal.KindMeasure, p, m)
}

func (t *Timer) predict(r journal.Recipe) (journal.Measurement, error) {
	p, err := t.Models.Plan(r)
	if err != nil {
		return journal.Measurement{}, err
	}
	clock := xdna2.NewClock(xdna2.HostNpukit())
	est, err := p.Plan.Estimate(clock)
	if err != nil {
		return journal.Measurement{}, err
	}
	return journal.Measurement{Positions: est.SeqLen, TTFT: est.TTFT, TokensPerSec: est.TokensPerSec, Predicted: true,
		Clock: clock.Host.Name, Note: est.HostNote, Estimate: est}, nil
}

// measure times one plan alone.
func (t *Timer) measure(ctx context.Context, p journal.Phase, r journal.Recipe) (journal.Measurement, error) {
	t.Step("measuring")
	s, err := t.stopwatch(ctx, p, r)
	if err != nil {
		return journal.Measurement{}, err
	}
	var list []journal.Repetition
	for want := t.Repetitions; s.more(len(list), want); {
		r, err := s.once(ctx)
		if err != nil {
			return journal.Measurement{}, err
		}
		list = append(list, r)
	}
	m, err := s.measurement(list)
	if err != nil {
		return m, err
	}
	m.Others = s.others.shareOrNil()
	return m, t.Log.Append(journal.KindMeasure, p, m)
}

// stopwatch times the plan of one recipe: the time from an empty session to the last logits of a
// prompt, and the time of tokens after it.
type stopwatch struct {
	*Timer
	phase      journal.Phase
	recipe     journal.Recipe
	prompt     []int32
	others     *Watch
	alternates bool           // with another plan
	warm       *models.Loaded // the model that has run once
}

func (t *Timer) stopwatch(ctx context.Context, p journal.Phase, r journal.Recipe) (*stopwatch, error) {
	ids, err := t.IDs(ctx)
	if err != nil {
		return nil, err
	}
	n := min(measuredPrompt, r.SeqLen-measuredTokens)
	if n < 1 {
		return nil, fmt.Errorf("skill: %d positions are too few to measure anything", r.SeqLen)
	}
	return &stopwatch{
		Timer: t, phase: p, recipe: r, others: NewWatch(),
		prompt: slices.Repeat(ids, n/len(ids)+1)[:n],
	}, nil
}

// more reports whether repetitions are missing. Figures that are reported, and do not only compare
// a change with the plan before it, take more of them.
func (s *stopwatch) more(have, want int) bool {
	if have < want || s.phase < journal.Finalise {
		return have < want
	}
	return have < DisturbedTimes*want && s.others.disturbed() ||
		have < maxRepetitions && time.Since(s.others.started) < MinMeasured
}

// once times one repetition, after a warm-up if the model has just been loaded, or if another one
// has had the contexts of an array since.
func (s *stopwatch) once(ctx context.Context) (journal.Repetition, error) {
	if err := s.warmUp(ctx); err != nil {
		return journal.Repetition{}, err
	}
	return s.run(ctx)
}

func (s *stopwatch) warmUp(ctx context.Context) error {
	l, err := s.Models.Open(ctx, s.recipe)
	if err != nil || l == s.warm && !(s.alternates && s.Models.Info.Array != "") {
		return err
	}
	_, err = s.run(ctx)
	s.warm = l
	return err
}

func (s *stopwatch) run(ctx context.Context) (journal.Repetition, error) {
	session, err := s.Models.Session(ctx, s.recipe)
	if err != nil {
		return journal.Repetition{}, err
	}
	var stats model.Stats
	opts := &model.GenerateOptions{
		MaxTokens: measuredTokens, Sampling: &model.Sampling{}, IgnoreEOS: true, Stats: &stats,
	}
	for _, err := range session.Generate(ctx, model.IDs(s.prompt), opts) {
		if err != nil {
			return journal.Repetition{}, err
		}
	}
	return journal.Repetition{First: stats.TTFT.Seconds(), Token: 1 / stats.TokensPerSecond()}, nil
}

// measurement returns the median of all repetitions, with their spread and their range.
func (s *stopwatch) measurement(list []journal.Repetition) (journal.Measurement, error) {
	hash, err := s.Models.Hash(s.recipe)
	if err != nil {
		return journal.Measurement{}, err
	}
	var first, token []float64
	for _, r := range list {
		first, token = append(first, r.First), append(token, r.Token)
	}
	m := journal.Measurement{
		Plan: hash, Device: s.Models.Info.Name, Positions: len(s.prompt), Clock: "wall", Repetitions: len(list),
	}
	m.TTFT, m.TTFTNoise = Median(first)
	m.TTFTRange = [2]float64{first[0], first[len(first)-1]}
	middle, noise := Median(token)
	m.TokensPerSec, m.DecodeNoise = 1/middle, noise
	m.TokenRange = [2]float64{token[0], token[len(token)-1]}
	return m, nil
}
