package phasesdoc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/internal/markdown"
	"github.com/npukit/npukit/skill/internal/evaluate"
	"github.com/npukit/npukit/skill/internal/gates"
	"github.com/npukit/npukit/skill/internal/journal"
	"github.com/npukit/npukit/skill/internal/report"
	"github.com/npukit/npukit/skill/internal/timing"
	"github.com/npukit/npukit/skill/manual"
)

// Markdown returns docs/phases.md: phases, transitions, gates and thresholds.
func Markdown() string {
	p := &markdown.Page{}
	p.Linef("# Phases of a deployment\n")
	p.Linef("Written by `go test ./skill/internal/phasesdoc -run TestPhasesDocument -update` from package `skill`: " +
		"edit the code, not this file.\n")
	p.Linef("A deployment runs its phases in order. A phase starts when the one before it has passed, and " +
		"passes when\n" +
		"all its gates pass, on real data; nothing else sets a verdict. If a phase runs again, all later phases are\n" +
		"pending.\n")
	p.Linef("```")
	p.WriteString(phaseDiagram())
	p.Linef("```\n")
	p.Linef("| from | when | to |\n|---|---|---|")
	for _, ph := range journal.Phases() {
		after := "done: plan accepted"
		if ph < journal.Evaluation {
			after = (ph + 1).Title()
		}
		p.Linef("| %s | its gates pass, and the user approves | %s |", ph.Title(), after)
	}
	p.Linef("| any | a gate fails, and a debug skill changes something | the same phase: its gates again, at "+
		"most %d rounds |", journal.MaxRounds)
	p.Linef("| any | a gate fails, and no skill finds the cause | the user is asked, with two to four directions; " +
		"unattended, the phase fails |")
	p.Linef("| any, passed | the user redirects | that phase; its gates and all later ones run again |")
	p.Linef("| 7 evaluation | its gate fails | the plan is failed: it must not be used |")
	p.Linef("| 7 evaluation | there is no verdict: the machine is busy, the model has moved, the figures are " +
		"from other kernels, or the evaluator was killed | the same phase, if deployed again; the plan stays as it " +
		"was |")
	p.Linef("| 7 evaluation, failed | only measured figures failed, and the user deploys again | 6 finalise: " +
		"they are taken again |\n")
	for _, ph := range journal.Phases() {
		info := ph.Info()
		p.Linef("## %s\n\n%s\n", ph.Title(), info.Purpose)
		p.Linef("- Skill: `%s`\n- Inputs: %s\n- Outputs: %s", info.Skill, strings.Join(info.Inputs, "; "),
			strings.Join(info.Outputs, "; "))
		if len(info.Needs) > 0 {
			p.Linef("- Needs: %s", info.Needs[0].Title())
		}
		p.Linef("\n| gate | holds |\n|---|---|")
		for _, g := range info.Gates {
			p.Linef("| `%s` | %s |", g.Name, g.What)
		}
		p.Linef("")
	}
	p.WriteString(`## What differs from the paper's published code

The paper gates absolute error, relative error and Pearson correlation at the end of phases 0 to 6,
with values it does not publish. The published skills of the same authors gate a cosine of 0.99 or a
rule about the best five tokens, and only log the largest errors. Here all three conditions hold in
every phase up to 6, with measured thresholds, together with the model gates (divergence, likelihood,
greedy, determinism). Correlation alone passes nothing: an output twice too large has 1.0.

`)
	p.Linef("## Thresholds\n\nAll are embedded in the program; `thresholds.json` in a workspace is a copy for " +
		"reading. Atol is in units of the reference's root mean square, rtol is the mean")
	p.Linef("relative error.\n\n| format | output | atol | rtol | 1 - Pearson | from |\n|---|---|--:|--:|--:|---|")
	set := gates.Thresholds()
	formats := make([]string, 0, len(set.Formats))
	for f := range set.Formats {
		formats = append(formats, f)
	}
	slices.Sort(formats)
	for _, f := range formats {
		for _, b := range []struct {
			name string
			gates.PaperBounds
		}{{"block", set.Formats[f].Block}, {fmt.Sprintf("block at %d", gates.FarMeasured), set.Formats[f].Far},
			{"logits", set.Formats[f].Logits}} {
			p.Linef("| %s | %s | %.3g | %.3g | %.2g | %s |", f, b.name, b.Atol, b.Rtol, 1-b.Pearson,
				markdown.Cell(b.Note))
		}
	}
	p.Linef("\n| format | KL mean | KL p90 | first choices | NLL | from |\n|---|--:|--:|--:|--:|---|")
	for _, f := range formats {
		if m := set.Formats[f].Model; m.KLMean > 0 {
			p.Linef("| %s | %.3g | %.3g | %.3g | %.3g | %s |", f, m.KLMean, m.KLP90, m.Top1, m.NLL,
				markdown.Cell(m.Note))
		}
	}
	p.Linef("\nA change to the plan is kept if it is faster by more than %.2g %% of a predicted time, the "+
		"clock's held-out error. A change to the published form is kept if it costs nothing, at most %.2g %%, and no "+
		"change may slow the other phase. %s", 100*set.Gain, 100*timing.Costless, report.TurnsMarkdown(set.Spread))
	p.Linef("\n%s", evaluate.FiguresMarkdown())
	p.Linef("\n## Skills\n")
	for _, s := range manual.All() {
		p.Linef("- `%s`", s.Name)
	}
	return markdown.Fit(p.String())
}

// phaseDiagram returns the phases as a diagram.
func phaseDiagram() string {
	var b strings.Builder
	for _, ph := range journal.Phases() {
		var gates []string
		for _, g := range ph.Info().Gates {
			gates = append(gates, g.Name)
		}
		fmt.Fprintf(&b, "%-24s gates: %s\n", ph.Title(), strings.Join(gates, ", "))
		if ph < journal.Evaluation {
			fmt.Fprintf(&b, "   | pass, approve          | fail -> debug skill -> gates again, or the user is "+
				"asked\n   v                        | redirect -> any phase before\n")
		}
	}
	return b.String()
}
