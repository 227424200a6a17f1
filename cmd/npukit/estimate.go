package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/estimateplot"
	"github.com/npukit/npukit/internal/localmodel"
	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu/xdna2"
)

func estimateCommand(a *app) *cobra.Command {
	var asJSON, naive bool
	var length int
	var host, trace, picture, planFile, diffFile, planOut string
	cmd := &cobra.Command{
		Use:   "estimate MODEL|config.json",
		Short: "Predict a model's speed on an XDNA 2 NPU, program by program",
		Long: `Estimate plans a model for an XDNA 2 NPU and predicts the time of each program. It needs
neither an NPU nor weights: a config.json is enough. Every time is a prediction by a cost
model that was fitted to published measurements of single kernels (Ryzen AI 9 HX 370,
turbo, warm). Nothing is measured.

The host counts too. --host npukit is this program as the host; --host reference is the
Python host of the published figures, fitted to the nine published models, for
comparison with them.

The plan comes from the planner or from --plan; --plan-out writes it. --diff compares it
with a second plan: the changes, and their predicted effect.`,
		Example: `  npukit estimate ./Qwen3-0.6B
  npukit estimate config.json --seq 1024 --json
  npukit estimate config.json --trace trace.json --plot estimate.png
  npukit estimate config.json --naive --plan-out naive.json && npukit estimate config.json --diff naive.json`,
		Args: arguments("MODEL"),
		RunE: a.action(func(_ context.Context, cmd *cobra.Command, args []string) error {
			clock, err := clockFor(host)
			if err != nil {
				return err
			}
			for _, out := range [][2]string{{"trace", trace}, {"plot", picture}} {
				if out[1] != "" {
					if err := output.CanWrite(out[1]); err != nil {
						return fmt.Errorf("--%s: %w", out[0], err)
					}
				}
			}
			if err := checkPlanFlags(cmd, length, planOut); err != nil {
				return err
			}
			c, err := configOf(args[0])
			if err != nil {
				return err
			}
			p, err := npuPlan(c, planFile, length, naive)
			if err != nil {
				return err
			}
			e, err := p.Estimate(clock)
			if err != nil {
				return err
			}
			out := estimated{Estimate: e}
			if diffFile != "" {
				if out.Diff, err = diffWith(c, p, diffFile, clock); err != nil {
					return err
				}
			}
			if err := writePlan(planOut, p); err != nil {
				return err
			}
			if trace != "" {
				var b bytes.Buffer
				if err := e.WriteTrace(&b); err != nil {
					return err
				}
				if err := output.File(trace, b.Bytes()); err != nil {
					return fmt.Errorf("writing the trace: %w", err)
				}
			}
			if picture != "" {
				data, err := estimateplot.Draw(c.Name, e)
				if err == nil {
					err = output.File(picture, data)
				}
				if err != nil {
					return fmt.Errorf("writing the picture: %w", err)
				}
			}
			if asJSON {
				return output.JSON(a.out, out)
			}
			if out.Diff != nil {
				return printDiff(a.out, c.Name, out)
			}
			return printEstimate(a.out, c.Name, e)
		}),
	}
	f := cmd.Flags()
	f.IntVar(&length, "seq", 0, "`TOKENS` of the prompt, for which prefill is compiled (default 2048, or the "+
		"model's context)")
	f.StringVar(&host, "host", "npukit", "the host's cost model, `npukit|reference`")
	f.BoolVar(&naive, "naive", false, "the plan before any optimisation: a dispatch for each op, nothing kept "+
		"between dispatches")
	f.StringVar(&planFile, "plan", "", "predict the plan in `FILE`")
	f.StringVar(&diffFile, "diff", "", "tell what changes from the plan to the one in `FILE`, instead of "+
		"program by program")
	f.StringVar(&planOut, "plan-out", "", "write the plan to `FILE`")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	f.StringVar(&trace, "trace", "", "write a timeline for Perfetto to `FILE`")
	f.StringVar(&picture, "plot", "", "draw roofline and time shares as PNG to `FILE`")
	return cmd
}

