package skill

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/model/plan"
)

// page collects the lines of a document.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) {
	fmt.Fprintf(p, format, args...)
	p.WriteByte('\n')
}

func (p *page) bytes() []byte { return []byte(p.String()) }

// cell makes a text safe for a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s)
}

// planPage is the strategy: what is deployed, on what, by which phases.
func planPage(s *State) []byte {
	p := &page{}
	u := s.Subject
	p.line("# Plan: %s on %s\n", u.Name, u.Device)
	p.line("%d layers, hidden %d, %d heads over %d of %d, FFN %d, vocabulary %d; %d positions.\n", u.Config.Layers, u.Config.Hidden, u.Config.Heads, u.Config.KVHeads,
		u.Config.HeadDim, u.Config.FFN, u.Config.Vocab, u.SeqLen)
	p.line("- Weights: SHA-256 %.16s\n- %s\n- Plan: %s, SHA-256 %.16s\n", u.Weights, u.Reference(), s.PlanStatus(), s.Plan)
	p.line("| phase | what for | gates |\n|---|---|---|")
	for _, ph := range Phases() {
		info := ph.Info()
		var gates []string
		for _, g := range info.Gates {
			gates = append(gates, g.Name)
		}
		p.line("| %s | %s | %s |", ph.Title(), cell(info.Purpose), strings.Join(gates, ", "))
	}
	p.line("\nThe plan now, where it differs from the naive one: %s", cmp.Or(s.Recipe.Describe(s.naive()), "nowhere"))
	return p.bytes()
}

// naive is the recipe that the deployment began with.
func (s *State) naive() Recipe {
	r := Recipe{SeqLen: s.Recipe.SeqLen, Chunk: s.Recipe.Chunk, Lengths: s.Recipe.Lengths}
	if s.Recipe.Prefill != nil {
		prefill, decode := plan.NaiveKnobs(), plan.NaiveKnobs()
		r.Prefill, r.Decode = &prefill, &decode
	} else {
		r.Chunk = min(naiveChunk, s.Recipe.SeqLen)
	}
	return r
}

// progressPage says where the deployment stands.
func progressPage(s *State) []byte {
	p := &page{}
	p.line("# Progress: %s on %s\n\n%s\n", s.Subject.Name, s.Subject.Device, s.Subject.Reference())
	p.line("| phase | status | attempts | worked | gates |\n|---|---|--:|--:|---|")
	for _, ph := range s.Phases {
		passed := 0
		for _, g := range ph.Gates {
			if g.OK {
				passed++
			}
		}
		p.line("| %s | %s | %d | %.1f s | %d of %d passed |", ph.Phase.Title(), ph.Status, ph.Attempts, ph.Seconds, passed, len(ph.Gates))
	}
	for _, ph := range s.Phases {
		if len(ph.Gates) == 0 && ph.Reason == "" {
			continue
		}
		p.line("\n## %s\n", ph.Phase.Title())
		if ph.Reason != "" {
			p.line("Did not pass: %s\n", ph.Reason)
		}
		p.line("| gate | verdict | figures | report |\n|---|---|---|---|")
		for _, g := range ph.Gates {
			p.line("| %s | %s | %s | %s.txt |", g.Name, verdictWord(g.OK), cell(g.Summary), g.Report)
		}
	}
	if len(s.Decisions) > 0 {
		p.line("\n## Decisions\n")
		for _, d := range s.Decisions {
			to := ""
			if d.Value.Action == Redirect {
				to = fmt.Sprintf(" to %s %s", d.Value.Phase, d.Value.Skill)
			}
			p.line("- behind %s: %s%s %s", d.Phase, d.Value.Action, to, d.Value.Note)
		}
	}
	return p.bytes()
}

func verdictWord(ok bool) string {
	if ok {
		return "pass"
	}
	return "FAIL"
}

// issuesPage lists what went wrong, and what was found.
func issuesPage(s *State) []byte {
	p := &page{}
	p.line("# Issues\n")
	if len(s.Issues) == 0 {
		p.line("None so far.")
	}
	for i, n := range s.Issues {
		p.line("## %d. %s\n", i+1, n.Value.Cause)
		p.line("- Phase: %s\n- Symptom: %s\n- Evidence: %s\n- Workaround: %s\n- Status: %s\n", n.Phase.Title(), n.Value.Symptom, n.Value.Evidence, n.Value.Workaround,
			n.Value.Status)
	}
	for _, q := range s.Questions {
		p.line("## Asked in %s\n\n%s\n", q.Phase.Title(), q.Value.Symptom)
		for _, d := range q.Value.Directions {
			p.line("- `%s`: %s", d.Name, d.What)
		}
		p.line("")
	}
	return p.bytes()
}

