package main

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/npukit/npukit/internal/costfit"
	"github.com/npukit/npukit/internal/markdown"
	"github.com/npukit/npukit/internal/published"
	"github.com/npukit/npukit/internal/rho"
	"github.com/npukit/npukit/internal/validation"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/xdna2"
)

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
func signed(v float64) string  { return fmt.Sprintf("%+.1f %%", 100*v) }

// kernelTimes compares the cost model with kernels whose shapes its fit has not seen.
func kernelTimes(r *report) error {
	rows := costfit.Rows(xdna2.PublishedRegistry().Rows())
	h := costfit.HoldOut(rows, "")
	var medians, tails []float64
	for salt := range 20 {
		other := costfit.HoldOut(rows, fmt.Sprint("other ", salt))
		medians, tails = append(medians, other.Quantile(0.5)), append(tails, other.Quantile(0.9))
	}
	r.Text(`## Times of single kernels

The median error on kernels that the fit has not seen is %s, the 90th percentile %s (bounds: 8 and
25 %%). The cost model was fitted to half of the shapes, %d rows, and predicts the other half, %d
rows; all rows of a shape are in one half. Over 20 other splits the median is %s to %s and the 90th
percentile %s to %s.

`, percent(h.Quantile(0.5)), percent(h.Quantile(0.9)), h.Fitted, len(h.Rows),
		percent(slices.Min(medians)), percent(slices.Max(medians)),
		percent(slices.Min(tails)), percent(slices.Max(tails)))
	table := [][]string{{"kernel", "rows", "median error", "90th percentile", "worst"}}
	line := func(name string, kernels ...xdna2.Kernel) {
		n := 0
		for _, row := range h.Rows {
			if len(kernels) == 0 || slices.Contains(kernels, row.Row.Kernel) {
				n++
			}
		}
		if n > 0 {
			table = append(table, []string{name, fmt.Sprint(n), percent(h.Quantile(0.5, kernels...)),
				percent(h.Quantile(0.9, kernels...)), percent(h.Quantile(1, kernels...))})
		}
	}
	line("all")
	for _, k := range []xdna2.Kernel{xdna2.GEMM, xdna2.GEMV, xdna2.Attention, xdna2.Add, xdna2.SiLUMul, xdna2.GELU,
		xdna2.RMSNorm, xdna2.LayerNorm, xdna2.RoPE} {
		line(string(k), k)
	}
	r.Table(table)
	r.Text(`The form of the formulas was chosen with the held-out rows in view, so these errors are somewhat too
good; only the constants are held out. Fit and report leave out these rows and no others:

`)
	for _, id := range sortedKeys(costfit.Excluded()) {
		r.Text("- `%s`: %s\n", id, costfit.Excluded()[id])
	}
	r.Printf("\n")
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// wholeModels compares predictions of whole models with the published table.
func wholeModels(wholes []validation.Whole) section {
	return func(r *report) error {
		apriori, err := validation.Predict(wholes, xdna2.APriori())
		if err != nil {
			return err
		}
		held, err := validation.LeaveOneOut(wholes)
		if err != nil {
			return err
		}
		reference, err := xdna2.HostProfile("reference")
		if err != nil {
			return err
		}
		fitted, err := validation.Predict(wholes, xdna2.NewClock(reference))
		if err != nil {
			return err
		}
		a, l := validation.Errors(wholes, apriori), validation.Errors(wholes, held)
		picture, err := drawModels(wholes, apriori, held)
		if err != nil {
			return err
		}
		r.files["sim-models.png"] = picture
		r.Text(`## Whole models

![Predicted against published times of nine models](sim-models.png)

A priori, the clock is off by %s in the median and by %s at worst, over the two times of nine models.
"A priori" has nothing fitted to this table.
"Left out" fits three global constants (a factor on kernels in programs, host time per layer, time of
a decode call) to the other eight models; no constant belongs to one model. Fitted to all nine
(%s), the median is %s, which tests nothing. "Paper" is its Table II, for an older version of the
same code.

`, percent(validation.Quantile(a, 0.5)), percent(validation.Quantile(a, 1)),
			"`estimate --host reference`",
			percent(validation.Quantile(validation.Errors(wholes, fitted), 0.5)))
		table := [][]string{{"model", "TTFT s", "a priori", "left out", "paper", "tokens/s", "a priori",
			"left out", "paper"}}
		for i, w := range wholes {
			table = append(table, []string{w.Name, fmt.Sprintf("%.2f", w.TTFT),
				fmt.Sprintf("%.2f (%s)", apriori[i].TTFT, signed(a[2*i])),
				fmt.Sprintf("%.2f (%s)", held[i].TTFT, signed(l[2*i])), fmt.Sprintf("%.1f", w.PaperTTFT),
				fmt.Sprintf("%.1f", w.TokensPerSec),
				fmt.Sprintf("%.1f (%s)", apriori[i].TokensPerSec, signed(a[2*i+1])),
				fmt.Sprintf("%.1f (%s)", held[i].TokensPerSec, signed(l[2*i+1])),
				fmt.Sprintf("%.1f", w.PaperTokens)})
		}
		r.Table(table)
		summary := [][]string{{"error", "median", "90th percentile", "worst"}}
		for _, line := range []struct {
			name   string
			errors []float64
		}{{"a priori", a}, {"left out", l}} {
			row := []string{line.name}
			for _, q := range []float64{0.5, 0.9, 1} {
				row = append(row, percent(validation.Quantile(line.errors, q)))
			}
			summary = append(summary, row)
		}
		r.Table(summary)
		r.Text(`Two terms of the a priori clock, attention on the host by head dimension and the factor on attention
by layout, were added from published single-program figures with this table in view. Without them the
medians of the two rows are 6.7 and 4.6 %%.

`)
		return withNpukit(r, wholes)
	}
}

// withNpukit predicts whole models with npukit as the host.
func withNpukit(r *report, wholes []validation.Whole) error {
	clock := xdna2.NewClock(xdna2.HostNpukit())
	h := clock.Host
	r.Text(`## With npukit as the host

The published figures contain a Python host. These are predictions with npukit's own host
(%s). npukit keeps %d hardware contexts open. If prefill and decode together have
more programs, a prompt reopens some, and so does its second token, at %.0f ms each. The reference
keeps up to 13 contexts. After %.0f s without work a prompt waits another %.2f s for the array to wake.

Columns: the programs of prefill, of decode and of both; the contexts that a prompt reopens; the
seconds that the first prompt of a process takes longer, and the milliseconds that the second token
after a prompt does.

`, "`estimate --host npukit`", h.Contexts, h.ContextLoad/1e3, h.IdleAfter/1e6, h.Wake/1e6)
	table := [][]string{{"model", "TTFT s", "tokens/s", "programs", "reopened", "first prompt", "second token"}}
	for _, w := range wholes {
		e, err := w.Plan.Estimate(clock)
		if err != nil {
			return err
		}
		c := e.Contexts
		table = append(table, []string{w.Name, fmt.Sprintf("%.2f", e.TTFT), fmt.Sprintf("%.1f", e.TokensPerSec),
			fmt.Sprintf("%d, %d, %d", c.Prefill, c.Decode, c.All),
			fmt.Sprint(e.Prefill.Opened), fmt.Sprintf("%.2f", e.FirstUse), fmt.Sprintf("%.0f", 1e3*e.ToDecode)})
	}
	r.Table(table)
	r.Text("Source of the host's constants: %s.\n\n", h.Note)
	return nil
}

// rhoTable prints the paper's measure of efficiency in both forms.
func rhoTable(r *report) error {
	paper, ok := published.FindBaseline("paper")
	if !ok {
		return fmt.Errorf("no table of the paper")
	}
	r.Text(`## rho

rho is the paper's measure of efficiency: work per second relative to Llama-3.2-1B, from the paper's
own times. The published form takes the hidden width for the width of q, which is wrong for
Qwen3-0.6B and Qwen3-4B; "true width" corrects that.

`)
	table := [][]string{{"model", "prefill, published", "as published", "true width", "decode, published",
		"as published", "true width"}}
	for _, m := range published.Models() {
		row, ok := paper.Row(m.Name)
		if !ok {
			return fmt.Errorf("the paper has no %s", m.Name)
		}
		c := m.Config
		run := rho.Run{Dims: rho.Dims{Layers: c.Layers, Emb: c.Hidden, Query: c.Heads * c.HeadDim,
			KV: c.KVHeads * c.HeadDim, FFN: c.FFN}, Seq: 2048, TTFT: row.TTFT,
			TokensPerSec: row.TokensPerSec}
		var p, d [2]float64
		for form := range p {
			var err error
			if p[form], d[form], err = rho.Of(run, rho.Reference(), rho.Form(form)); err != nil {
				return err
			}
		}
		f := func(v float64) string { return fmt.Sprintf("%.2f", v) }
		table = append(table, []string{m.Name, f(row.RhoPrefill), f(p[0]), f(p[1]), f(row.RhoDecode), f(d[0]), f(d[1])})
	}
	r.Table(table)
	return nil
}

// trajectories predicts the paper's ten optimisation steps for all models.
func trajectories(r *report) error {
	r.Text(`## The ten optimisation steps

Merging kernels into few programs gains most, because more programs than open hardware contexts
evict each other. Not every step changes every
model: decode has a fused kernel after attention in four of them only. A deployment keeps a step if
it gains, or if it costs nothing and leads to the published form; [deploy.md](deploy.md) shows that as a trajectory.

Both tables follow the paper's order, from one dispatch per op to the tuned plan, with npukit as the
host. For comparison, the reference was measured to go from 18.67 s to 1.30 s for a prefill of
Llama-3.2-1B and from about 500 ms to 92 ms per token. Its first plan is not
this one: it keeps a context for every program.

`)
	steps := append([]plan.KnobStep{{Name: "naive", Take: func(*plan.Knobs) {}}}, plan.KnobSteps()...)
	head := []string{"model"}
	first, token := [][]string{nil}, [][]string{nil}
	for _, s := range steps {
		first, token = append(first, []string{s.Name}), append(token, []string{s.Name})
	}
	clock := xdna2.NewClock(xdna2.HostNpukit())
	for _, m := range published.Models() {
		head = append(head, m.Name)
		knobs := plan.NaiveKnobs()
		for i, s := range steps {
			s.Take(&knobs)
			p, err := plan.NewNPU(&m.Config, &plan.NPUOptions{Knobs: &knobs})
			if err != nil {
				return err
			}
			e, err := p.Estimate(clock)
			if err != nil {
				return err
			}
			first[i+1] = append(first[i+1], fmt.Sprintf("%.2f", e.TTFT))
			token[i+1] = append(token[i+1], fmt.Sprintf("%.0f", 1e3*e.Decode.Time))
		}
	}
	first[0], token[0] = head, head
	for i, s := range steps[1:] {
		r.Printf("%d. %s\n", i+1, s.Name)
		first[i+2][0], token[i+2][0] = fmt.Sprint(i+1), fmt.Sprint(i+1)
	}
	r.Printf("\nTime to the first token of a prompt of 2048, s, predicted, after each step:\n\n")
	r.Table(transposed(first))
	r.Printf("Time per token, ms, predicted:\n\n")
	r.Table(transposed(token))
	return nil
}

// transposed returns the table with a row for each column.
func transposed(table [][]string) [][]string {
	out := make([][]string, len(table[0]))
	for _, row := range table {
		for i, cell := range row {
			out[i] = append(out[i], cell)
		}
	}
	return out
}

// rules writes the table of placement rules as a page of its own, and a summary into the report.
func rules(r *report) error {
	decided := 0
	yes := [][]string{{"rule", "kind", "requirement", "if violated", "note"}}
	no := [][]string{{"rule", "kind", "requirement", "if violated", "why it is not checked"}}
	for _, x := range xdna2.Rules() {
		row := []string{x.ID, x.Kind + "/" + x.Confidence, x.Text, x.Symptom, x.Note}
		for i, s := range row {
			row[i] = markdown.Cell(s)
		}
		if x.Decided {
			decided++
			yes = append(yes, row)
		} else {
			no = append(no, row)
		}
	}
	var p markdown.Page
	p.Text(`# Placement rules of the XDNA 2

A program runs on the array only if every launch in it fits. npukit checks a program against %d rules
before it compiles or loads it, and an error names the rule. Another %d rules are known that a
program's text does not decide. Written by %s from package npu/xdna2; [npu.md](npu.md) explains the
array.

The source is Xilinx/mlir-air e972f2942 (kernel registry, builders, model notes), read and derived
again. A kind is a cause and a confidence:

| kind | cause | | confidence | evidence |
|---|---|---|---|---|
| HW | a limit of the silicon | | A | several independent data points |
| CC | current compiler behavior | | B | one data point |
| API | a check in the kernel's builder | | C | contradicted or partial |
| RT | a limit of driver or runtime | | | |
| MEAS | an observed boundary of unknown cause | | | |
| INF | our inference from published data | | | |

## Checked rules

`, decided, len(no)-1, "`make sim-report`")
	p.Table(yes)
	p.Printf("## Known rules that are not checked\n\n")
	p.Table(no)
	r.files["placement-rules.md"] = bytes.TrimSuffix(p.Bytes(), []byte("\n"))
	r.Text(`## Placement rules

Whether a program fits the array is decided by %d rules, which a test checks against every published
kernel: [placement-rules.md](placement-rules.md).
`, decided)
	return nil
}
