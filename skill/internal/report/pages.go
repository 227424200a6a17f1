package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/npukit/npukit/internal/markdown"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/skill/internal/journal"
)

// Plan returns plan.md: the model, the device, and the phases.
func Plan(s *journal.State) []byte {
	p := &markdown.Page{}
	u := s.Subject
	p.Linef("# Plan: %s on %s\n", u.Name, u.Device)
	p.Linef("%d layers, hidden %d, %d heads over %d of %d, FFN %d, vocabulary %d; %d positions.\n", u.Config.Layers,
		u.Config.Hidden, u.Config.Heads, u.Config.KVHeads,
		u.Config.HeadDim, u.Config.FFN, u.Config.Vocab, u.SeqLen)
	p.Linef("- Weights: SHA-256 %.16s\n- %s\n- Plan: %s, SHA-256 %.16s\n", u.Weights, u.Reference(), s.PlanStatus(),
		s.Plan)
	p.Linef("| phase | what for | gates |\n|---|---|---|")
	for _, ph := range journal.Phases() {
		info := ph.Info()
		var gates []string
		for _, g := range info.Gates {
			gates = append(gates, g.Name)
		}
		p.Linef("| %s | %s | %s |", ph.Title(), markdown.Cell(info.Purpose), strings.Join(gates, ", "))
	}
	p.Linef("\nThe plan now, where it differs from the naive one: %s", cmp.Or(s.Recipe.Describe(NaiveOf(s)), "nowhere"))
	return p.Bytes()
}

// NaiveOf returns the recipe that the deployment began with.
func NaiveOf(s *journal.State) journal.Recipe {
	r := journal.Recipe{SeqLen: s.Recipe.SeqLen, Chunk: s.Recipe.Chunk, Lengths: s.Recipe.Lengths}
	if s.Recipe.Prefill != nil {
		prefill, decode := plan.NaiveKnobs(), plan.NaiveKnobs()
		r.Prefill, r.Decode = &prefill, &decode
	} else {
		r.Chunk = min(journal.NaiveChunk, s.Recipe.SeqLen)
	}
	return r
}

// Progress returns progress.md: the state of every phase.
func Progress(s *journal.State) []byte {
	p := &markdown.Page{}
	p.Linef("# Progress: %s on %s\n\n%s\n", s.Subject.Name, s.Subject.Device, s.Subject.Reference())
	p.Linef("| phase | status | attempts | worked | gates |\n|---|---|--:|--:|---|")
	for _, ph := range s.Phases {
		passed := 0
		for _, g := range ph.Gates {
			if g.OK {
				passed++
			}
		}
		p.Linef("| %s | %s | %d | %.1f s | %d of %d passed |", ph.Phase.Title(), ph.Status, ph.Attempts, ph.Seconds,
			passed, len(ph.Gates))
	}
	for _, ph := range s.Phases {
		if len(ph.Gates) == 0 && ph.Reason == "" {
			continue
		}
		p.Linef("\n## %s\n", ph.Phase.Title())
		if ph.Reason != "" {
			p.Linef("Did not pass: %s\n", ph.Reason)
		}
		p.Linef("| gate | verdict | figures | report |\n|---|---|---|---|")
		for _, g := range ph.Gates {
			p.Linef("| %s | %s | %s | %s.txt |", g.Name, verdictWord(g.OK), markdown.Cell(g.Summary), g.Report)
		}
	}
	if len(s.Decisions) > 0 {
		p.Linef("\n## Decisions\n")
		for _, d := range s.Decisions {
			to := ""
			if d.Value.Action == journal.Redirect {
				to = fmt.Sprintf(" to %s %s", d.Value.Phase, d.Value.Skill)
			}
			p.Linef("- behind %s: %s%s %s", d.Phase, d.Value.Action, to, d.Value.Note)
		}
	}
	return p.Bytes()
}

func verdictWord(ok bool) string {
	if ok {
		return "pass"
	}
	return "FAIL"
}

