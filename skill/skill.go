package skill

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/gate"
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

// Symptom is a failure as it shows: which gate, on what grounds, in which pattern.
type Symptom struct {
	Phase     Phase           `json:"phase"`
	Gate      string          `json:"gate,omitempty"` // that failed; "" when something else did
	Reasons   []gate.Reason   `json:"reasons,omitempty"`
	Diagnosis *gate.Diagnosis `json:"-"`                 // op by op, where there is one
	Pattern   []string        `json:"pattern,omitempty"` // of the diagnosis, in words
	Err       error           `json:"-"`
	Error     string          `json:"error,omitempty"` // the text of Err
	Recipe    Recipe          `json:"recipe"`          // of the plan that failed
}

// String is the symptom in a line.
func (s Symptom) String() string {
	var parts []string
	if s.Gate != "" {
		parts = append(parts, "gate "+s.Gate+" fails")
	}
	for _, r := range s.Reasons {
		parts = append(parts, r.Text)
	}
	if s.Error != "" {
		parts = append(parts, s.Error)
	}
	return strings.Join(append(parts, s.Pattern...), "; ")
}

// Outcome is what a skill came to.
type Outcome struct {
	// Cause is what a debug skill found, "" when it knows of nothing.
	Cause    string `json:"cause,omitempty"`
	Evidence string `json:"evidence,omitempty"`
	Remedy   string `json:"remedy,omitempty"` // what was done, or what to do
	// Fixed asks for the gates to run again: the skill has changed something.
	Fixed bool `json:"fixed,omitempty"`
	// Directions are ways on where the skill itself knows none.
	Directions []Direction `json:"directions,omitempty"`
}

// Hypothesis is a cause that would explain a symptom, and what its test found.
type Hypothesis struct {
	Cause     string `json:"cause"`
	Confirmed bool   `json:"confirmed"`
	Evidence  string `json:"evidence"`
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
