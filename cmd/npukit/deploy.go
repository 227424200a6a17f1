package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/terminal"
	"github.com/npukit/npukit/model"
	"github.com/npukit/npukit/model/checkpoint"
	"github.com/npukit/npukit/model/plan"
	"github.com/npukit/npukit/skill"
	"github.com/npukit/npukit/skill/agent"
)

func deployCommand(a *app) *cobra.Command {
	d := &deployer{app: a}
	cmd := &cobra.Command{
		Use:   "deploy MODEL --dir W",
		Short: "Verify and tune a model for a device, phase by phase",
		Long: `Deploy turns a checkpoint into a verified and tuned plan for a device. It has eight phases,
each ended by gates: reference, kernel validation, single block, full model, prefill
optimisation, decode optimisation, finalise, and an independent evaluation. The folder W
keeps a journal, the plan, gate reports, the trajectory of the optimisation with a
picture, and performance figures.

To resume a deployment that was interrupted, deploy into the same folder again. --device,
--seq and --golden then default to the values it was started with. Ctrl-C is safe at any
time.

Without reference outputs of another implementation, npukit's own oracle is the only
reference, and the reports say so. npukit has those of the demo model.

With --agent, an external command, such as a script around a language model, proposes
changes to the plan and is asked about failures. It reads and writes JSON (see Agent in
package skill). Gates still decide.

On a terminal, deploy asks after each phase whether to go on, go back or stop; --yes goes
on. In a pipe it runs unattended, stops at a failure that no skill can handle, and prints
only the result; W/progress.md shows how far it is. With --device sim, times are
predicted by the clock of the virtual array and marked as predictions. With --device cpu
they are measured.`,
		Example: `  npukit deploy ./Qwen3-0.6B --dir work --device sim --seq 2048
  npukit deploy SmolLM2-135M-Instruct-Q4_1 --dir work --yes
  npukit run ./Qwen3-0.6B --device sim --plan work/plan.json "Hello"`,
		Args: arguments("MODEL"),
		RunE: a.action(func(ctx context.Context, cmd *cobra.Command, args []string) error {
			return d.run(ctx, cmd,
				args[0])
		}),
	}
	d.device.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&d.dir, "dir", "", "workspace folder `W`; created if needed")
	flags.BoolVar(&d.yes, "yes", false, "go on after each phase without asking")
	flags.StringVar(&d.golden, "golden", "", "reference outputs of another implementation in `FILE` (default "+
		"golden.safetensors beside the model, or what npukit has for the demo model)")
	flags.Var((*positive)(&d.seq), "seq", "positions of a session, `N` (default the model's context, at most 2048)")
	flags.DurationVar(&d.budget, "budget", 0, "stop after this `TIME`, such as 30m; deploy again to resume")
	flags.BoolVar(&d.json, "json", false, "print one JSON object")
	flags.StringVar(&d.agent, "agent", "", "ask a `COMMAND` outside for changes to the plan, and about failures "+
		"that no skill knows: JSON in, JSON out; gates decide")
	flags.StringVar(&d.lessons, "lessons", "", "try first what earlier deployments have learnt, from the folder "+
		"`DIR` (npukit skills promote writes it)")
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
	in   *bufio.Reader // the user's answers
}

// deployResult is the object that --json prints.
type deployResult struct {
	Model       string             `json:"model"`
	Device      string             `json:"device"`
	Dir         string             `json:"dir"`
	OK          bool               `json:"ok"`        // every requested phase has passed
	Reference   string             `json:"reference"` // the reference that the oracle was compared with
	Independent bool               `json:"independent_reference"`
	PlanStatus  plan.Status        `json:"plan_status"`
	Phases      []skill.PhaseState `json:"phases"`
	Performance *skill.Performance `json:"performance,omitempty"`
	Issues      int                `json:"issues"` // number of issues recorded in issues.md
	Reason      string             `json:"reason,omitempty"`
}