// lessonsPage is what the next deployment should know.
func lessonsPage(s *State) []byte {
	p := &page{}
	p.line("# Lessons: %s on %s\n", s.Subject.Name, s.Subject.Device)
	p.line("## What made it faster\n")
	count := 0
	for _, a := range s.Attempts {
		if a.Value.Outcome == Kept {
			p.line("- %s (%s): %s", a.Value.Step, a.Phase, a.Value.Why)
			count++
		}
	}
	if count == 0 {
		p.line("Nothing so far.")
	}
	p.line("\n## What did not\n")
	for _, a := range s.Attempts {
		if a.Value.Outcome != Kept {
			p.line("- %s (%s, %s): %s", a.Value.Step, a.Phase, a.Value.Outcome, a.Value.Why)
		}
	}
	p.line("\n## What went wrong\n")
	if len(s.Issues) == 0 {
		p.line("Nothing.")
	}
	for _, i := range s.Issues {
		p.line("- %s: %s. %s (%s)", i.Value.Symptom, i.Value.Cause, i.Value.Workaround, i.Value.Status)
	}
	return p.bytes()
}

// kernelSection is a kernel's part of its page.
func kernelSection(b *strings.Builder, k KernelNote) {
	verdict := "computes what it should"
	if !k.OK {
		verdict = "FAILS its gate"
	}
	fmt.Fprintf(b, "\n## %s\n\n`%s` %s.\n\n", k.Key, k.Op, verdict)
	fmt.Fprintf(b, "- Where: %s%s, %d launches in a prefill pass and a decode pass, on %s\n", strings.Join(k.Launches, ", "), map[bool]string{true: ", ..."}[k.Count > len(k.Launches)],
		k.Count, map[bool]string{true: "the host", false: "the device"}[k.On == plan.OnHost])
	fmt.Fprintf(b, "- Types: %v\n", k.Types)
	m := k.Mapping
	if m.Variant != "" || m.Tile != nil {
		fmt.Fprintf(b, "- Mapping: variant %s, tile %v, herd %v, layout %s\n", orNone(m.Variant), m.Tile, m.Herd, orNone(m.Layout))
	}
	keys := []string{}
	for name := range k.Figures {
		keys = append(keys, name)
	}
	slices.Sort(keys)
	for _, name := range keys {
		fmt.Fprintf(b, "- %s: %.4g\n", name, k.Figures[name])
	}
	if k.Predicted > 0 {
		fmt.Fprintf(b, "- Predicted, which is no measurement: %.4g us alone, limited by %s\n", k.Predicted, k.Bound)
	}
	if k.Measured > 0 {
		fmt.Fprintf(b, "- Measured: %.4g us, median of %d runs\n", k.Measured, k.Runs)
	}
	if k.Note != "" {
		fmt.Fprintf(b, "- Note: %s\n", k.Note)
	}
}

// kernelRationale is what to know of a kind of kernel of the array before turning its knobs.
func kernelRationale(kind string) string {
	text, ok := map[string]string{
		"MatMul": "GEMM with many rows, GEMV with one. A GEMM waits for tiles: the largest that fits a core's 64 KB, twice, reads each operand least often. A GEMV streams its " +
			"weights once, and nothing but their bytes counts. Pitfalls: N not a multiple of tile and herd computes the rest as zeros; a K of more passes than a descriptor " +
			"counts is split.",
		"Attention": "Scores and sums stay in the cores. With a head dimension above 64 the kernel wants its operands head by head. Pitfalls: a mask that is off by one, the wrong " +
			"KV head under grouped queries, and sequence-first data read as head-first, which has the same size.",
		"RMSNorm": "One row at a time; the sum of squares is what is sensitive. Pitfalls: eps, and the width: a norm of heads has the head dimension and not the row.",
		"RoPE":    "Half-split pairs. Pitfalls: interleaved pairs give fluent garbage; the table's rows are positions, so that an offset of one shifts them all.",
		"SiLUMul": "Element-wise; gate and up have the same shape, so that swapping them gives no error but wrong numbers.",
		"Add":     "Element-wise, or a bias for each column. It is as fast as memory.",
		"KVWrite": "Moves keys and values to their positions in the cache: exact, or wrong.",
		"Embed":   "Reads rows of a table: exact, or wrong.",
		"Pick":    "Takes the rows whose logits are wanted: exact, or wrong.",
	}[kind]
	if !ok {
		return "Moves or converts data between kernels."
	}
	return text
}

