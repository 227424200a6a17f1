package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/npukit/npukit/internal/bench"
	"github.com/npukit/npukit/internal/output"
)

// printBench prints the tables of `npukit bench`: one for single sessions and one for concurrent
// sessions.
func printBench(w io.Writer, results []bench.Result) error {
	base := results[0]
	if base.Device == "sim" {
		return printPredicted(w, results)
	}
	limits := ""
	if reads, peaks := bench.MeasuredLimits(results); len(reads) > 0 {
		limits = fmt.Sprintf("reads %s/s to %s/s, computes %s to %s (measured beside every repetition)\n",
			output.Size(slices.Min(reads)), output.Size(slices.Max(reads)),
			output.Scaled(slices.Min(peaks), "FLOP/s"), output.Scaled(slices.Max(peaks), "FLOP/s"))
	}
	_, err := fmt.Fprintf(w, "%s, %s, %s parameters\n%s, %s, kernels %s\n%sopened in %.2f s, at most %s of memory\n\n",
		base.Model, base.DType, output.Grouped(base.Parameters),
		base.Machine, output.Count(base.Threads, "thread"), base.Kernels,
		limits, base.LoadSeconds, output.Size(float64(base.PeakRSS)))
	if err != nil {
		return err
	}
	rows := [][]string{{"TEST", "TOKENS/S", "MIN", "MAX", "READS", "", "COMPUTES", "", "RHO"}}
	together := [][]string{{"TEST", "TOKENS/S", "MIN", "MAX", "ONE", "TIMES", "READS", "", "COMPUTES", "", "TEXT"}}
	for _, r := range results {
		speed := []string{r.Name, output.Digits(r.TokensPerS), output.Digits(r.MinTokensPerS),
			output.Digits(r.MaxTokensPerS)}
		roofline := []string{
			output.Size(r.BytesPerToken*r.TokensPerS) + "/s", fmt.Sprintf("%.0f %%", 100*r.BandwidthShare),
			output.Scaled(r.FLOPsPerS, "FLOP/s"), fmt.Sprintf("%.0f %%", 100*r.PeakShare)}
		if r.Together == nil {
			rows = append(rows, slices.Concat(speed, roofline, []string{fmt.Sprintf("%.3f", r.Rho)}))
			continue
		}
		text := "same as alone"
		if !r.Together.SameText {
			text = "DIFFERS"
		}
		one := []string{output.Digits(r.Together.OneTokensPerS), fmt.Sprintf("%.2f", r.Together.Times)}
		together = append(together, slices.Concat(speed, one, roofline, []string{text}))
	}
	if err := output.Table(w, "", rows); err != nil || len(together) == 1 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return output.Table(w, "", together)
}

// printPredicted prints the predictions of a virtual device.
func printPredicted(w io.Writer, results []bench.Result) error {
	_, err := fmt.Fprintf(w, "%s, %s parameters, on a virtual XDNA 2: predicted, not measured (npukit "+
		"estimate says where the time goes)\n\n", results[0].Model, output.Grouped(results[0].Parameters))
	if err != nil {
		return err
	}
	rows := [][]string{{"TEST", "TOKENS/S", "RHO"}}
	for _, r := range results {
		rows = append(rows, []string{r.Name, output.Digits(r.TokensPerS), fmt.Sprintf("%.3f", r.Rho)})
	}
	return output.Table(w, "", rows)
}
