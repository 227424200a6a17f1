package xdna2

import (
	"fmt"
	"slices"
	"sync"
)

// Rule is a condition on a launch, a program or a set of programs. If it does not hold, the array
// does not run them or silently computes wrong results.
//
// IDs that begin with R-L1, R-L2, R-DMA, R-CH, R-BD and S follow a survey of mlir-air; R-DIV, R-MAP
// and R-KER are npukit's.
type Rule struct {
	ID string `json:"id"`
	// Kind is the evidence: "HW" a limit of the silicon, "CC" current compiler behavior, "API" a
	// check in the kernel's builder, "RT" a limit of driver or runtime, "MEAS" an observed boundary
	// with an unknown mechanism, "INF" an inference of npukit from published data.
	Kind string `json:"kind"`
	// "A": several independent data points, "B": one, "C": contradicted or partial
	Confidence string `json:"confidence"`
	Text       string `json:"text"`    // the condition
	Symptom    string `json:"symptom"` // observed if the condition is violated
	Decided    bool   `json:"decided"` // whether this package decides it
	Note       string `json:"note"`    // how the rule is decided, or why it is not
	Source     string `json:"source"`
}

// verdict is the result of applying a rule to a launch or program.
type verdict struct {
	decided   bool
	failed    bool
	what      string // description of the failure
	wanted    int64
	available int64
	step      int64 // wanted must be a multiple of it
	unit      string
	launch    int // in a program: index of the failing launch, or -1
}

// undecided is the verdict of a rule that does not apply, or that needs a number that is not
// stated.
func undecided() verdict { return verdict{launch: -1} }

func holds() verdict { return verdict{decided: true, launch: -1} }

// atMost holds if wanted <= available.
func atMost(wanted, available int, unit, format string, args ...any) verdict {
	v := verdict{decided: true, wanted: int64(wanted), available: int64(available), unit: unit, launch: -1}
	if wanted > available {
		v.failed, v.what = true, fmt.Sprintf(format, args...)
	}
	return v
}

// multiple holds if n is a multiple of step. It is undecided if either is not stated (0).
func multiple(n, step int, name, stepName string) verdict {
	if n <= 0 || step <= 0 {
		return undecided()
	}
	v := holds()
	if n%step != 0 {
		v.failed, v.wanted, v.available, v.step, v.unit = true, int64(n), int64(max(n-n%step, step)), int64(step),
			"elements"
		v.what = fmt.Sprintf("%s is %d, not a multiple of %s", name, n, stepName)
		if fmt.Sprint(step) != stepName {
			v.what += fmt.Sprintf(" (%d)", step)
		}
	}
	return v
}

// failIf fails if bad is true. Use it for conditions that are not about quantities.
func failIf(bad bool, format string, args ...any) verdict {
	v := holds()
	if bad {
		v.failed, v.what = true, fmt.Sprintf(format, args...)
	}
	return v
}

// firstFailure returns the first verdict that failed, or else a decided one if there is any.
func firstFailure(verdicts ...verdict) verdict {
	result := undecided()
	for _, v := range verdicts {
		if v.failed {
			return v
		}
		if v.decided {
			result = v
		}
	}
	return result
}

// rule is a Rule with the code that decides it, for a launch or a program. An undecided rule has
// neither.
type rule struct {
	Rule
	launch  func(*place) verdict
	program func(*linked) verdict
	advice  func(*place) string // advice if no other mapping fits
}

const mlirAIR = "mlir-air e972f2942"

// launchRule declares a rule on single launches.
func launchRule(id, kind, conf, text, symptom, note string, launch func(*place) verdict) rule {
	return rule{Rule: Rule{id, kind, conf, text, symptom, true, note, mlirAIR}, launch: launch}
}

// programRule declares a rule on programs.
func programRule(id, kind, conf, text, symptom, note string, program func(*linked) verdict) rule {
	return rule{Rule: Rule{id, kind, conf, text, symptom, true, note, mlirAIR}, program: program}
}

// undecidedRule declares a rule that this package cannot decide.
func undecidedRule(id, kind, conf, text, symptom, why string) rule {
	return rule{Rule: Rule{id, kind, conf, text, symptom, false, why, mlirAIR}}
}

// withAdvice sets the advice for launches that no other mapping fixes.
func (r rule) withAdvice(advice func(*place) string) rule {
	r.advice = advice
	return r
}

// rules returns all rules by section. Callers must not modify them.
var rules = sync.OnceValue(func() []rule {
	return slices.Concat(kernelRules(), mappingRules(), memoryRules(), matmulRules(), gemvRules(), attentionRules(),
		vectorRules(),
		programRules(),
		undecidedRules())
})

// Rules returns all known rules, including those that this package cannot decide; their Note has
// the reason.
func Rules() []Rule {
	var list []Rule
	for _, r := range rules() {
		list = append(list, r.Rule)
	}
	return list
}
