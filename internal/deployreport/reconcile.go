package main

import (
	"fmt"

	"github.com/npukit/npukit/skill"
)

// change is one that upstream's own history of Llama-3.2-1B has a figure for.
type change struct {
	what, published, source string
	phase                   skill.Phase // in which ours are decided
	token                   bool        // of a token, and not of the first
	steps                   []string    // ours that do the same
	why                     string      // the figures differ, or there is nothing here
}

// changes of the reference. Source: Xilinx/mlir-air e972f2942, programming_examples/llms and
// .claude/skills, as measured there; none of it was measured by us.
func changes() []change {
	const profile = "llama32_1b/docs/profile.md"
	return []change{
		{"merging launches into one ELF: from 10 calls a layer to 3",
			"no time of its own; a dispatch costs about 100 us", profile, skill.Prefill, false,
			[]string{"kernels after attention merged", "kernels before attention merged"},
			"before the merges a pass has more programs than hardware contexts are kept alive, 8, and contexts are " +
				"opened again and again; merged, they fit"},
		{"weights in buffer objects of each layer", "-240 ms", profile, skill.Prefill, false,
			[]string{"buffer objects of each layer, zero copy"},
			"our first plan makes and fills an object for every argument of every call; theirs had objects, and " +
				"rewrote the weights"},
		{"intermediates are not synced", "-150 ms", profile, skill.Prefill, false,
			[]string{"transfers of weights and intermediates skipped"},
			"ours leaves weights out too, which theirs has in the line above"},
		{"LM head of the last row, GEMV in the place of a GEMM", "-150 ms", profile, skill.Prefill, false,
			[]string{"LM head of the last row only"}, "the same change"},
		{"no conversions to BF16 and back", "-110 ms", profile, skill.Prefill, false, nil,
			"Python's; a plan here has none to begin with"},
		{"host work cleaned up", "0.67 s to 0.24 s", profile, skill.Prefill, false, nil,
			"Python's; our host is another, with figures of its own"},
		{"GEMM of higher precision by the registry", "1392 ms to 1217 ms", "commit 2520a0afa", skill.Prefill, false,
			[]string{"tiles for the shape, fused attention", "more of the array used"},
			"ours comes from default tiles on a part of the array and has fused attention in it; theirs is the " +
				"last refinement of tuned tiles"},
		{"decode: LM head from the host to the array", "258 ms to 13.5 ms a token", profile, skill.Decode, true, nil,
			"our first plan has it on the array: the host's would be slower, and nothing is learnt by it"},
		{"decode: kernels after attention rewritten, 8 launches to 3 inside one ELF", "91 ms to 78 ms a token",
			"commit 462bf133b", skill.Decode, true,
			[]string{"tiles for the shape, fused attention", "kernels after attention merged",
				"kernels before attention merged"},
			"fused kernels come with the merge where the model's shape allows them; most of it is that contexts " +
				"are not opened again within a token"},
		{"decode: weights stay where they are", "<1 % from syncs; reuse of objects is said to be the largest gain",
			"phase-5-decode-optimization/SKILL.md", skill.Prefill, true,
			[]string{"buffer objects of each layer, zero copy", "transfers of weights and intermediates skipped"},
			"ours begins with objects made for each call; what the runtime does is decided in prefill " +
				"optimisation, for both"},
	}
}

// reconcile compares the steps of Llama-3.2-1B with the history that upstream published.
func reconcile(r *report, w walked) {
	first, last := w.steps[0], w.last()
	r.Text("## Compared with the history of the reference\n\nUpstream describes how Llama-3.2-1B became fast " +
		"(Xilinx/mlir-air e972f2942, measured there). The steps here are of the same kind, but start earlier: the " +
		"first plan here runs scalar kernels, and creates a hardware context and all buffers for every call. No such " +
		"model was ever measured; theirs starts about where ours is once contexts are reused.\n\n")
	r.Table([][]string{
		{"", "published", "here, predicted"},
		{"prefill, from the first to the last", "18.67 s to 1.30 s, 14 times as fast",
			fmt.Sprintf("%s to %s, %.0f times as fast", duration(first.TTFT), duration(last.TTFT),
				first.TTFT/last.TTFT)},
		{"prefill, once contexts are reused", "-", behind(w, skill.Prefill, "context reused across calls",
			func(f skill.Foreseen) float64 { return f.TTFT }, last.TTFT)},
		{"a token, from the first to the last", "about 500 ms to 92 ms, 5.4 times as fast",
			fmt.Sprintf("%s to %s, %.0f times as fast", duration(first.Token), duration(last.Token),
				first.Token/last.Token)},
		{"a token, once contexts are reused", "-", behind(w, skill.Prefill, "context reused across calls",
			func(f skill.Foreseen) float64 { return f.Token }, last.Token)},
	})
	rows := [][]string{{"change upstream", "published", "our steps", "predicted", "why they differ", "source"}}
	for _, c := range changes() {
		steps, predicted := "-", "-"
		if len(c.steps) > 0 {
			steps = ""
			sum := 0.0
			for i, name := range c.steps {
				if i > 0 {
					steps += "; "
				}
				steps += name
				if before, after, ok := w.find(c.phase, name); ok && after.Outcome == skill.Kept {
					if c.token {
						sum += after.Token - before.Token
					} else {
						sum += after.TTFT - before.TTFT
					}
				}
			}
			predicted = fmt.Sprintf("%+.4g ms", 1e3*sum)
		}
		rows = append(rows, []string{c.what, c.published, steps, predicted, c.why, c.source})
	}
	r.Table(rows)
}

// behind is the way from a step to the end.
func behind(w walked, p skill.Phase, step string, time func(skill.Foreseen) float64, last float64) string {
	_, s, ok := w.find(p, step)
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%s to %s, %.1f times as fast", duration(time(s)), duration(last), time(s)/last)
}
