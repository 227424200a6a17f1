package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/npukit/npukit/internal/localmodel"
	"github.com/npukit/npukit/internal/output"
	"github.com/npukit/npukit/internal/terminal"
	"github.com/npukit/npukit/npu"
	"github.com/npukit/npukit/npu/cpu"
	"github.com/npukit/npukit/skill"
)

func evaluateCommand(a *app) *cobra.Command {
	e := &evaluator{app: a}
	cmd := &cobra.Command{
		Use:   "evaluate W",
		Short: "Re-check a deployment from scratch",
		Long: `Evaluate re-checks the deployment in the folder W from scratch, in a new process. It
compares the journal, plan, thresholds, weights and reference outputs with their hashes,
computes the reference again, and runs every gate again on the plan in W. The gates must
fail on defective devices. Performance is measured again and must match performance.json
within a bound that the report states. Thresholds, gates and oracle are those of this
program. The evaluator sees only three of npukit's environment variables:
NPUKIT_ARTEFACTS and NPUKIT_COMPILE, which locate NPU programs (each is judged by its
results), and NPUKIT_KERNELS, which limits the kernels of the cpu.

The plan becomes accepted (exit code 0) or failed (exit code 1); W/evaluation_report.md
has the reasons. Exit code 1 without a verdict leaves the plan unchanged: if other
processes use the machine, evaluate again when it is idle; if another process works on
the workspace, wait for it. There is no verdict either if the model or the golden file
cannot be opened, or if --kernels or --threads differ from those of the deployment.

This command always starts a new evaluation. The one that ends a deployment resumes after
a kill, from notes in npukit's cache folder that only npukit can write.

Figures of --device cpu are measured: evaluate on the machine of the deployment, with the
same --threads and --in-place, and with nothing else running.`,
		Example: `  npukit evaluate work
  npukit evaluate work --model ./Qwen3-0.6B --json`,
		Args: arguments("W"),
		RunE: a.action(func(ctx context.Context, _ *cobra.Command, args []string) error { return e.run(ctx, args[0]) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&e.model, "model", "", "the checkpoint, `MODEL` (default its place at the deployment)")
	flags.StringVar(&e.golden, "golden", "", "reference outputs of another implementation in `FILE` (default where "+
		"they lay when it was deployed)")
	flags.Var((*positive)(&e.device.threads), "threads", "use `N` threads (default all cores)")
	flags.StringVar(&e.device.artefacts, "artefacts", "", "`FOLDER` of programs compiled for the NPU (xdna; "+
		"default $NPUKIT_ARTEFACTS)")
	flags.StringVar(&e.device.compile, "compile", "", "compile programs that the folder lacks with `COMMAND`, see "+
		"docs/hardware.md (xdna; default $NPUKIT_COMPILE)")
	flags.StringVar(&e.device.kernels, "kernels", "", "kernels of the cpu, `NAME`, as in run")
	flags.BoolVar(&e.device.inPlace, "in-place", false, "read BF16 weights where they lie in the file, as the "+
		"deployment did (cpu)")
	flags.BoolVar(&e.json, "json", false, "print one JSON object")
	return cmd
}

// evaluator is one execution of `npukit evaluate`.
type evaluator struct {
	app    *app
	device deviceFlags
	model  string
	golden string
	json   bool
}

func (e *evaluator) run(ctx context.Context, dir string) (err error) {
	if state, err := skill.ReadState(dir); err == nil && state.Subject != nil && slices.Contains(deviceKinds,
		state.Subject.Device) {
		e.device.device = state.Subject.Device
	} else { // no journal, or no such device: the report has the reason
		e.device.device, e.device.artefacts, e.device.compile = "cpu", "", ""
	}
	if err := e.device.check(); err != nil {
		return err
	}
	opts := &skill.EvaluateOptions{Golden: e.golden}
	if e.model != "" {
		if opts.Model, err = findModel(e.model); err != nil {
			return err
		}
	}
	live := newDeployProgress(e.app.err)
	defer live.clear()
	live.step("evaluating " + dir)
	open := func(context.Context) (npu.Device, error) { return e.device.open() }
	report, err := skill.Settle(ctx, dir, open, skill.InNewProcess(deviceText(e.device), opts), opts)
	live.clear()
	list := refusals(report)
	if err != nil && len(list) == 0 {
		return err
	}
	if failed := e.print(dir, report); failed != nil {
		return errors.Join(err, failed)
	}
	if !report.OK { // err is then the error of writing the report
		return errors.Join(fmt.Errorf("the deployment is not accepted: %s", strings.Join(list, ", ")), err)
	}
	return nil
}

// refusals returns the names of the checks that failed.
func refusals(r skill.EvaluationReport) []string {
	var list []string
	for _, c := range r.Checks {
		if !c.OK {
			list = append(list, c.Name)
		}
	}
	return list
}

// print writes the verdict: failed checks in full, the number of the others.
func (e *evaluator) print(dir string, r skill.EvaluationReport) error {
	if e.json {
		return output.JSON(e.app.out, r)
	}
	word := "accepted"
	if !r.OK {
		word = "not accepted"
	}
	refused := len(refusals(r))
	if _, err := fmt.Fprintf(e.app.out, "%s: %s, %s hold, %d do not (%.1f s)\n", dir, word,
		output.Count(len(r.Checks)-refused, "check"), refused, r.Seconds); err != nil {
		return err
	}
	if r.Reference != "" {
		if _, err := fmt.Fprintf(e.app.out, "\n%s\n", terminal.Printable(e.app.out,
			wrapped(r.Reference, 100, ""))); err != nil {
			return err
		}
	}
	for _, c := range r.Checks {
		if c.OK {
			continue
		}
		if _, err := fmt.Fprintf(e.app.out, "\n%s\n%s\n", terminal.Printable(e.app.out, c.Name),
			terminal.Printable(e.app.out, wrapped(c.Detail, 100, "  "))); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(e.app.out, "\nThe report: %s/%s\n", strings.TrimSuffix(dir, "/"), "evaluation_report.md")
	return err
}

// evaluatedBy returns the evaluator of a deployment. It runs this command in a new process.
func evaluatedBy(device deviceFlags, model, golden string) skill.Evaluator {
	opts := &skill.EvaluateOptions{Model: model, Golden: golden}
	// without a cache folder, an interrupted evaluation starts over
	if cache, err := localmodel.CacheFolder(); err == nil {
		opts.Notes = filepath.Join(filepath.Dir(cache), "evaluations")
	}
	return skill.InNewProcess(deviceText(device), opts)
}

// deviceText encodes flags for [openDeviceText] in another process. That process does not see this
// one's environment, so defaults from variables become part of the text.
func deviceText(f deviceFlags) string {
	f.kernels = cmp.Or(f.kernels, os.Getenv(cpu.KernelsVariable))
	if f.device == "xdna" {
		f.artefacts, f.compile = cmp.Or(f.artefacts, os.Getenv("NPUKIT_ARTEFACTS")),
			cmp.Or(f.compile, os.Getenv("NPUKIT_COMPILE"))
	}
	return fmt.Sprintf("%q %d %q %t %q %q", f.device, f.threads, f.kernels, f.inPlace, f.artefacts, f.compile)
}

// openDeviceText opens the device of deviceText in the evaluator's process.
func openDeviceText(_ context.Context, text string) (npu.Device, error) {
	f, err := parseDeviceText(text)
	if err != nil {
		return nil, err
	}
	return f.open()
}

// parseDeviceText decodes the text that [deviceText] returns.
func parseDeviceText(text string) (f deviceFlags, err error) {
	if _, err := fmt.Sscanf(text, "%q %d %q %t %q %q", &f.device, &f.threads, &f.kernels, &f.inPlace, &f.artefacts,
		&f.compile); err != nil {
		return f, fmt.Errorf("parsing the device %q: %w", text, err)
	}
	return f, nil
}
