package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/npukit/npukit/gate"
	"github.com/npukit/npukit/gate/golden"
	"github.com/npukit/npukit/gate/plot"
	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/terminal"
	"github.com/npukit/npukit/model"
)

// print writes the verdict: a line for each gate, and the full report of each failed gate.
func (v *verifier) print() error {
	r := &v.result
	out := v.app.out
	if _, err := fmt.Fprintf(out, "%s on %s, number format %s\nreference: %s\nids: %s\n\n", r.Model, r.Device,
		r.Format, r.Reference, r.IDs); err != nil {
		return err
	}
	var rows [][]string
	for _, g := range r.Gates {
		word := "PASS"
		if !g.OK {
			word = "FAIL"
		}
		who := g.Of + " against " + g.Against
		if g.Against == "itself" {
			who = g.Of
		}
		rows = append(rows, []string{word, terminal.Printable(out, shorten(g.Name)), who, g.line})
	}
	if err := output.Table(out, "", rows); err != nil {
		return err
	}
	var b strings.Builder
	for _, g := range r.Gates {
		if !g.OK {
			fmt.Fprintf(&b, "\n%s, %s against %s\n%s", g.Name, g.Of, g.Against, indented(g.Report.String()))
		}
	}
	if r.Diagnosis != nil {
		fmt.Fprintf(&b, "\n%s", v.diagnosis())
	}
	_, err := fmt.Fprintf(out, "%s\n%s", terminal.Printable(out, b.String()), v.conclusion()) // already styled
	return err
}

// conclusion returns the last paragraph: the verdict and its limits.
func (v *verifier) conclusion() string {
	r := &v.result
	var b strings.Builder
	oracleFailed, deviceFailed := false, false
	for _, g := range r.Gates {
		if !g.OK {
			oracleFailed, deviceFailed = oracleFailed || g.Of == "oracle", deviceFailed || g.Of == "device"
		}
	}
	switch {
	case r.OK:
		fmt.Fprintf(&b, "%s: the device computes this model within its number format (%.1f s)\n",
			terminal.Styled(v.app.out, terminal.Bold, "PASS"), r.Seconds)
	case oracleFailed && deviceFailed:
		fmt.Fprintf(&b, "%s: neither oracle nor device agrees with the golden file: it was made from other "+
			"weights, the weights are damaged (npukit info --check looks), or the checkpoint is read "+
			"wrongly (%.1f s)\n",
			terminal.Styled(v.app.out, terminal.Bold, "FAIL"), r.Seconds)
	case oracleFailed:
		fmt.Fprintf(&b, "%s: the oracle does not agree with the golden file (%.1f s)\n",
			terminal.Styled(v.app.out, terminal.Bold, "FAIL"), r.Seconds)
	default:
		fmt.Fprintf(&b, "%s: the device does not compute this model (%.1f s)\n",
			terminal.Styled(v.app.out, terminal.Bold, "FAIL"),
			r.Seconds)
		if r.Diagnosis == nil {
			b.WriteString("--diagnose finds the first op that is wrong\n")
		}
	}
	for _, what := range r.NotRun {
		fmt.Fprintf(&b, "not run: %s\n", terminal.Printable(v.app.out, what))
	}
	if r.HuggingFace == "unproven" {
		b.WriteString("Agreement with Hugging Face's implementation is unproven: make a golden file with " +
			"scripts/golden.py and give it with --golden\n")
	}
	return b.String()
}

func indented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("  " + line)
	}
	return b.String()
}

// shorten cuts a name to the width of its column.
func shorten(name string) string {
	const width = 48
	r := []rune(strings.ReplaceAll(name, "\n", " "))
	if len(r) <= width {
		return string(r)
	}
	return string(r[:width-1]) + "…"
}

