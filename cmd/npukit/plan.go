package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/op"
	"github.com/npukit/npukit/npu/xdna2"
	"github.com/npukit/npukit/skill"
)

func planCommand(a *app) *cobra.Command {
	var asJSON, naive bool
	var length int
	var planOut string
	cmd := &cobra.Command{
		Use:   "plan MODEL|config.json",
		Short: "Print the programs that a deployment on an XDNA 2 NPU arrives at",
		Long: `Plan optimises a model's plan for an XDNA 2 NPU as a deployment does, with predicted times,
and prints the programs that it arrives at: arguments, layouts, mapping and time. It needs
neither an NPU nor weights: a config.json is enough. These are the programs to compile.

A deployment may arrive elsewhere: it measures where it can, and a change can fail a gate.`,
		Example: `  npukit plan ./Qwen3-0.6B
  npukit plan config.json --json
  npukit plan config.json --naive --plan-out naive.json`,
		Args: arguments("MODEL"),
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			if err := checkPlanFlags(cmd, length, planOut); err != nil {
				return err
			}
			c, err := configOf(args[0])
			if err != nil {
				return err
			}
			r, p, err := planned(ctx, c, length, naive)
			if err != nil {
				return err
			}
			if err := writePlan(planOut, p); err != nil {
				return err
			}
			if asJSON {
				return output.JSON(a.out, r)
			}
			return printPlan(a.out, r)
		}),
	}
	f := cmd.Flags()
	f.IntVar(&length, "seq", 0, "`TOKENS` of the prompt, for which prefill is compiled (default 2048, or the "+
		"model's context)")
	f.BoolVar(&naive, "naive", false, "the plan that a deployment starts from: a dispatch for each op")
	f.StringVar(&planOut, "plan-out", "", "write the plan to `FILE`")
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// checkPlanFlags returns an error if --seq or --plan-out cannot be.
func checkPlanFlags(cmd *cobra.Command, length int, planOut string) error {
	if planOut != "" {
		if err := output.CanWrite(planOut); err != nil {
			return fmt.Errorf("--plan-out: %w", err)
		}
	}
	if cmd.Flags().Changed("seq") && length < 2 {
		return usagef("--seq is %d, want 2 or more tokens", length)
	}
	return nil
}

// writePlan writes a plan to the file of --plan-out, if there is one.
func writePlan(file string, p *plan.Plan) error {
	if file == "" {
		return nil
	}
	data, err := json.MarshalIndent(p, "", " ")
	if err == nil {
		err = output.File(file, data)
	}
	if err != nil {
		return fmt.Errorf("writing the plan: %w", err)
	}
	return nil
}

// planReport is the object that --json prints.
type planReport struct {
	Model        string           `json:"model"`
	Naive        bool             `json:"naive"`
	Predicted    bool             `json:"predicted"` // always true
	SeqLen       int              `json:"seq_len"`
	TTFT         float64          `json:"ttft_s"`
	TokensPerSec float64          `json:"tokens_per_s"`
	Steps        []skill.Foreseen `json:"steps,omitempty"` // of the optimisation
	Programs     []plannedProgram `json:"programs"`        // that run on the array, in order of first dispatch
}

// plannedProgram is a program with its dispatches and its predicted time on the array.
type plannedProgram struct {
	Prefill int          `json:"prefill_runs"` // dispatches of a prompt
	Decode  int          `json:"decode_runs"`  // dispatches of a token
	Time    float64      `json:"time_us"`      // of a run
	Program *npu.Program `json:"program"`      // as in program.json of a compile command
}

// planned returns the plan that a deployment arrives at, or the naive one, and its description.
func planned(ctx context.Context, c *checkpoint.Config, length int, naive bool) (*planReport, *plan.Plan, error) {
	r := &planReport{Model: c.Name, Naive: naive, Predicted: true}
	f, err := skill.Foresee(ctx, c, &skill.Options{SeqLen: length})
	if err != nil {
		return nil, nil, err
	}
	p := f.Plan
	if r.Steps = f.Steps; naive {
		p, r.Steps = f.Start, nil
	}
	clock := xdna2.NewClock(xdna2.HostNpukit())
	e, err := p.Estimate(clock)
	if err != nil {
		return nil, nil, err
	}
	r.SeqLen, r.TTFT, r.TokensPerSec = e.SeqLen, e.TTFT, e.TokensPerSec
	last := p.Prefill[len(p.Prefill)-1]
	for _, pass := range []struct {
		steps   []plan.Step
		prefill bool
	}{{slices.Concat(last.Steps, last.Head), true}, {slices.Concat(p.Decode.Steps, p.Decode.Head), false}} {
		for _, s := range pass.steps {
			if s.On != plan.OnDevice {
				continue
			}
			q := p.Program(s.Program)
			i := slices.IndexFunc(r.Programs, func(have plannedProgram) bool { return have.Program == q })
			if i < 0 {
				cost, err := clock.Program(q, op.Size{})
				if err != nil {
					return nil, nil, err
				}
				i, r.Programs = len(r.Programs), append(r.Programs, plannedProgram{Time: cost.Run, Program: q})
			}
			if pass.prefill {
				r.Programs[i].Prefill++
			} else {
				r.Programs[i].Decode++
			}
		}
	}
	return r, p, nil
}

// printPlan prints the programs, each with its launches.
func printPlan(w io.Writer, r *planReport) error {
	from := "the plan that a deployment arrives at, if every change passes its gates"
	if r.Naive {
		from = "the plan that a deployment starts from"
	}
	if err := output.Table(w, "", [][]string{
		{"model", r.Model},
		{"plan", from},
		{"prompt", output.Count(r.SeqLen, "token")},
		{"first token", output.Time(r.TTFT) + ", predicted"},
		{"generation", output.Digits(r.TokensPerSec) + " tokens/s, predicted"},
	}); err != nil {
		return err
	}
	for _, p := range r.Programs {
		if _, err := fmt.Fprintf(w, "\n%s: %s each, %d in a prompt, %d in a token\n", p.Program.Name,
			output.Time(p.Time/1e6), p.Prefill, p.Decode); err != nil {
			return err
		}
		rows := [][]string{{"ARGUMENT", "KIND", "TYPE", "SHAPE", "SIZE"}}
		for i, a := range p.Program.Args {
			rows = append(rows, []string{fmt.Sprintf("%d %s", i, a.Name), a.Kind.String(), a.Type.String(),
				op.ShapeString(a.Shape), output.Size(float64(a.Type.Bytes((op.Size{}).Elements(a.Shape))))})
		}
		if err := output.Table(w, "  ", rows); err != nil {
			return err
		}
		rows = [][]string{{"LAUNCH", "OP", "KERNEL", "TILE", "HERD"}}
		for _, l := range p.Program.Launches {
			m := l.Mapping
			kernel := strings.TrimSpace(m.Variant + " " + m.Layout)
			if m.Fused != "" {
				kernel = strings.TrimSpace(kernel + " in " + m.Fused)
			}
			rows = append(rows, []string{l.Name, l.Op.Kind(), kernel, numbers(m.Tile), numbers(m.Herd)})
		}
		if err := output.Table(w, "  ", rows); err != nil {
			return err
		}
	}
	return nil
}

func numbers(list []int) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(list), " ", "x"), "[]")
}