func (d *deployer) run(ctx context.Context, cmd *cobra.Command, arg string) (err error) {
	switch {
	case d.dir == "":
		return usagef("--dir is missing: name the workspace folder")
	case cmd.Flags().Changed("budget") && d.budget <= 0:
		return usagef("--budget is %v, want a positive time, or no --budget for no limit", d.budget)
	}
	command, err := agentCommand(d.agent)
	if err != nil {
		return err
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
	d.live = newDeployProgress(d.app.err)
	defer d.live.clear()
	defer context.AfterFunc(ctx, func() { d.live.last("\nstopped; the same command goes on from here") })()
	opts := &skill.Options{Dir: d.dir, SeqLen: d.seq, Budget: d.budget, Golden: d.golden, Observe: d.live.event,
		Evaluate: evaluatedBy(d.device, d.path, d.golden)}
	if d.lessons != "" {
		if opts.Skills, err = skill.LoadLessons(d.lessons); err != nil {
			return err
		}
	}
	if command != nil {
		(&agent.Agent{Command: command}).Use(opts)
	}
	if !d.yes && terminal.Is(d.app.in) && terminal.Is(d.app.err) {
		d.in = bufio.NewReader(d.app.in)
		opts.Approve = d.approve
		if opts.Ask == nil { // an agent, if there is one, answers first
			opts.Ask = d.ask
		}
	}
	d.live.step("reading " + checkpoint.Name(d.path))
	dep, err := skill.NewDeployment(d.path, dev, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dep.Close()) }()
	runErr := dep.Run(ctx)
	d.live.clear()
	if ctx.Err() != nil { // after Ctrl-C there is no time for a report; the budget has its own context
		return runErr
	}
	return errors.Join(d.report(dep, runErr), runErr)
}

// agentCommand parses the value of --agent into a program and its arguments. It returns nil if text
// is empty. The program runs in the workspace, so a relative path is resolved here.
func agentCommand(text string) ([]string, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return nil, nil
	}
	var err error
	if strings.ContainsRune(words[0], filepath.Separator) {
		if words[0], err = filepath.Abs(words[0]); err != nil {
			return nil, err
		}
	}
	if _, err := exec.LookPath(words[0]); err != nil {
		return nil, usagef("--agent: %w", err)
	}
	return words, nil
}

// report prints the result of the deployment.
func (d *deployer) report(dep *skill.Deployment, runErr error) error {
	state := dep.State()
	r := deployResult{Model: checkpoint.Name(d.path), Device: state.Subject.Device, Dir: d.dir, OK: runErr == nil,
		Reference:   state.Subject.Reference(),
		Independent: state.Subject.Golden != "", PlanStatus: state.PlanStatus(), Phases: state.Phases,
		Issues: len(state.Issues)}
	if runErr != nil {
		r.Reason = runErr.Error()
	}
	if state.Phases[skill.Finalise].Status == "passed" {
		var err error
		if r.Performance, err = dep.Performance(); err != nil {
			return err
		}
	}
	if d.json {
		return output.JSON(d.app.out, r)
	}
	return d.print(r)
}

// print writes the summary: the phases, the gain, and how to use the plan.
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
			gates = fmt.Sprintf("%d of %s passed", passed, output.Count(len(p.Gates), "gate"))
		}
		status := string(p.Status)
		if p.Status == "running" {
			status = "not finished" // no more events follow
		}
		rows = append(rows, []string{p.Phase.Title(), status, fmt.Sprintf("%.1f s", p.Seconds), gates})
	}
	if err := output.Table(out, "  ", rows); err != nil {
		return err
	}
	if r.Reference != "" {
		if _, err := fmt.Fprintf(out, "\n%s\n", wrapped(r.Reference, 100, "")); err != nil {
			return err
		}
	}
	if r.Issues > 0 {
		if _, err := fmt.Fprintf(out, "\nRecorded: %s, in %s\n", output.Count(r.Issues, "issue"),
			filepath.Join(d.dir, "issues.md")); err != nil {
			return err
		}
	}
	if r.Performance == nil {
		return nil
	}
	if err := d.printGain(r.Performance); err != nil {
		return err
	}
	return d.printUse(r.PlanStatus)
}

