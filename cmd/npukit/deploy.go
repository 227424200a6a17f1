package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/skill"
)

func (a *app) deployCommand() *cobra.Command {
	d := &deployer{app: a}
	cmd := &cobra.Command{
		Use:   "deploy MODEL --dir W",
		Short: "Verify and tune a model for a device, phase by phase",
		Long: `Deploy turns a checkpoint into a plan that is verified and tuned for a device, in eight phases that gates end: reference, kernel validation, single block, full
model, prefill and decode optimisation, finalise, and an independent evaluation. The folder W keeps a journal, the plan, reports of all gates, the trajectory of the
optimisation with its picture, and figures.

A deployment that was killed goes on where it was when it is deployed into the same folder again; --device, --seq and --golden are then those that it was begun with.
Ctrl-C is safe at any time.

With --agent a command outside, such as a script around a language model, proposes changes to the plan and is asked about failures; it gets and gives JSON (see package
skill, Agent), and nothing that it says passes a gate.

On a terminal you are asked at the end of each phase whether to go on, to go back, or to stop; --yes goes on. In a pipe it runs unattended, and stops at a failure that no
skill knows. On --device sim times are predicted by the clock of the virtual array, and marked so; on cpu they are measured.`,
		Example: `  npukit deploy ./Qwen3-0.6B --dir work --device sim --seq 2048
  npukit deploy SmolLM2-135M-Instruct-Q4_1 --dir work --yes
  npukit run ./Qwen3-0.6B --device sim --plan work/plan.json "Hello"`,
		Args: arguments("MODEL"),
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error { return d.run(ctx, cmd, args[0]) }),
	}
	d.device.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&d.dir, "dir", "", "the workspace, a folder `W`; it is made if need be")
	flags.BoolVar(&d.yes, "yes", false, "go on after each phase without asking")
	flags.StringVar(&d.golden, "golden", "", "reference outputs of another implementation in `FILE` (default golden.safetensors beside the model, if it is there)")
	flags.IntVar(&d.seq, "seq", 0, "positions of a session, `N` (default the model's context, 2048 at most)")
	flags.DurationVar(&d.budget, "budget", 0, "stop after so much `TIME`, such as 30m; deploy again to go on")
	flags.BoolVar(&d.json, "json", false, "print one JSON object")
	flags.StringVar(&d.agent, "agent", "", "ask a `COMMAND` outside for changes to the plan, and about failures that no skill knows: JSON in, JSON out; gates decide")
	flags.StringVar(&d.lessons, "lessons", "", "try first what earlier deployments have learnt, from the folder `DIR` (npukit skills promote writes it)")
	return cmd
}

// deployer is one execution of `npukit deploy`.
type deployer struct {
	app     *app
	device  deviceFlags
	dir     string
	yes     bool
	golden  string
	seq     int
	budget  time.Duration
	json    bool
	lessons string
	agent   string

	path string // of the model
	live *deployProgress
	in   *bufio.Reader // answers of a person
}

// deployResult is what --json prints.
type deployResult struct {
	Model       string             `json:"model"`
	Device      string             `json:"device"`
	Dir         string             `json:"dir"`
	OK          bool               `json:"ok"` // every phase that was to run has passed
	PlanStatus  model.PlanStatus   `json:"plan_status"`
	Phases      []skill.PhaseState `json:"phases"`
	Performance *skill.Performance `json:"performance,omitempty"`
	Reason      string             `json:"reason,omitempty"`
}

func (d *deployer) run(ctx context.Context, cmd *cobra.Command, arg string) (err error) {
	switch {
	case d.dir == "":
		return usagef("--dir is missing: the folder that keeps the deployment")
	case d.seq < 0 || d.budget < 0:
		return usagef("--seq and --budget must be positive")
	}
	if d.path, err = findModel(arg); err != nil {
		return err
	}
	if info, statErr := os.Stat(d.dir); statErr == nil && info.IsDir() {
		if _, err := takenUp(cmd, d.dir, &d.device.device, &d.seq, &d.golden); err != nil {
			return err
		}
	}
	dev, err := d.device.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	defer context.AfterFunc(ctx, func() {
		if isTerminal(d.app.err) {
			fmt.Fprintf(d.app.err, "\nstopped; the same command goes on from here\n")
		}
	})()
	d.live = newDeployProgress(d.app.err)
	defer d.live.clear()
	opts := &skill.Options{Dir: d.dir, SeqLen: d.seq, Budget: d.budget, Golden: d.golden, Observe: d.live.event, Evaluate: evaluatedBy(d.device, d.path, d.golden)}
	if d.lessons != "" {
		if opts.Skills, err = skill.LoadLessons(d.lessons); err != nil {
			return err
		}
	}
	if agent := strings.Fields(d.agent); len(agent) > 0 {
		if strings.ContainsRune(agent[0], filepath.Separator) { // it runs in the workspace, and was named here
			if agent[0], err = filepath.Abs(agent[0]); err != nil {
				return err
			}
		}
		(&skill.Agent{Command: agent}).Use(opts)
	}
	if !d.yes && isTerminal(d.app.in) && isTerminal(d.app.err) {
		d.in = bufio.NewReader(d.app.in)
		opts.Approve = d.approve
		if opts.Ask == nil { // an agent is asked first
			opts.Ask = d.ask
		}
	}
	d.live.step("reading " + modelName(d.path))
	dep, err := skill.NewDeployment(d.path, dev, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dep.Close()) }()
	runErr := dep.Run(ctx)
	d.live.clear()
	if ctx.Err() != nil { // Ctrl-C leaves no time for a report; a budget that has run out is not this context
		return runErr
	}
	return errors.Join(d.report(dep, runErr), runErr)
}