// figuresOf returns a report's figures in one line.
func figuresOf(r verifyReport) string {
	switch r := r.(type) {
	case gate.LogitsReport:
		return fmt.Sprintf("KL mean %.2g (at most %.2g), first choices %d of %d, NLL %+.3f %%",
			r.KLMean, r.Thresholds.KLMean, r.Agreed, r.Decided, 100*r.NLLChange)
	case golden.Report:
		var parts []string
		if r.Compared > 0 {
			parts = append(parts, fmt.Sprintf("KL mean %.2g (at most %.2g), first choices %d of %d", r.KLMean,
				r.Thresholds.KLMean, r.Agreed, r.Decided))
		}
		if r.Want.Tokens > 0 {
			parts = append(parts, fmt.Sprintf("NLL %.5f, reference %.5f, %+.3f %%", r.Got.Mean, r.Want.Mean,
				100*r.NLLChange))
		}
		return strings.Join(parts, ", ")
	case gate.GreedyReport:
		if !r.Diverged {
			return fmt.Sprintf("all %d tokens equal", r.Judged)
		}
		return fmt.Sprintf("the first %d of %d tokens equal", len(r.Tokens), r.Judged)
	case gate.DeterminismReport:
		return output.Count(r.Judged, "position") + " again"
	}
	return ""
}

// save writes the reports if --report is set.
func (v *verifier) save() error {
	if v.report == "" {
		return nil
	}
	for i, g := range v.result.Gates {
		kind, _, _ := strings.Cut(g.Name, ":")
		name := fmt.Sprintf("%02d-%s-%s", i+1, kind, g.Of)
		if err := gate.Save(v.report, name, plot.With(g.Report)); err != nil && !errors.Is(err, plot.ErrEmpty) {
			return err
		}
	}
	if v.result.Diagnosis != nil {
		if err := gate.Save(v.report, "trace", plot.With(v.trace)); err != nil {
			return err
		}
		if err := gate.Save(v.report, "diagnosis", v.result.Diagnosis); err != nil {
			return err
		}
	}
	return nil
}

// continuations prints the continuations of each prompt by the device and the reference.
func (v *verifier) continuations(ctx context.Context, m *model.Model, s *model.Session) error {
	const n = 24
	prompts := v.shown
	tok, err := m.Tokenizer()
	text := func(ids []int32) string {
		if err != nil {
			return strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]")
		}
		st := tok.Stream()
		st.Special = true
		var b strings.Builder
		for _, id := range ids {
			b.WriteString(st.Next(id))
		}
		return strings.ReplaceAll(b.String()+st.Flush(), "\n", "⏎")
	}
	for _, p := range prompts {
		k := min(n, m.Context()-len(p.ids))
		if k < 1 {
			continue
		}
		done := v.app.progress("continuing " + p.name)
		got, err := continued(ctx, s, p.ids, k)
		want := p.greedy
		if err == nil && want == nil {
			want, err = continued(ctx, v.ref.NewState(), p.ids, k)
		}
		done()
		if err != nil {
			return err
		}
		want = want[:min(len(want), k)]
		_, err = fmt.Fprintf(v.app.out, "%s\n  device     %s\n  reference  %s\n\n",
			terminal.Printable(v.app.out, shorten(p.name)), terminal.Printable(v.app.out, text(got)),
			terminal.Printable(v.app.out, text(want)))
		if err != nil {
			return err
		}
	}
	return nil
}

// continued returns the n tokens that greedy decoding appends to ids.
func continued(ctx context.Context, s gate.Stepper, ids []int32, n int) ([]int32, error) {
	var logits []float32
	err := s.Score(ctx, ids, func(_ int, row []float32) error { logits = row; return nil })
	var list []int32
	for err == nil {
		best := 0
		for i, x := range logits {
			if x > logits[best] {
				best = i
			}
		}
		if list = append(list, int32(best)); len(list) == n {
			break
		}
		logits, err = s.Step(ctx, list[len(list)-1])
	}
	return list, err
}

// gumbel returns a sample of the standard Gumbel distribution.
func gumbel(rng *rand.Rand) float64 { return -math.Log(rng.ExpFloat64()) }
