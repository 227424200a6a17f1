package skill

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"
)

// Options are the choices of a deployment. The zero value of a field means its default.
type Options struct {
	Dir    string        // the workspace; must be set
	SeqLen int           // positions of a session; default the model's context, and 2048 at most
	Budget time.Duration // for each Run; what does not fit is left for the next; default no limit
	Golden string        // reference outputs of another implementation; default golden.safetensors beside the model, else those that package golden carries for its weights, if there are any

	Approve  ApproveFunc // at the end of each phase; default everything is approved
	Ask      AskFunc     // about a failure that no skill knows; default the deployment stops there
	Observe  func(Event) // sees progress, on the goroutine that runs; default nobody
	Skills   []Skill     // more skills, or others in the place of built-in ones
	Gates    []Gate      // more gates; none can be taken away
	Evaluate Evaluator   // of phase 7; default there is none, and the plan stays a draft

	// Positions is how many ids the gates score at most, 32 or more, and Repetitions how often speed is measured, 3 times or more. Defaults: 256, and 5.
	Positions   int
	Repetitions int

	held  io.Closer     // the workspace's lock, of a caller that has it
	notes time.Duration // how much work is worth a record, for tests; 0 means partsFrom and noteEvery
	plain bool          // no pictures, for tests that look at none: drawing them is most of what such a test does
}

// Defaults of Options.
const (
	defaultSeqLen      = 2048
	defaultPositions   = 256
	defaultRepetitions = 5
)

// Of fewer positions the two standard errors by which likelihoods may change are themselves too uncertain. Measured on npu/cpu in BF16 over every number of the first ids of five tiny models
// from 16 on: the right device was refused once in 181, at less than 24, and never in 136 from 24 on.
const leastPositions, leastRepetitions = 32, 3

// partsFrom is how long a part of a gate must take to be noted.
func (o *Options) partsFrom() time.Duration { return cmp.Or(o.notes, partsFrom) }

// noteEvery is how much time turns must have taken to be noted.
func (o *Options) noteEvery() time.Duration { return cmp.Or(o.notes, noteEvery) }

func (o *Options) fill() error {
	if o.Positions == 0 {
		o.Positions = defaultPositions
	}
	if o.Repetitions == 0 {
		o.Repetitions = defaultRepetitions
	}
	switch {
	case o.SeqLen < 0 || o.Budget < 0:
		return fmt.Errorf("skill: Options.SeqLen is %d and Budget %v: want 0 for the default, or more", o.SeqLen, o.Budget)
	case o.Positions < leastPositions || o.Repetitions < leastRepetitions:
		return fmt.Errorf("skill: Options.Positions is %d and Repetitions %d: want at least %d and %d, or gates and figures say nothing", o.Positions, o.Repetitions, leastPositions,
			leastRepetitions)
	}
	names := gateNames()
	for _, g := range o.Gates {
		if g.Name == "" || g.Check == nil || len(g.Phases) == 0 || slices.Contains(names, g.Name) || isKernelGate(g.Name) ||
			slices.ContainsFunc(g.Phases, func(p Phase) bool { return !p.valid() || p == Evaluation }) {
			return fmt.Errorf("skill: Options.Gates: gate %q needs a name of its own, a Check, and phases from reference to finalise", g.Name)
		}
		names = append(names, g.Name)
	}
	return nil
}