// report prints what has come of it.
func (d *deployer) report(dep *skill.Deployment, runErr error) error {
	state := dep.State()
	r := deployResult{Model: modelName(d.path), Device: state.Subject.Device, Dir: d.dir, OK: runErr == nil, PlanStatus: state.PlanStatus(), Phases: state.Phases}
	if runErr != nil {
		r.Reason = runErr.Error()
	}
	if state.Phases[skill.Finalise].Status == skill.Passed {
		var err error
		if r.Performance, err = dep.Performance(); err != nil {
			return err
		}
	}
	if d.json {
		return writeJSON(d.app.out, r)
	}
	return d.print(r)
}

// print writes the last screen: the phases, what was gained, and how to use it.
func (d *deployer) print(r deployResult) error {
	out := d.app.out
	if _, err := fmt.Fprintf(out, "%s on %s, workspace %s\n\n", r.Model, r.Device, r.Dir); err != nil {
		return err
	}
	var rows [][]string
	for _, p := range r.Phases {
		passed := 0
		for _, g := range p.Gates {
			if g.OK {
				passed++
			}
		}
		gates := ""
		if len(p.Gates) > 0 {
			gates = fmt.Sprintf("%d of %s passed", passed, count(len(p.Gates), "gate"))
		}
		rows = append(rows, []string{p.Phase.Title(), string(p.Status), fmt.Sprintf("%.1f s", p.Seconds), gates})
	}
	if err := table(out, "  ", rows); err != nil {
		return err
	}
	if r.Performance == nil {
		return nil
	}
	return d.printGain(r.Performance, r.PlanStatus)
}

// printGain writes what was gained, and how to use the plan.
func (d *deployer) printGain(p *skill.Performance, status model.PlanStatus) error {
	title := "Gained"
	if p.First == nil {
		title = "No change was faster than the first plan"
	}
	how := fmt.Sprintf("measured, median of the %d fastest", p.Repetitions)
	if p.Predicted {
		how = "predicted for XDNA 2, not measured"
	}
	out := d.app.out
	if _, err := fmt.Fprintf(out, "\n%s (%s; prompt of %s):\n\n", title, how, count(p.Positions, "token")); err != nil {
		return err
	}
	rows := [][]string{{"", "FIRST PLAN", "THIS PLAN"}}
	if p.First == nil {
		rows[0] = []string{"", "THIS PLAN"} // no change was faster: it is the first
	}
	now := skill.Measurement{TTFT: p.TTFT, TokensPerSec: p.TokensPerSec}
	for _, line := range []struct {
		name string
		text func(skill.Measurement) string
	}{
		{"first token", func(m skill.Measurement) string { return seconds(time.Duration(m.TTFT * float64(time.Second))) }},
		{"tokens/s", func(m skill.Measurement) string { return digits(m.TokensPerSec) }},
	} {
		row := []string{line.name}
		if p.First != nil {
			row = append(row, line.text(*p.First))
		}
		rows = append(rows, append(row, line.text(now)))
	}
	if err := table(out, "  ", rows); err != nil {
		return err
	}
	plan := filepath.Join(d.dir, skill.FilePlan)
	device := ""
	if d.device.device != "cpu" {
		device = " --device " + d.device.device
	}
	note := ""
	switch status {
	case model.PlanAccepted:
		note = fmt.Sprintf("The plan is accepted: %s says what was looked at.\n", filepath.Join(d.dir, skill.FileEvaluation))
	case model.PlanDraft:
		note = "The plan is a draft until an independent evaluation has accepted it: deploy again, or npukit evaluate " + d.dir + ".\n"
	case model.PlanFailed:
		note = fmt.Sprintf("The plan has FAILED, and nothing runs by it: %s says why.\n", filepath.Join(d.dir, skill.FileEvaluation))
	}
	_, err := fmt.Fprintf(out, `
Use it:

  npukit run %s%s --plan %s "Hello"

  plan, err := model.ReadPlan(%q)
  m, err := model.Open(ctx, dev, %q, &model.OpenOptions{Plan: plan})
  for tok, err := range m.Generate(ctx, model.Text("Hello"), nil) { ... }

%s`, d.path, device, plan, plan, d.path, note)
	return err
}