// How says where the figures come from.
func (r *Performance) How() string {
	switch {
	case r.Predicted:
		return "predicted by the clock of the virtual array (host profile " + r.Clock + "), not measured"
	case r.Paired != nil:
		return fmt.Sprintf("measured in turns with the first plan, times of the median of %d turns", r.Paired.First.Count)
	}
	return fmt.Sprintf("measured, median of %d repetitions, after one that does not count", r.Repetitions)
}

// Spread says how far the repetitions were apart, and how busy the machine was; "" for a prediction.
func (r *Performance) Spread() string {
	if r.Predicted {
		return ""
	}
	return fmt.Sprintf("Spread of all %d repetitions: %.1f %% of the time to the first token (%s to %s), %.1f %% of the time of a token (%s to %s). While it was measured, %s.",
		r.Repetitions, 100*r.TTFTNoise, seconds(r.TTFTRange[0]), seconds(r.TTFTRange[1]), 100*r.DecodeNoise, seconds(r.TokenRange[0]),
		seconds(r.TokenRange[1]), busyText(r.Others))
}

// pairedCells are the cells of a change in a table.
func pairedCells(t *Turns) string {
	change, noise := t.Percents()
	return fmt.Sprintf(" %s %% | %s %% |", change, noise)
}

// performancePage is the report of phase 6.
func performancePage(r *Performance) []byte {
	p := &page{}
	p.line("# Performance: %s\n\nOn %s; %s. Prompt of %d tokens.\n", r.Model, r.Device, r.How(), r.Positions)
	first, token := "", ""
	if c := r.Paired; c != nil {
		p.line("| | first plan | this plan | change | noise |\n|---|--:|--:|--:|--:|")
		first, token = pairedCells(&c.First), pairedCells(&c.Token)
	} else {
		p.line("| | first plan | this plan |\n|---|--:|--:|")
	}
	was := func(f func(Measurement) string) string {
		if r.First == nil {
			return "-"
		}
		return f(*r.First)
	}
	p.line("| time to the first token | %s | %s |%s", was(func(m Measurement) string { return seconds(m.TTFT) }), seconds(r.TTFT), first)
	p.line("| time of a token | %s | %s |%s", was(func(m Measurement) string { return seconds(1 / m.TokensPerSec) }), seconds(1/r.TokensPerSec), token)
	p.line("| tokens/s | %s | %.4g |%s", was(func(m Measurement) string { return fmt.Sprintf("%.4g", m.TokensPerSec) }), r.TokensPerSec,
		strings.Repeat(" |", strings.Count(token, "|")))
	if spread := r.Spread(); spread != "" {
		p.line("\n%s", spread)
	}
	if r.Note != "" {
		p.line("\n%s.", r.Note)
	}
	if len(r.Rho) > 0 {
		p.line("\n| rho | prefill | decode |\n|---|--:|--:|")
		for _, x := range r.Rho {
			p.line("| %s | %.3f | %.3f |", x.Form, x.Prefill, x.Decode)
		}
		p.line("\nThe host has %.0f %% of the time to the first token and %.0f %% of a token's.", 100*r.HostShare, 100*r.HostDecode)
	}
	for _, part := range []struct {
		name string
		list []ProgramTime
	}{{"Prefill", r.Prefill}, {"A token", r.Decode}} {
		if len(part.list) == 0 {
			continue
		}
		p.line("\n## %s, program by program\n\n| program | on | dispatches | written | run | read | together | roofline |\n|---|---|--:|--:|--:|--:|--:|--:|", part.name)
		for _, t := range part.list {
			p.line("| %s | %s | %d | %d B | %s | %d B | %s | %s |", t.Program, t.On, t.Count, t.Write, seconds(t.Run), t.Read, seconds(t.Time), seconds(t.Roofline))
		}
	}
	if len(r.Baselines) > 0 {
		p.line("\n## Published for this model, under conditions of their own\n\n| source | time to the first token | tokens/s | conditions |\n|---|--:|--:|---|")
		for _, b := range r.Baselines {
			p.line("| %s | %s | %.3g | %s |", b.Baseline, seconds(b.Row.TTFT), b.Row.TokensPerSec, cell(b.Conditions))
		}
	}
	return p.bytes()
}
