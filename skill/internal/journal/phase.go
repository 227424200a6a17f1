package journal

import (
	"fmt"
	"slices"
)

// Phase is a stage of a deployment. Phases run in order; each begins when the one before it has passed, and passes when its gates have.
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

// Phases are all phases in order.
func Phases() []Phase {
	return []Phase{Reference, KernelValidation, SingleBlock, FullModel, Prefill, Decode, Finalise, Evaluation}
}

// PhaseInfo is what a phase is for, what it takes and gives, and what must hold at its end.
type PhaseInfo struct {
	Phase   Phase
	Name    string // "kernel-validation": as the journal and the command have it
	Skill   string // the name of the skill that does its work
	Purpose string
	Inputs  []string
	Gates   []GateInfo
	Outputs []string
	Needs   []Phase // phases that must have passed
}

// GateInfo describes a gate of a phase.
type GateInfo struct {
	Name string // "logits", or "kernel/..." for one gate each of many
	What string
}

// phaseTable is the deployment in a page. Names of gates are those of gatesOf.
func phaseTable() []PhaseInfo {
	paper := "absolute error, relative error and Pearson correlation, all three"
	model := []GateInfo{
		{GateLogits, "teacher-forced logits against the oracle: KL divergence, first choices, likelihood"},
		{GatePaper, "the same logits: " + paper},
		{GateGreedy, "32 tokens, decoded step by step; at the first difference each side's token is among the other's best five"},
		{GateDeterminism, "two prompts in turn give bitwise the same logits again"},
		{GateGolden, "the same against the reference outputs of another implementation, where there are some"},
	}
	tried := []GateInfo{
		{GateTried, "at least one change was tried; those kept passed the gates and are faster beyond noise"},
		{GateKernel + "/...", "kernels that are new in the plan, as in kernel validation"},
	}
	return []PhaseInfo{
		{
			Name: "reference", Skill: "build-cpu-reference", Purpose: "Know what is right, before any device computes anything.",
			Inputs: []string{"the checkpoint", "reference outputs of another implementation, if there are some (golden.safetensors)"},
			Gates: []GateInfo{
				{GateArchitecture, "the family is supported, and a first plan can be made for the device"},
				{GateWeights, "every tensor is there, and every weight is finite"},
				{GateOracle, "the oracle's logits step by step against those of one pass, " + paper},
				{GateOracleGolden, "the oracle against the golden outputs, where there are some: KL divergence, likelihood and " + paper},
			},
			Outputs: []string{"thresholds.json", "the first plan"},
		},
		{
			Name: "kernel-validation", Skill: "kernel-validation", Purpose: "Every kernel that the plan wants computes what it should, alone.",
			Inputs:  []string{"the plan"},
			Gates:   []GateInfo{{GateKernel + "/...", "each distinct op, shape, type and mapping of the plan against the oracle, every element, outputs poisoned before"}},
			Outputs: []string{"kernels/*.md", "for the array kernels.json: registry rows"},
		},
		{
			Name: "single-block", Skill: "single-block", Purpose: "The kernels together make one decoder layer.",
			Inputs: []string{"kernels that passed"},
			Gates: []GateInfo{
				{GateBlock, "what layer 0 adds to the residual stream against the oracle: " + paper},
				{GateBlockOps, "each op of layer 0 against what the oracle makes of the device's own inputs"},
				{GateBlockFar, "what layer 0 adds at the last positions of a session, behind a full cache: the same three"},
			},
			Outputs: []string{"reports/"},
		},
		{
			Name: "full-model", Skill: "full-model", Purpose: "All layers and the head: the model says what it should.",
			Inputs: []string{"a block that passed"}, Gates: model, Outputs: []string{"reports/"},
		},
		{
			Name: "prefill-optimisation", Skill: "prefill-optimisation", Purpose: "The first token comes sooner.",
			Inputs:  []string{"a model that passed", "the steps of the trajectory"},
			Gates:   slices.Concat(tried, model),
			Outputs: []string{"plan.json", "perf_opt_traj.md and .png"},
		},
		{
			Name: "decode-optimisation", Skill: "decode-optimisation", Purpose: "The tokens after it come faster.",
			Inputs:  []string{"the plan of prefill optimisation"},
			Gates:   slices.Concat(tried, model),
			Outputs: []string{"plan.json", "perf_opt_traj.md and .png"},
		},
		{
			Name: "finalise", Skill: "finalise-and-learn", Purpose: "Say what was reached, and what was learnt.",
			Inputs: []string{"the plan as it lies on the disk"},
			Gates: append([]GateInfo{{GatePlanFile, "plan.json is the plan that was decided, and no other; programs beyond the hardware contexts that are kept open, which run by turns, are a note"},
				{GateBlockFar, "layer 0 of this plan at the last positions of a session"}}, model...),
			Outputs: []string{"performance.md and .json", "lessons.md"},
		},
		{
			Name: "evaluation", Skill: "independent-evaluation", Purpose: "A new process that trusts nothing written here comes to the same result.",
			Inputs:  []string{"the workspace, untrusted"},
			Gates:   []GateInfo{{GateEvaluation, "the evaluator's verdict"}},
			Outputs: []string{"evaluation_report.md", "plan.json, accepted or failed"},
		},
	}
}

// Info describes the phase. It panics for a number that is none of the phases.
func (p Phase) Info() PhaseInfo {
	info := phaseTable()[p]
	info.Phase = p
	if p > Reference {
		info.Needs = []Phase{p - 1}
	}
	return info
}

// valid reports whether p is one of the phases.
func (p Phase) Valid() bool { return p >= Reference && p <= Evaluation }

// String is the phase's name.
func (p Phase) String() string {
	if !p.Valid() {
		return fmt.Sprintf("phase %d", int(p))
	}
	return phaseTable()[p].Name
}

// Title is the phase's number and name, for people: "3 full model".
func (p Phase) Title() string {
	name := []byte(p.String())
	for i, c := range name {
		if c == '-' {
			name[i] = ' '
		}
	}
	return fmt.Sprintf("%d %s", int(p), name)
}

// ParsePhase finds a phase by its name.
func ParsePhase(name string) (Phase, error) {
	i := slices.IndexFunc(phaseTable(), func(info PhaseInfo) bool { return info.Name == name })
	if i < 0 {
		return 0, fmt.Errorf("skill: no phase is called %q", name)
	}
	return Phase(i), nil
}

// MarshalText writes the name.
func (p Phase) MarshalText() ([]byte, error) {
	if !p.Valid() {
		return nil, fmt.Errorf("skill: there is no phase %d", int(p))
	}
	return []byte(p.String()), nil
}

// UnmarshalText is the inverse of MarshalText.
func (p *Phase) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePhase(string(text))
	return err
}

// MaxRounds is how often a phase is tried again after a skill has changed something.
const MaxRounds = 3
