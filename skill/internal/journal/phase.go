package journal

import (
	"fmt"
	"slices"
)

// Phase is a phase of a deployment. Phases run in order. A phase starts when the one before it has
// passed, and passes when all its gates have.
type Phase int

// The phases.
const (
	Reference Phase = iota
	KernelValidation
	SingleBlock
	FullModel
	Prefill
	Decode
	Finalise
	Evaluation
)

// Phases returns all phases in order.
func Phases() []Phase {
	return []Phase{Reference, KernelValidation, SingleBlock, FullModel, Prefill, Decode, Finalise, Evaluation}
}

// PhaseInfo describes a phase: its purpose, its inputs and outputs, and its gates.
type PhaseInfo struct {
	Phase   Phase
	Name    string // "kernel-validation": its name in the journal and the command
	Skill   string // the name of the skill that does its work
	Purpose string
	Inputs  []string
	Gates   []GateInfo
	Outputs []string
	Needs   []Phase // phases that must have passed
}

// GateInfo describes a gate of a phase.
type GateInfo struct {
	Name string // "logits", or "kernel/..." for the gates of kernels
	What string
}

// phaseTable describes the phases. The gates are those that package skill runs.
func phaseTable() []PhaseInfo {
	paper := "absolute error, relative error and Pearson correlation"
	model := []GateInfo{
		{GateLogits, "teacher-forced logits against the oracle: KL divergence, top-1, likelihood"},
		{GatePaper, "the same logits: " + paper},
		{GateGreedy, "32 tokens, decoded step by step; at the first difference each side's token is among the " +
			"other's best five"},
		{GateDeterminism, "two prompts in turn have bitwise the same logits again"},
		{GateGolden, "the same against the reference outputs of another implementation, if there are any"},
	}
	tried := []GateInfo{
		{GateTried, "at least one change was tried; the changes kept have passed the gates and are faster " +
			"beyond noise"},
		{GateKernel + "/...", "kernels that are new in the plan, as in kernel validation"},
	}
	return []PhaseInfo{
		{
			Name: "reference", Skill: "build-cpu-reference",
			Purpose: "Establish the reference before any device computes anything.",
			Inputs: []string{"the checkpoint", "reference outputs of another implementation, if there are some " +
				"(golden.safetensors)"},
			Gates: []GateInfo{
				{GateArchitecture, "the family is supported, and a first plan can be made for the device"},
				{GateWeights, "every tensor is there, and every weight is finite"},
				{GateOracle, "the oracle's logits step by step against those of one pass, " + paper},
				{GateOracleGolden, "the oracle against the golden outputs, where there are some: KL divergence, " +
					"likelihood and " + paper},
			},
			Outputs: []string{"thresholds.json", "the first plan"},
		},
		{
			Name: "kernel-validation", Skill: "kernel-validation",
			Purpose: "Every kernel of the plan is right on its own.",
			Inputs:  []string{"the plan"},
			Gates: []GateInfo{{GateKernel + "/...", "each distinct op, shape, type and mapping of the plan " +
				"against the oracle, every element, outputs poisoned before"}},
			Outputs: []string{"kernels/*.md", "for the array kernels.json: registry rows"},
		},
		{
			Name: "single-block", Skill: "single-block", Purpose: "The kernels make up a decoder layer.",
			Inputs: []string{"kernels that passed"},
			Gates: []GateInfo{
				{GateBlock, "what layer 0 adds to the residual stream against the oracle: " + paper},
				{GateBlockOps, "each op of layer 0 against what the oracle makes of the device's own inputs"},
				{GateBlockFar, "what layer 0 adds at the last positions of a session, behind a full cache: " +
					"the same three"},
			},
			Outputs: []string{"reports/"},
		},
		{
			Name: "full-model", Skill: "full-model", Purpose: "All layers and the head make up the model.",
			Inputs: []string{"a block that passed"}, Gates: model, Outputs: []string{"reports/"},
		},
		{
			Name: "prefill-optimisation", Skill: "prefill-optimisation", Purpose: "Reduce the time to the first token.",
			Inputs:  []string{"a model that passed", "the steps of the trajectory"},
			Gates:   slices.Concat(tried, model),
			Outputs: []string{"plan.json", "perf_opt_traj.md and .png"},
		},
		{
			Name: "decode-optimisation", Skill: "decode-optimisation",
			Purpose: "Reduce the time of the tokens after it.",
			Inputs:  []string{"the plan of prefill optimisation"},
			Gates:   slices.Concat(tried, model),
			Outputs: []string{"plan.json", "perf_opt_traj.md and .png"},
		},
		{
			Name: "finalise", Skill: "finalise-and-learn", Purpose: "Report the speed and what was learned.",
			Inputs: []string{"plan.json"},
			Gates: append([]GateInfo{{GatePlanFile, "plan.json is the plan that was decided, and no other; " +
				"programs beyond the hardware contexts that are kept open, which run by turns, are a note"},
				{GateBlockFar, "layer 0 of this plan at the last positions of a session"}}, model...),
			Outputs: []string{"performance.md and .json", "lessons.md"},
		},
		{
			Name: "evaluation", Skill: "independent-evaluation",
			Purpose: "A new process that trusts nothing in the workspace gets the same result.",
			Inputs:  []string{"the workspace, untrusted"},
			Gates:   []GateInfo{{GateEvaluation, "the evaluator's verdict"}},
			Outputs: []string{"evaluation_report.md", "plan.json, accepted or failed"},
		},
	}
}

// Info returns the description of the phase. It panics if p is not a phase.
func (p Phase) Info() PhaseInfo {
	info := phaseTable()[p]
	info.Phase = p
	if p > Reference {
		info.Needs = []Phase{p - 1}
	}
	return info
}

// Valid reports whether p is a phase.
func (p Phase) Valid() bool { return p >= Reference && p <= Evaluation }

// String returns the phase's name.
func (p Phase) String() string {
	if !p.Valid() {
		return fmt.Sprintf("phase %d", int(p))
	}
	return phaseTable()[p].Name
}

// Title returns the phase's number and name for people, such as "3 full model".
func (p Phase) Title() string {
	name := []byte(p.String())
	for i, c := range name {
		if c == '-' {
			name[i] = ' '
		}
	}
	return fmt.Sprintf("%d %s", int(p), name)
}

// ParsePhase returns the phase of a name.
func ParsePhase(name string) (Phase, error) {
	i := slices.IndexFunc(phaseTable(), func(info PhaseInfo) bool { return info.Name == name })
	if i < 0 {
		return 0, fmt.Errorf("skill: unknown phase %q", name)
	}
	return Phase(i), nil
}

// MarshalText returns the name.
func (p Phase) MarshalText() ([]byte, error) {
	if !p.Valid() {
		return nil, fmt.Errorf("skill: there is no phase %d", int(p))
	}
	return []byte(p.String()), nil
}

// UnmarshalText parses a name.
func (p *Phase) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePhase(string(text))
	return err
}

// MaxRounds is how often a phase is tried after a skill has changed something.
const MaxRounds = 3