// Issues returns issues.md.
func Issues(s *journal.State) []byte {
	p := &markdown.Page{}
	p.Linef("# Issues\n")
	if len(s.Issues) == 0 {
		p.Linef("None so far.")
	}
	for i, n := range s.Issues {
		p.Linef("## %d. %s\n", i+1, n.Value.Cause)
		p.Linef("- Phase: %s\n- Symptom: %s\n- Evidence: %s\n- Workaround: %s\n- Status: %s\n", n.Phase.Title(),
			n.Value.Symptom, n.Value.Evidence, n.Value.Workaround,
			n.Value.Status)
	}
	for _, q := range s.Questions {
		p.Linef("## Asked in %s\n\n%s\n", q.Phase.Title(), q.Value.Symptom)
		for _, d := range q.Value.Directions {
			p.Linef("- `%s`: %s", d.Name, d.What)
		}
		p.Linef("")
	}
	return p.Bytes()
}

// Lessons returns lessons.md, for other deployments.
func Lessons(s *journal.State) []byte {
	p := &markdown.Page{}
	p.Linef("# Lessons: %s on %s\n", s.Subject.Name, s.Subject.Device)
	p.Linef("## What made it faster\n")
	count := 0
	for _, a := range s.Attempts {
		if a.Value.Outcome == journal.Kept {
			p.Linef("- %s (%s): %s", a.Value.Step, a.Phase, a.Value.Why)
			count++
		}
	}
	if count == 0 {
		p.Linef("Nothing so far.")
	}
	p.Linef("\n## What did not\n")
	for _, a := range s.Attempts {
		if a.Value.Outcome != journal.Kept {
			p.Linef("- %s (%s, %s): %s", a.Value.Step, a.Phase, a.Value.Outcome, a.Value.Why)
		}
	}
	p.Linef("\n## What went wrong\n")
	if len(s.Issues) == 0 {
		p.Linef("Nothing.")
	}
	for _, i := range s.Issues {
		p.Linef("- %s: %s. %s (%s)", i.Value.Symptom, i.Value.Cause, i.Value.Workaround, i.Value.Status)
	}
	return p.Bytes()
}

