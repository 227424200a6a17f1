package xdna2

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Rule is one thing that must hold for a launch, a program or a set of programs, or the array does not run them, or runs them wrong.
//
// Ids beginning with R-L1, R-L2, R-DMA, R-CH, R-BD and S follow the survey of mlir-air that they come from; R-DIV, R-MAP and R-KER are ours.
type Rule struct {
	ID         string `json:"id"`
	Kind       string `json:"kind"`       // one of the keys of RuleKinds
	Confidence string `json:"confidence"` // "A": several independent data points, "B": one, "C": contradicted or partial
	Text       string `json:"text"`       // what must hold
	Symptom    string `json:"symptom"`    // what is seen where it does not
	Decided    bool   `json:"decided"`    // whether this package decides it
	Note       string `json:"note"`       // decided: how, where that is not plain; else: why not
	Source     string `json:"source"`
}

// RuleKinds says what stands behind the kinds of rules.
func RuleKinds() map[string]string {
	return map[string]string{
		"HW":   "a limit of the silicon",
		"CC":   "what the compiler does today",
		"API":  "a check in the builder of the kernel",
		"RT":   "a limit of driver or runtime",
		"MEAS": "an observed boundary whose mechanism is unknown",
		"INF":  "our inference from published data",
	}
}

// verdict is what a rule says of a launch or program.
type verdict struct {
	decided   bool
	failed    bool
	what      string // what was counted, in words
	wanted    int64
	available int64
	step      int64 // wanted must be a multiple of it
	unit      string
	launch    int // in a program: index of the launch to name, or -1
}

// undecided: the rule does not concern the launch, or a number that it needs is not stated.
func undecided() verdict { return verdict{launch: -1} }

func holds() verdict { return verdict{decided: true, launch: -1} }

// atMost holds when wanted is no more than what is available.
func atMost(wanted, available int, unit, format string, args ...any) verdict {
	v := verdict{decided: true, wanted: int64(wanted), available: int64(available), unit: unit, launch: -1}
	if wanted > available {
		v.failed, v.what = true, fmt.Sprintf(format, args...)
	}
	return v
}

// multiple holds when n is a multiple of step. A number that is not stated (0) decides nothing.
func multiple(n, step int, name, stepName string) verdict {
	if n <= 0 || step <= 0 {
		return undecided()
	}
	v := holds()
	if n%step != 0 {
		v.failed, v.wanted, v.available, v.step, v.unit = true, int64(n), int64(max(n-n%step, step)), int64(step), "elements"
		v.what = fmt.Sprintf("%s is %d, no multiple of %s", name, n, stepName)
		if fmt.Sprint(step) != stepName {
			v.what += fmt.Sprintf(" (%d)", step)
		}
	}
	return v
}

// refuse fails when bad is true; for what is not a matter of more or less.
func refuse(bad bool, format string, args ...any) verdict {
	v := holds()
	if bad {
		v.failed, v.what = true, fmt.Sprintf(format, args...)
	}
	return v
}

// all is the first verdict that failed, and else decided when any of them is.
func all(verdicts ...verdict) verdict {
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

// rule is a Rule with the code that decides it: of one launch by itself, of a program, or of neither.
type rule struct {
	Rule
	launch  func(*place) verdict
	program func(*linked) verdict
	advice  func(*place) string // what to do where no other tile helps
}

const mlirAIR = "mlir-air e972f2942"

// launchRule declares a rule of single launches; programRule one of programs; undecidedRule one that this package cannot decide.
func launchRule(id, kind, conf, text, symptom, note string, launch func(*place) verdict) rule {
	return rule{Rule: Rule{id, kind, conf, text, symptom, true, note, mlirAIR}, launch: launch}
}

func programRule(id, kind, conf, text, symptom, note string, program func(*linked) verdict) rule {
	return rule{Rule: Rule{id, kind, conf, text, symptom, true, note, mlirAIR}, program: program}
}

func undecidedRule(id, kind, conf, text, symptom, why string) rule {
	return rule{Rule: Rule{id, kind, conf, text, symptom, false, why, mlirAIR}}
}

// otherwise adds the advice that is left when no other mapping helps.
func (r rule) otherwise(advice func(*place) string) rule {
	r.advice = advice
	return r
}

// rules are all rules, section by section. Nobody changes them.
var rules = sync.OnceValue(func() []rule {
	return slices.Concat(kernelRules(), mappingRules(), memoryRules(), matmulRules(), gemvRules(), attentionRules(), vectorRules(),
		programRules(),
		undecidedRules())
})

// Rules lists every rule that is known, those that this package decides and those that it cannot, with the reason.
func Rules() []Rule {
	var list []Rule
	for _, r := range rules() {
		list = append(list, r.Rule)
	}
	return list
}

// RulesMarkdown is the table of rules for the documentation.
func RulesMarkdown() string {
	var b strings.Builder
	b.WriteString("| rule | kind | what must hold | else | decided |\n|---|---|---|---|---|\n")
	for _, r := range Rules() {
		decided := "yes"
		if !r.Decided {
			decided = "no"
		}
		if r.Note != "" {
			decided += ": " + r.Note
		}
		fmt.Fprintf(&b, "| %s | %s/%s | %s | %s | %s |\n", r.ID, r.Kind, r.Confidence, cell(r.Text), cell(r.Symptom), cell(decided))
	}
	b.WriteString("\nSource: Xilinx/mlir-air e972f2942 (kernel registry, builders, model notes), read and re-derived. Kinds: ")
	kinds := RuleKinds()
	names := []string{"HW", "CC", "API", "RT", "MEAS", "INF"}
	for i, k := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s", k, kinds[k])
	}
	b.WriteString(". A: several independent data points, B: one, C: contradicted or partial.\n")
	return b.String()
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
