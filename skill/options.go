package skill

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/timing"
)

// Options are the options of a deployment. The zero value of a field means its default.
type Options struct {
	Dir    string        // the workspace; must be set
	SeqLen int           // positions of a session; default the model's context, and at most 2048
	Budget time.Duration // for each Run; the next Run resumes; default no limit

	// Golden is the path of reference outputs of another implementation. The default is
	// golden.safetensors in the model's folder, or those that package golden has for its weights,
	// or none.
	Golden string

	// Approve is called with the report of every phase that has passed. By default, all phases are
	// approved.
	Approve func(ctx context.Context, r PhaseReport) (Decision, error)
	// Ask is called with a failure that no skill knows. By default, the deployment stops.
	Ask func(ctx context.Context, q Question) (Choice, error)
	// Observe receives progress, on the goroutine that runs.
	Observe func(Event)

	Skills   []Skill   // more skills; one with the name of a built-in skill replaces it
	Gates    []Gate    // more gates; the built-in ones always run
	Evaluate Evaluator // the last phase; without it the plan stays a draft

	// Positions is how many ids the gates score, at most; it must be at least 32, and the default
	// is 256. Repetitions is how often speed is measured; it must be at least 3, and the default is
	// 5.
	Positions   int
	Repetitions int

	held  io.Closer     // the workspace's lock, if the caller has it
	notes time.Duration // how much work is worth a record, for tests; 0 for the defaults
	plain bool          // no plots, for tests: drawing them takes most of a test's time
}

// defaultPositions is how many ids the gates score.
const defaultPositions = 256

// With fewer positions, the bound of the likelihood, which is two standard errors, is not reliable.
// Source: every number of ids from 16 on, of five tiny models on npu/cpu in BF16. The right device
// failed once in 181 runs below 24 ids, and never in 136 runs from 24 on.
const minPositions, minRepetitions = 32, 3

// partsFrom returns how long a part of a gate must take to be recorded.
func (o *Options) partsFrom() time.Duration { return cmp.Or(o.notes, gates.PartsFrom) }

// noteEvery returns how long turns must take to be recorded.
func (o *Options) noteEvery() time.Duration { return cmp.Or(o.notes, timing.NoteEvery) }

// fill sets defaults and returns an error if an option is not valid.
func (o *Options) fill() error {
	if o.Positions == 0 {
		o.Positions = defaultPositions
	}
	if o.Repetitions == 0 {
		o.Repetitions = timing.DefaultRepetitions
	}
	switch {
	case o.SeqLen < 0 || o.Budget < 0:
		return fmt.Errorf("skill: Options.SeqLen is %d and Budget %v: want 0 for the default, or more", o.SeqLen,
			o.Budget)
	case o.Positions < minPositions || o.Repetitions < minRepetitions:
		return fmt.Errorf("skill: Options.Positions is %d and Repetitions %d: want at least %d and %d for reliable "+
			"gates and figures", o.Positions, o.Repetitions, minPositions, minRepetitions)
	}
	names := journal.GateNames()
	for _, g := range o.Gates {
		if g.Name == "" || g.Check == nil || len(g.Phases) == 0 || slices.Contains(names, g.Name) ||
			journal.IsKernelGate(g.Name) ||
			slices.ContainsFunc(g.Phases, func(p Phase) bool { return !p.Valid() || p == Evaluation }) {
			return fmt.Errorf("skill: Options.Gates: gate %q needs a name of its own, a Check, and phases from "+
				"reference to finalise", g.Name)
		}
		names = append(names, g.Name)
	}
	return nil
}
