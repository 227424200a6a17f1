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
	"github.com/npukit/npukit/skill/manual"
)

// Markdown describes phases, transitions, gates and thresholds as they are in the code. It is docs/phases.md.
func Markdown() string {
	p := &markdown.Page{}
	p.Linef("# Phases of a deployment\n")
	p.Linef("Written by `go test ./skill/internal/phasesdoc -run TestPhasesDocument -update` from package `skill`; changes belong there.\n")
	p.Linef("A deployment runs its phases in order. A phase begins when the one before it has passed, and passes when all of its gates have, on real data; nothing else sets a")
	p.Linef("verdict. A phase that is run again makes all that come after it pending.\n")
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
	p.Linef("| any | a gate fails, and a debug skill changes something | the same phase: its gates again, %d rounds in all at most |", journal.MaxRounds)
	p.Linef("| any | a gate fails, and no skill knows why | the user is asked, with two to four directions; unattended, the phase has failed |")
	p.Linef("| any, passed | the user redirects | the phase that is named, every gate from there on again |")
	p.Linef("| 7 evaluation | its gate fails | plan failed: it must not be used |")
	p.Linef("| 7 evaluation | the evaluator gives no verdict: the machine is busy, the model is not where it was, figures are those of other kernels, its process was killed | the same phase, when it is deployed again; the plan stays as it was |")
	p.Linef("| 7 evaluation, failed | only measured figures were refused, and it is deployed again | 6 finalise: they are taken again |\n")
	for _, ph := range journal.Phases() {
		info := ph.Info()
		p.Linef("## %s\n\n%s\n", ph.Title(), info.Purpose)
		p.Linef("- Skill: `%s`\n- Takes: %s\n- Gives: %s", info.Skill, strings.Join(info.Inputs, "; "), strings.Join(info.Outputs, "; "))
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

The paper gates absolute error, relative error and Pearson correlation at the end of phases 0 to 6, with values it does not publish. The published skills of the same
authors gate cosine of 0.99 or a rule over the best five tokens, and only log the largest errors. Here all three conditions hold in every phase up to 6, with thresholds that were
measured, and the model gates (divergence, likelihood, greedy, determinism) stand beside them. Correlation alone passes nothing: an output twice too large has 1.0.

`)
	p.Linef("## Thresholds\n\nAll are embedded in the program; `thresholds.json` in a workspace is a copy for reading. Atol is in units of the reference's root mean square, rtol is the mean")
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
		}{{"block", set.Formats[f].Block}, {fmt.Sprintf("block at %d", gates.FarMeasured), set.Formats[f].Far}, {"logits", set.Formats[f].Logits}} {
			p.Linef("| %s | %s | %.3g | %.3g | %.2g | %s |", f, b.name, b.Atol, b.Rtol, 1-b.Pearson, markdown.Cell(b.Note))
		}
	}
	p.Linef("\n| format | KL mean | KL p90 | first choices | NLL | from |\n|---|--:|--:|--:|--:|---|")
	for _, f := range formats {
		if m := set.Formats[f].Model; m.KLMean > 0 {
			p.Linef("| %s | %.3g | %.3g | %.3g | %.3g | %s |", f, m.KLMean, m.KLP90, m.Top1, m.NLL, markdown.Cell(m.Note))
		}
	}
	p.Linef("\nA change to the plan is kept when it is faster by more than %.2g %% of a predicted time. %s", 100*set.Gain, report.TurnsMarkdown(set.Spread))
	p.Linef("\n%s", evaluate.FiguresMarkdown())
	p.Linef("\n## Skills\n")
	for _, s := range manual.All() {
		p.Linef("- `%s`", s.Name)
	}
	return p.String()
}

// phaseDiagram is the way through the phases.
func phaseDiagram() string {
	var b strings.Builder
	for _, ph := range journal.Phases() {
		var gates []string
		for _, g := range ph.Info().Gates {
			gates = append(gates, g.Name)
		}
		fmt.Fprintf(&b, "%-24s gates: %s\n", ph.Title(), strings.Join(gates, ", "))
		if ph < journal.Evaluation {
			fmt.Fprintf(&b, "   | pass, approve          | fail -> debug skill -> gates again, or the user is asked\n   v                        | redirect -> any phase before\n")
		}
	}
	return b.String()
}
