package skill

import (
	"context"
	"fmt"
	"slices"
)

// Skill is a recipe for a piece of work in a deployment: a phase, an optimisation, or a failure that is known. What it reports is a claim; gates decide.
type Skill interface {
	// Name is unique; a skill of the user with the name of another one replaces it.
	Name() string
	// Trigger reports whether the skill may know the cause of a failure. Skills for phases and optimisations are called by name, and have none.
	Trigger(s Symptom) bool
	// Run does the work. An error ends the phase; a failure that was not solved is an Outcome.
	Run(ctx context.Context, env *Env) (Outcome, error)
}

// skills are the skills of a deployment: those of the user first, in their order, then the built-in ones that none of them replaces.
func skills(own []Skill) ([]Skill, error) {
	names := map[string]bool{}
	for i, s := range own {
		switch {
		case s == nil:
			return nil, fmt.Errorf("skill: Options.Skills: number %d is nil", i)
		case s.Name() == "":
			return nil, fmt.Errorf("skill: Options.Skills: number %d, a %T, has no name", i, s)
		case names[s.Name()]:
			return nil, fmt.Errorf("skill: Options.Skills: number %d: another skill is named %q too", i, s.Name())
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

// BuiltIn are the fifteen skills of the paper: the orchestrator, eight phases, three optimisations and three for failures.
//
// Source: Li et al., arXiv 2606.07586, table I.
func BuiltIn() []Skill {
	list := []Skill{orchestrator{}}
	for _, p := range Phases() {
		list = append(list, phaseSkill{p})
	}
	return append(list, mergeKernels{}, reuseBuffers{}, alignLayouts{}, runtimeFailure{}, bufferCorruption{}, routingCongestion{})
}