// clockFor returns the cost model with the named host profile.
func clockFor(host string) (*xdna2.Clock, error) {
	if host != "npukit" && host != "reference" {
		return nil, usagef("--host is %q, want npukit or reference", host)
	}
	h, err := xdna2.HostProfile(host)
	if err != nil {
		return nil, err
	}
	return xdna2.NewClock(h), nil
}

// configOf reads the architecture from a config.json, or from a model's files.
func configOf(arg string) (*checkpoint.Config, error) {
	if strings.HasSuffix(arg, ".json") {
		return checkpoint.ReadConfig(arg)
	}
	path, err := findModel(arg)
	if err != nil {
		return nil, err
	}
	if config := filepath.Join(path, "config.json"); localmodel.Exists(config) { // works without weights
		return checkpoint.ReadConfig(config)
	}
	ck, err := checkpoint.Open(path, nil)
	if err != nil {
		return nil, err
	}
	c := *ck.Config()
	return &c, ck.Close()
}

// npuPlan returns the NPU plan in file, or the planner's if file is empty.
func npuPlan(c *checkpoint.Config, file string, length int, naive bool) (*plan.Plan, error) {
	if file != "" {
		if length != 0 || naive {
			return nil, usagef("--plan has its own lengths and knobs: omit --seq and --naive")
		}
		return readNPUPlan(c, file)
	}
	o := &plan.NPUOptions{}
	if length != 0 {
		o.Lengths = []int{length}
	}
	if naive {
		k := plan.NaiveKnobs()
		o.Knobs = &k
	}
	return plan.NewNPU(c, o)
}