// kernelSection writes a kernel's section of its page.
func kernelSection(b *strings.Builder, k journal.KernelNote) {
	verdict := "computes what it should"
	if !k.OK {
		verdict = "FAILS its gate"
	}
	fmt.Fprintf(b, "\n## %s\n\n`%s` %s.\n\n", k.Key, k.Op, verdict)
	fmt.Fprintf(b, "- Where: %s%s, %d launches in a prefill pass and a decode pass, on %s\n",
		strings.Join(k.Launches, ", "), map[bool]string{true: ", ..."}[k.Count > len(k.Launches)],
		k.Count, map[bool]string{true: "the host", false: "the device"}[k.On == plan.OnHost])
	fmt.Fprintf(b, "- Types: %v\n", k.Types)
	m := k.Mapping
	if m.Variant != "" || m.Tile != nil {
		fmt.Fprintf(b, "- Mapping: variant %s, tile %v, herd %v, layout %s\n", cmp.Or(m.Variant, "default"), m.Tile,
			m.Herd, cmp.Or(m.Layout, "default"))
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

// kernelRationale returns hints for tuning a kind of kernel of the array.
func kernelRationale(kind string) string {
	text, ok := map[string]string{
		"MatMul": "GEMM with many rows, GEMV with one. A GEMM waits for tiles: the largest that fits a core's 64 " +
			"KB, twice, reads each operand least often. A GEMV streams its " +
			"weights once, and nothing but their bytes counts. Pitfalls: N not a multiple of tile and herd " +
			"computes the rest as zeros; a K of more passes than a descriptor " +
			"counts is split.",
		"Attention": "Scores and sums stay in the cores. With a head dimension above 64 the kernel wants its " +
			"operands head by head. Pitfalls: a mask that is off by one, the wrong " +
			"KV head under grouped queries, and sequence-first data read as head-first, which has the same size.",
		"RMSNorm": "One row at a time; the sum of squares is what is sensitive. Pitfalls: eps, and the width: a " +
			"norm of heads has the head dimension and not the row.",
		"RoPE": "Half-split pairs. Pitfalls: interleaved pairs give fluent garbage; the table's rows are " +
			"positions, so that an offset of one shifts them all.",
		"SiLUMul": "Element-wise; gate and up have the same shape, so that swapping them gives no error but " +
			"wrong numbers.",
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

// How returns where the figures come from.
func (r *Performance) How() string {
	switch {
	case r.Predicted:
		return "predicted by the clock of the virtual array (host profile " + r.Clock + "), not measured"
	case r.Paired != nil:
		return fmt.Sprintf("measured in turns with the first plan, times of the median of %d turns",
			r.Paired.First.Count)
	}
	return fmt.Sprintf("measured, median of %d repetitions, after one that does not count", r.Repetitions)
}

// Spread returns the spread of the repetitions and how busy the machine was, or "" for a
// prediction.
func (r *Performance) Spread() string {
	if r.Predicted {
		return ""
	}
	return fmt.Sprintf("Spread of all %d repetitions: %.1f %% of the time to the first token (%s to %s), %.1f %% "+
		"of the time of a token (%s to %s). While it was measured, %s.",
		r.Repetitions, 100*r.TTFTNoise, journal.Seconds(r.TTFTRange[0]), journal.Seconds(r.TTFTRange[1]),
		100*r.DecodeNoise, journal.Seconds(r.TokenRange[0]),
		journal.Seconds(r.TokenRange[1]), journal.Busy(r.Others))
}

// pairedCells returns the cells of a comparison in a table.
func pairedCells(t *journal.Turns) string {
	change, noise := t.Percents()
	return fmt.Sprintf(" %s %% | %s %% |", change, noise)
}

// PerformancePage returns performance.md.
func PerformancePage(r *Performance) []byte {
	p := &markdown.Page{}
	p.Linef("# Performance: %s\n\nOn %s; %s. Prompt of %d tokens.\n", r.Model, r.Device, r.How(), r.Positions)
	first, token := "", ""
	if c := r.Paired; c != nil {
		p.Linef("| | first plan | this plan | change | noise |\n|---|--:|--:|--:|--:|")
		first, token = pairedCells(&c.First), pairedCells(&c.Token)
	} else {
		p.Linef("| | first plan | this plan |\n|---|--:|--:|")
	}
	was := func(f func(journal.Measurement) string) string {
		if r.First == nil {
			return "-"
		}
		return f(*r.First)
	}
	p.Linef("| time to the first token | %s | %s |%s",
		was(func(m journal.Measurement) string { return journal.Seconds(m.TTFT) }), journal.Seconds(r.TTFT), first)
	p.Linef("| time of a token | %s | %s |%s",
		was(func(m journal.Measurement) string { return journal.Seconds(1 / m.TokensPerSec) }),
		journal.Seconds(1/r.TokensPerSec), token)
	p.Linef("| tokens/s | %s | %.4g |%s",
		was(func(m journal.Measurement) string { return fmt.Sprintf("%.4g", m.TokensPerSec) }), r.TokensPerSec,
		strings.Repeat(" |", strings.Count(token, "|")))
	if spread := r.Spread(); spread != "" {
		p.Linef("\n%s", spread)
	}
	if r.Note != "" {
		p.Linef("\n%s.", r.Note)
	}
	if len(r.Rho) > 0 {
		p.Linef("\n| rho | prefill | decode |\n|---|--:|--:|")
		for _, x := range r.Rho {
			p.Linef("| %s | %.3f | %.3f |", x.Form, x.Prefill, x.Decode)
		}
		p.Linef("\nThe host has %.0f %% of the time to the first token and %.0f %% of a token's.", 100*r.HostShare,
			100*r.HostDecode)
	}
	for _, part := range []struct {
		name string
		list []ProgramTime
	}{{"Prefill", r.Prefill}, {"A token", r.Decode}} {
		if len(part.list) == 0 {
			continue
		}
		p.Linef("\n## %s, program by program\n\n| program | on | dispatches | written | run | read | together | "+
			"roofline |\n|---|---|--:|--:|--:|--:|--:|--:|", part.name)
		for _, t := range part.list {
			p.Linef("| %s | %s | %d | %d B | %s | %d B | %s | %s |", t.Program, t.On, t.Count, t.Write,
				journal.Seconds(t.Run), t.Read, journal.Seconds(t.Time), journal.Seconds(t.Roofline))
		}
	}
	if len(r.Baselines) > 0 {
		p.Linef("\n## Published for this model, under conditions of their own\n\n| source | time to the first " +
			"token | tokens/s | conditions |\n|---|--:|--:|---|")
		for _, b := range r.Baselines {
			p.Linef("| %s | %s | %.3g | %s |", b.Baseline, journal.Seconds(b.Row.TTFT), b.Row.TokensPerSec,
				markdown.Cell(b.Conditions))
		}
	}
	return p.Bytes()
}