// printGain compares the plan's speed with that of the first plan.
func (d *deployer) printGain(p *skill.Performance) error {
	title := "First plan and this one"
	switch {
	case p.First == nil:
		title = "No change was faster than the first plan"
	case gained(p):
		title = "Gained"
	}
	how := p.How()
	if p.Predicted {
		how = "predicted for XDNA 2, not measured"
	}
	out := d.app.out
	if _, err := fmt.Fprintf(out, "\n%s (%s; prompt of %s):\n\n", title, how,
		output.Count(p.Positions, "token")); err != nil {
		return err
	}
	rows := [][]string{{"", "FIRST PLAN", "THIS PLAN"}}
	if p.First == nil {
		rows[0] = []string{"", "THIS PLAN"} // the plan is the first plan
	}
	if p.Paired != nil {
		rows[0] = append(rows[0], "CHANGE OF TIME", "NOISE")
	}
	now := skill.Measurement{TTFT: p.TTFT, TokensPerSec: p.TokensPerSec}
	for _, line := range []struct {
		name string
		turn skill.Phase // that optimises the time
		text func(skill.Measurement) string
	}{
		{"first token", skill.Prefill, func(m skill.Measurement) string {
			return output.Seconds(time.Duration(m.TTFT * float64(time.Second)))
		}},
		{"tokens/s", skill.Decode, func(m skill.Measurement) string { return output.Digits(m.TokensPerSec) }},
	} {
		row := []string{line.name}
		if p.First != nil {
			row = append(row, line.text(*p.First))
		}
		row = append(row, line.text(now))
		if p.Paired != nil {
			change, noise := p.Paired.Of(line.turn).Percents()
			row = append(row, change+" %", noise+" %")
		}
		rows = append(rows, row)
	}
	if err := output.Table(out, "  ", rows); err != nil || p.Predicted {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s\n", wrapped(p.Spread(), 100, "  "))
	return err
}

// gained reports whether the plan is faster than the first one in at least one figure and slower in
// none. Measured times must differ by more than the noise of their runs.
func gained(p *skill.Performance) bool {
	if c := p.Paired; c != nil {
		return (c.First.Faster() || c.Token.Faster()) && c.First.Gain >= -c.First.Noise &&
			c.Token.Gain >= -c.Token.Noise
	}
	return p.TTFT <= p.First.TTFT && p.TokensPerSec >= p.First.TokensPerSec &&
		(p.TTFT < p.First.TTFT || p.TokensPerSec > p.First.TokensPerSec)
}

// printUse prints how to use the plan. A failed plan cannot be used.
func (d *deployer) printUse(status plan.Status) error {
	out := d.app.out
	evaluation := filepath.Join(d.dir, "evaluation_report.md")
	if status == plan.Failed {
		_, err := fmt.Fprintf(out, "\nThe plan has FAILED, and nothing runs by it: %s says why.\n", evaluation)
		return err
	}
	note := fmt.Sprintf("The plan is accepted: %s says what was looked at.\n", evaluation)
	if status == plan.Draft {
		note = "The plan is a draft until an independent evaluation has accepted it: deploy again, or " +
			"npukit evaluate " + output.ShellWord(d.dir) + ".\n"
	}
	p := filepath.Join(d.dir, "plan.json")
	device := ""
	if d.device.device != "cpu" {
		device = " --device " + d.device.device
	}
	prompt, goPrompt := `"Hello"`, `model.Text("Hello")`
	if !hasTokenizer(d.path) {
		prompt, goPrompt = "--ids 1,2,3", "model.IDs([]int32{1, 2, 3})"
	}
	_, err := fmt.Fprintf(out, `
Use it:

  npukit run %s%s --plan %s %s

  p, err := plan.Read(%q)
  m, err := model.Open(ctx, dev, %q, &model.OpenOptions{Plan: p})
  for tok, err := range m.Generate(ctx, %s, nil) { ... }

%s`, output.ShellWord(d.path), device, output.ShellWord(p), prompt, p, d.path, goPrompt, note)
	return err
}

// hasTokenizer reports whether the model in path has a tokenizer.
func hasTokenizer(path string) bool {
	ck, err := checkpoint.Open(path, nil)
	if err != nil {
		return false
	}
	_, err = model.OpenTokenizer(ck)
	return errors.Join(err, ck.Close()) == nil
}