// readNPUPlan reads an NPU plan and checks that it fits the model and the array.
func readNPUPlan(c *checkpoint.Config, file string) (*plan.Plan, error) {
	p, err := plan.Read(file)
	if err != nil {
		return nil, err
	}
	if err := p.CheckNPU(c, xdna2.NPU2()); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// estimated is the object that --json prints.
type estimated struct {
	*plan.Estimate
	Diff *planDiff `json:"diff,omitempty"`
}

// planDiff compares the plan with another one.
type planDiff struct {
	Plan         string   `json:"plan"` // file of the other plan
	Changes      []string `json:"changes"`
	TTFT         float64  `json:"ttft_s"` // of the other plan
	TokensPerSec float64  `json:"tokens_per_s"`
}

func diffWith(c *checkpoint.Config, p *plan.Plan, file string, clock *xdna2.Clock) (*planDiff, error) {
	other, err := readNPUPlan(c, file)
	if err != nil {
		return nil, fmt.Errorf("--diff: %w", err)
	}
	e, err := other.Estimate(clock)
	if err != nil {
		return nil, fmt.Errorf("--diff: %w", err)
	}
	return &planDiff{file, append([]string{}, plan.Diff(p, other)...), e.TTFT, e.TokensPerSec}, nil
}

func printDiff(w io.Writer, name string, e estimated) error {
	d := e.Diff
	change := func(from, to float64) string {
		switch {
		case to >= 2*from:
			return output.Digits(to/from) + " times as much"
		case from >= 2*to:
			return output.Digits(from/to) + " times less"
		}
		return fmt.Sprintf("%+.1f %%", 100*(to/from-1))
	}
	if err := output.Table(w, "", [][]string{
		{"model", name},
		{"host", e.Host + ": " + e.HostNote},
		{"first token", fmt.Sprintf("%s -> %s (%s), predicted", output.Time(e.TTFT), output.Time(d.TTFT),
			change(e.TTFT, d.TTFT))},
		{"generation", fmt.Sprintf("%s -> %s tokens/s (%s), predicted", output.Digits(e.TokensPerSec),
			output.Digits(d.TokensPerSec),
			change(e.TokensPerSec, d.TokensPerSec))},
	}); err != nil {
		return err
	}
	if len(d.Changes) == 0 {
		_, err := fmt.Fprintf(w, "\nThe plan in %s does the same.\n", d.Plan)
		return err
	}
	_, err := fmt.Fprintf(w, "\nTo the plan in %s, %s:\n  %s\n", d.Plan, output.Count(len(d.Changes), "change"),
		strings.Join(d.Changes, "\n  "))
	return err
}

func printEstimate(w io.Writer, name string, e *plan.Estimate) error {
	head := [][]string{
		{"model", name},
		{"array", "XDNA 2 (8 x 4 cores), BF16, predicted from published kernel measurements: nothing here is measured"},
		{"host", e.Host + ": " + e.HostNote},
		{"prompt", output.Count(e.SeqLen, "token")},
		{"first token", fmt.Sprintf("%s after the prompt came in; %s more for the first of a process, %s more "+
			"after %s without work",
			output.Time(e.TTFT), output.Time(e.FirstUse), output.Time(e.WakeUp), output.Time(e.IdleAfter))},
		{"generation", fmt.Sprintf("%s tokens/s behind it", output.Digits(e.TokensPerSec))},
		{"contexts", contextsText(e)},
	}
	for _, r := range e.Rho {
		head = append(head, []string{"rho",
			fmt.Sprintf("%.2f prefill, %.2f decode (%s; 1 is Llama-3.2-1B as published)", r.Prefill, r.Decode, r.Form)})
	}
	if err := output.Table(w, "", head); err != nil {
		return err
	}
	for _, p := range []struct {
		title string
		*plan.PassEstimate
	}{{"Prefill", e.Prefill}, {"One token", e.Decode}} {
		share := func(t float64) string { return fmt.Sprintf("%s (%.0f %%)", output.Time(t), 100*t/p.Time) }
		_, err := fmt.Fprintf(w, "\n%s: %s, %s. Array %s, calls %s, transfers %s, host %s\n", p.title,
			output.Count(p.Dispatches, "dispatch"), output.Count(p.Launches, "launch"),
			share(p.Array), share(p.Calls), share(p.Transfers), share(p.HostWork))
		if err != nil {
			return err
		}
		rows := [][]string{{"PROGRAM", "ON", "RUNS", "LAUNCHES", "TIME", "SHARE", "ROOFLINE", "REACHED", "BOUND",
			"LARGEST LOSS"}}
		for _, s := range p.Steps {
			row := []string{s.Program, s.On, fmt.Sprint(s.Count), "", output.Time(s.Time),
				fmt.Sprintf("%.1f %%", 100*s.Time/p.Time), "", "", s.Bound, ""}
			if s.On == plan.OnDevice {
				row[3], row[6], row[7] = fmt.Sprint(s.Launches), output.Time(s.Roofline),
					fmt.Sprintf("%.0f %%", 100*s.Share)
				if s.Loss != "" {
					row[9] = fmt.Sprintf("%s, %s", s.Loss, output.Time(s.LossTime))
					if s.Loss == xdna2.LossKernel {
						row[9] += " (" + s.LossWhat + ")"
					}
				}
			}
			rows = append(rows, row)
		}
		if err := output.Table(w, "  ", rows); err != nil {
			return err
		}
	}
	return nil
}

// contextsText returns how the programs share the hardware contexts.
func contextsText(e *plan.Estimate) string {
	c := e.Contexts
	s := fmt.Sprintf("%d programs in prefill, %d in a token, %d in all; the host keeps %d", c.Prefill, c.Decode, c.All,
		c.Kept)
	switch {
	case e.Prefill.Opened+e.Decode.Opened == 0:
		return s
	case e.Prefill.Opened == e.Prefill.Dispatches:
		return fmt.Sprintf("%s, but by this plan none from one dispatch to the next", s)
	case c.Prefill > c.Kept || c.Decode > c.Kept:
		return fmt.Sprintf("%s: a prompt opens %s again, a token %d (rule R-ELF-6; merge programs)", s,
			output.Count(e.Prefill.Opened, "context"), e.Decode.Opened)
	}
	return fmt.Sprintf("%s: a prompt opens %s again, and its first token waits %s more", s,
		output.Count(e.Prefill.Opened, "context"), output.Time(e.ToDecode))
}
