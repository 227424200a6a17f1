package skill

import (
	"context"
	"fmt"
	"slices"
)

// Skill does a piece of work in a deployment: a phase, an optimisation, or the cause of a failure.
// Its outcome is a claim; the gates decide.
type Skill interface {
	// Name returns a unique name. A user's skill replaces the built-in skill of its name.
	Name() string
	// Trigger reports whether the skill may know the cause of a failure. It returns false for
	// skills of phases and optimisations, which are called by name.
	Trigger(s Symptom) bool
	// Run does the work. An error ends the phase; a failure without a solution is an Outcome.
	Run(ctx context.Context, env *Env) (Outcome, error)
}

// skills returns the skills of a deployment: the user's, in their order, and the built-in ones that
// they do not replace.
func skills(own []Skill) ([]Skill, error) {
	names := map[string]bool{}
	for i, s := range own {
		switch {
		case s == nil:
			return nil, fmt.Errorf("skill: Options.Skills: number %d is nil", i)
		case s.Name() == "":
			return nil, fmt.Errorf("skill: Options.Skills: number %d, a %T, has no name", i, s)
		case names[s.Name()]:
			return nil, fmt.Errorf("skill: Options.Skills: number %d: another skill has the name %q", i, s.Name())
		}
		names[s.Name()] = true
	}
	list := slices.Clone(own)
	for _, s := range BuiltIn() {
		if !names[s.Name()] {
			list = append(list, s)
		}
	}
	return list, nil
}

// named returns the skill of a name, or nil.
func named(list []Skill, name string) Skill {
	for _, s := range list {
		if s.Name() == name {
			return s
		}
	}
	return nil
}

// BuiltIn returns the fifteen skills of the paper: the orchestrator, eight phases, three
// optimisations and three kinds of failure.
//
// Source: Li et al., arXiv 2606.07586, table I.
func BuiltIn() []Skill {
	list := []Skill{orchestrator{}}
	for _, p := range Phases() {
		list = append(list, phaseSkill{p})
	}
	return append(list, mergeKernels{}, reuseBuffers{}, alignLayouts{}, runtimeFailure{}, bufferCorruption{},
		routingCongestion{})
}
